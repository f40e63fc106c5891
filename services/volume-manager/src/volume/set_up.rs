//! Sets up volumes that belong to the pod: empty directories and files. Idempotent.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::io::Errno;

use super::atomic::AtomicWriter;
use super::{VolumeError, dir, marker, mount};
use crate::core::builtin::Medium;
use crate::core::files::VolumeFiles;
use crate::core::layout::{self, Layout, VolumeId};
use crate::core::mounts;

/// Sets up an emptyDir.
pub fn empty_dir(
    layout: &Layout,
    id: &VolumeId,
    medium: Medium,
    gid: Option<u32>,
) -> Result<(), VolumeError> {
    prepare_dir(layout, id, medium, gid)?.finish()
}

/// Sets up a directory with files.
pub fn files(layout: &Layout, id: &VolumeId, files: &VolumeFiles) -> Result<(), VolumeError> {
    let volume = prepare_dir(layout, id, files.medium, files.gid)?;
    let path = layout.volume(id);
    let mut before_change = || Ok(());
    let dir = volume.dir.as_fd();
    AtomicWriter {
        dir,
        path: &path,
        before_change: &mut before_change,
    }
    .write(files)?;
    volume.finish()
}

/// The prepared directory of a volume.
struct VolumeDir<'a> {
    layout: &'a Layout,
    id: &'a VolumeId,
    pod: OwnedFd,
    dir: OwnedFd,
    ready: bool,
}

impl VolumeDir<'_> {
    /// Creates the marker `ready`, unless there is a valid one.
    fn finish(self) -> Result<(), VolumeError> {
        if self.ready && marker::is_valid(self.layout, self.id) {
            return Ok(());
        }
        let within = layout::marker(self.id);
        let parts: Vec<_> = within.iter().filter_map(|part| part.to_str()).collect();
        let dir = dir::make_all(self.pod, &self.layout.pod(&self.id.uid), &parts)?;
        marker::create(&dir, self.id).map_err(|source| VolumeError::Write {
            path: marker::path(self.layout, self.id),
            source,
        })
    }
}

/// Creates and mounts the volume's directory, unless that is done already.
fn prepare_dir<'a>(
    layout: &'a Layout,
    id: &'a VolumeId,
    medium: Medium,
    gid: Option<u32>,
) -> Result<VolumeDir<'a>, VolumeError> {
    let path = layout.volume(id);
    let pods = pods_dir(layout)?;
    let pod = dir::make_all(pods, &layout.pods(), &[&id.uid])?;
    let pod_dir = pod.try_clone();
    let pod_dir = pod_dir.map_err(|source| VolumeError::Open {
        path: path.clone(),
        source,
    })?;
    let parent = dir::make_all(pod_dir, &layout.pod(&id.uid), &["volumes", &id.plugin])?;
    let make_error = |errno: Errno| VolumeError::MakeDir {
        path: path.clone(),
        source: errno.into(),
    };
    let fresh = dir::create(&parent, &id.name, 0o777).map_err(make_error)?;
    if !fresh && has_foreign_mount(&path)? {
        return Err(VolumeError::ForeignMount(path));
    }
    let (mut dir, _) = dir::make(&parent, &id.name, 0o777).map_err(make_error)?;
    let open_error = |errno: Errno| VolumeError::Open {
        path: path.clone(),
        source: errno.into(),
    };
    let mut mounted = !fresh && dir::is_mount(&parent, &dir).map_err(open_error)?;
    let is_valid =
        !mounted || (medium != Medium::Disk && mount::is_on(medium, &dir).map_err(open_error)?);
    if !is_valid {
        return Err(VolumeError::ForeignMount(path));
    }
    let marker = dir::stat(&pod, marker::within_pod(id)).map_err(open_error)?;
    let was_ready = !fresh && marker.is_some();
    let ready = was_ready && (mounted || medium == Medium::Disk);
    if medium != Medium::Disk && !mounted {
        let span = tracing::info_span!("volume.mount", file.path = %path.display());
        span.in_scope(|| mount::mount(medium, &path))?;
        dir = dir::open_below(&parent, id.name.as_str()).map_err(open_error)?;
        mounted = true;
    }
    if !ready {
        set_root_owner(&dir, &path, mounted, gid)?;
    }
    Ok(VolumeDir {
        layout,
        id,
        pod,
        dir,
        ready,
    })
}

/// Whether something is mounted at a volume that its set-up does not mount: a pod may have mounted
/// it, and it may not answer.
fn has_foreign_mount(path: &Path) -> Result<bool, VolumeError> {
    let table = mount::table()?;
    let mut at = table.iter().filter(|mount| mount.mount_point == path);
    Ok(at.any(|mount| !mounts::is_memory(mount)))
}

fn pods_dir(layout: &Layout) -> Result<OwnedFd, VolumeError> {
    let path = layout.pods();
    match dir::open(&path) {
        Err(VolumeError::Open { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
            let root = path.parent().unwrap_or(Path::new("/"));
            dir::make_all(dir::open(root)?, root, &["pods"])
        }
        opened => opened,
    }
}

/// Sets upstream's modes: 0777, sticky in memory, set-group-ID with an `fsGroup`.
fn set_root_owner(
    dir: &OwnedFd,
    path: &Path,
    mounted: bool,
    gid: Option<u32>,
) -> Result<(), VolumeError> {
    let sticky = if mounted { 0o1000 } else { 0 };
    let group = if gid.is_some() { 0o2000 } else { 0 };
    dir::set_owner(dir, 0o777 | sticky | group, gid).map_err(|errno| VolumeError::SetOwner {
        path: path.to_owned(),
        source: errno.into(),
    })
}
