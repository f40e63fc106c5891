//! Reconstructs the actual state from directories, markers and the mount table. Volumes whose
//! content does not belong to the pod are not accessed: their server may not answer.

use std::collections::BTreeMap;
use std::path::Path;

use polylet_machine::mountinfo::Mount;
use polylet_model::PodUid;

use crate::core::actual_state::{ReconstructedPod, ReconstructedVolume};
use crate::core::layout::{self, Layout, VolumeId};
use crate::core::pod::PodMetadata;
use crate::csi::{self, data};
use crate::volume::{VolumeError, dir, marker, metadata, mount};

/// The pods below the root directory.
pub fn pods(layout: &Layout) -> Result<Vec<ReconstructedPod>, VolumeError> {
    let mounts = mount::table()?;
    let mut pods = Vec::new();
    for uid in list(&layout.pods())? {
        if !layout::is_safe_uid(&uid) {
            let path = layout.pods().join(uid);
            tracing::warn!(path = %path.display(), "not the directory of a pod; ignoring it");
            continue;
        }
        pods.push(pod(layout, &uid.into(), &mounts)?);
    }
    Ok(pods)
}

fn list(path: &Path) -> Result<Vec<String>, VolumeError> {
    dir::names_at(path).map_err(|source| VolumeError::Open {
        path: path.to_owned(),
        source,
    })
}

fn pod(layout: &Layout, uid: &PodUid, mounts: &[Mount]) -> Result<ReconstructedPod, VolumeError> {
    let metadata = metadata::load(layout, uid);
    let mut volumes = BTreeMap::new();
    let dir = layout.pod(uid).join("volumes");
    for plugin in list(&dir)? {
        for name in list(&dir.join(&plugin))? {
            let id = VolumeId::new(uid.clone(), &plugin, &name);
            let ready = is_ready(layout, &id, mounts, &metadata);
            let data_file = (plugin == layout::CSI).then(|| layout.volume(&id).join(data::DATA));
            let in_use = data_file.and_then(|file| data::in_use(&file));
            volumes.insert(
                (plugin.clone(), name),
                ReconstructedVolume { ready, in_use },
            );
        }
    }
    for plugin in [layout::CSI_DEVICE, layout::LOCAL_DEVICE] {
        let links = layout::device_plugin(plugin)
            .map(|name| layout.pod(uid).join(layout::DEVICES).join(name));
        for name in list(&links.unwrap_or_default())? {
            let id = VolumeId::new(uid.clone(), plugin, &name);
            let bound = layout.device(&id);
            // Its link may lead to a file system that does not answer.
            let is_mapped = mounts.iter().any(|mount| mount.mount_point == bound);
            let volume = ReconstructedVolume {
                // A driver expands its device after it is mapped.
                ready: is_mapped
                    && (plugin != layout::CSI_DEVICE || is_stored(&metadata, layout, &id)),
                in_use: data::in_use(&csi::device::data_file(layout, &name))
                    .filter(|_| plugin == layout::CSI_DEVICE),
            };
            volumes.insert((plugin.to_owned(), name), volume);
        }
    }
    Ok(ReconstructedPod { metadata, volumes })
}

/// Whether the pod's metadata, which is stored once all volumes are set up, has the volume. There is none
/// of a volume that a kubelet has set up.
fn is_stored(metadata: &PodMetadata, layout: &Layout, id: &VolumeId) -> bool {
    let at = layout.mounted(id);
    let mut stored = metadata.host_paths.values();
    stored.any(|path| Path::new(path) == at)
}

/// Whether the volume was set up completely, and is still mounted if it has to be.
fn is_ready(layout: &Layout, id: &VolumeId, mounts: &[Mount], metadata: &PodMetadata) -> bool {
    let path = layout.volume(id);
    let at = layout.mounted(id);
    let mounted = mounts.iter().rev().find(|mount| mount.mount_point == at);
    if id.plugin == layout::CSI {
        // Its ownership is changed after it is mounted.
        return mounted.is_some() && is_stored(metadata, layout, id);
    }
    if !layout::is_owned(&id.plugin) {
        return mounted.is_some();
    }
    if layout::in_memory(&id.plugin) && mounted.is_none_or(|mount| mount.fs_type != "tmpfs") {
        return false;
    }
    let written = || {
        path.join("..data")
            .symlink_metadata()
            .is_ok_and(|data| data.is_symlink())
    };
    marker::is_valid(layout, id) && (!layout::is_files(&id.plugin) || written())
}

#[cfg(test)]
mod tests {
    use polylet_machine::mountinfo;

    use super::*;

    #[test]
    fn a_csi_volume_is_ready_once_it_is_mounted_and_stored() {
        for (plugin, is_mounted, is_stored, expected) in [
            (layout::CSI, true, true, true),
            (layout::CSI, true, false, false),
            (layout::CSI, false, true, false),
            (layout::CSI, false, false, false),
            // Complete as soon as they are mounted.
            (layout::LOCAL, true, false, true),
            (layout::NFS, true, false, true),
            (layout::NFS, false, false, false),
            (layout::CSI_DEVICE, true, true, true),
            (layout::CSI_DEVICE, true, false, false),
            (layout::CSI_DEVICE, false, true, false),
            (layout::LOCAL_DEVICE, true, false, true),
            (layout::LOCAL_DEVICE, false, false, false),
        ] {
            let temp = tempfile::tempdir().unwrap();
            let layout = Layout::new(temp.path());
            let id = VolumeId::new("u1", plugin, "v");
            std::fs::create_dir_all(layout.volume(&id)).unwrap();
            let at = layout.mounted(&id).display().to_string();
            let mount_point = match layout::device_plugin(plugin) {
                Some(_) => layout.device(&id).display().to_string(),
                None => at.clone(),
            };
            let line = format!("36 35 98:0 / {mount_point} rw - ext4 /dev/x rw\n");
            let mounts = match is_mounted {
                true => mountinfo::parse(line.as_bytes()),
                false => Vec::new(),
            };
            if is_stored {
                let mut stored = metadata::load(&layout, &id.uid);
                stored.host_paths.insert("v".to_owned(), at);
                metadata::store(&layout, stored).unwrap();
            }
            let pod = pod(&layout, &id.uid, &mounts).unwrap();
            let ready = pod.volumes[&id.key()].ready;
            assert_eq!(ready, expected, "{plugin} {is_mounted} {is_stored}");
        }
    }
}
