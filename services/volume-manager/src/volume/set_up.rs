//! Sets a volume up. Doing it again changes nothing that is right.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{Mode, OFlags, openat};
use rustix::io::Errno;

use super::atomic::Writer;
use super::remove::Budget;
use super::{VolumeError, dir, mount};
use crate::core::layout::{self, Layout, VolumeId};
use crate::core::spec::{Files, Medium};

/// Sets up a directory that the pod fills.
pub fn empty_dir(
    layout: &Layout,
    id: &VolumeId,
    medium: Medium,
    gid: Option<u32>,
) -> Result<(), VolumeError> {
    directory(layout, id, medium, gid)?.finish()
}

/// Sets up a directory with files in it.
pub fn files(
    layout: &Layout,
    id: &VolumeId,
    files: &Files,
    budget: &Budget,
) -> Result<(), VolumeError> {
    let place = directory(layout, id, files.medium, files.gid)?;
    let path = layout.volume(id);
    let mut go_on = || Ok(());
    let dir = place.dir.as_fd();
    Writer {
        dir,
        path: &path,
        budget,
        before_change: &mut go_on,
    }
    .write(files)?;
    place.finish()
}

struct Place<'a> {
    layout: &'a Layout,
    id: &'a VolumeId,
    pod: OwnedFd,
    dir: OwnedFd,
    ready: bool,
}

impl Place<'_> {
    /// Leaves the marker that says that all was set up.
    fn finish(self) -> Result<(), VolumeError> {
        if self.ready {
            return Ok(());
        }
        let marker = layout::marker(self.id);
        let path = self.layout.pod(&self.id.uid);
        let parts: Vec<_> = marker.iter().filter_map(|part| part.to_str()).collect();
        let dir = dir::make_all(self.pod, &path, &parts)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match openat(&dir, "ready", flags, Mode::from_raw_mode(0o640)) {
            Ok(_) => Ok(()),
            Err(errno) => {
                let path = path.join(marker).join("ready");
                Err(VolumeError::Write {
                    path,
                    source: errno.into(),
                })
            }
        }
    }
}

/// The volume's directory, made and mounted as far as it is not.
fn directory<'a>(
    layout: &'a Layout,
    id: &'a VolumeId,
    medium: Medium,
    gid: Option<u32>,
) -> Result<Place<'a>, VolumeError> {
    let path = layout.volume(id);
    let pods = pods(layout)?;
    let pod = dir::make_all(pods, &layout.pods(), &[&id.uid])?;
    let again = pod.try_clone();
    let again = again.map_err(|source| VolumeError::Open {
        path: path.clone(),
        source,
    })?;
    let parent = dir::make_all(again, &layout.pod(&id.uid), &["volumes", &id.plugin])?;
    let made = |errno: Errno| VolumeError::MakeDir {
        path: path.clone(),
        source: errno.into(),
    };
    let (mut dir, fresh) = dir::make(&parent, &id.name, 0o777).map_err(made)?;
    let opened = |errno: Errno| VolumeError::Open {
        path: path.clone(),
        source: errno.into(),
    };
    let mut mounted = !fresh && dir::is_mount(&parent, &dir).map_err(opened)?;
    let right =
        !mounted || (medium != Medium::Disk && mount::is_on(medium, &dir).map_err(opened)?);
    if !right {
        return Err(VolumeError::Occupied(path));
    }
    let marker = layout::marker(id).join("ready");
    let was_ready = !fresh && dir::look(&pod, marker).map_err(opened)?.is_some();
    let ready = was_ready && (mounted || medium == Medium::Disk);
    if medium != Medium::Disk && !mounted {
        let span = tracing::info_span!("volume.mount", path = %path.display());
        span.in_scope(|| mount::mount(medium, &path))?;
        dir = dir::open_below(&parent, id.name.as_str()).map_err(opened)?;
        mounted = true;
    }
    if !ready {
        own_root(&dir, &path, mounted, gid)?;
    }
    Ok(Place {
        layout,
        id,
        pod,
        dir,
        ready,
    })
}

fn pods(layout: &Layout) -> Result<OwnedFd, VolumeError> {
    let path = layout.pods();
    match dir::open(&path) {
        Err(VolumeError::Open { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
            let root = path.parent().unwrap_or(Path::new("/"));
            dir::make_all(dir::open(root)?, root, &["pods"])
        }
        opened => opened,
    }
}

/// The modes that upstream leaves: 0777, sticky in memory, and the group's bits.
fn own_root(
    dir: &OwnedFd,
    path: &Path,
    mounted: bool,
    gid: Option<u32>,
) -> Result<(), VolumeError> {
    let sticky = if mounted { 0o1000 } else { 0 };
    let group = if gid.is_some() { 0o2000 } else { 0 };
    dir::own(dir, 0o777 | sticky | group, gid).map_err(|errno| VolumeError::Own {
        path: path.to_owned(),
        source: errno.into(),
    })
}
