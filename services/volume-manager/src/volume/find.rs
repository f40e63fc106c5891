//! Finds what is there of pods' volumes, from directories, markers and the mount table. Looks into
//! no volume that is not ours: its server may be dead.

use std::collections::BTreeMap;
use std::path::Path;

use super::{VolumeError, device, dir, mount, note};
use crate::core::layout::{self, Layout, VolumeId};
use crate::core::mounts::Mount;
use crate::core::state::{Found, FoundVolume};
use crate::csi::{self, data};

/// Everything under the root directory.
pub fn all(layout: &Layout) -> Result<Vec<Found>, VolumeError> {
    let mounts = mount::table()?;
    let mut found = Vec::new();
    for uid in list(&layout.pods())? {
        if !layout::is_safe_uid(&uid) {
            tracing::warn!(
                uid,
                "a directory among the pods is no pod's and is left alone"
            );
            continue;
        }
        found.push(pod(layout, &uid, &mounts)?);
    }
    Ok(found)
}

fn list(path: &Path) -> Result<Vec<String>, VolumeError> {
    dir::names_at(path).map_err(|source| VolumeError::Open {
        path: path.to_owned(),
        source,
    })
}

fn pod(layout: &Layout, uid: &str, mounts: &[Mount]) -> Result<Found, VolumeError> {
    let mut volumes = BTreeMap::new();
    let dir = layout.pod(uid).join("volumes");
    for plugin in list(&dir)? {
        for name in list(&dir.join(&plugin))? {
            let id = VolumeId::new(uid, &plugin, &name);
            let ready = is_ready(layout, &id, mounts);
            let told = (plugin == layout::CSI).then(|| layout.volume(&id).join(data::DATA));
            let in_use = told.and_then(|file| data::in_use(&file));
            volumes.insert((plugin.clone(), name), FoundVolume { ready, in_use });
        }
    }
    for plugin in [layout::CSI_DEVICE, layout::LOCAL_DEVICE] {
        let all =
            layout::device_of(plugin).map(|name| layout.pod(uid).join(layout::DEVICES).join(name));
        for name in list(&all.unwrap_or_default())? {
            let id = VolumeId::new(uid, plugin, &name);
            let found = FoundVolume {
                ready: device::is_device(&layout.volume(&id)),
                in_use: data::in_use(&csi::device::data(layout, &name))
                    .filter(|_| plugin == layout::CSI_DEVICE),
            };
            volumes.insert((plugin.to_owned(), name), found);
        }
    }
    let (pod, host_paths) = note::load(layout, uid);
    Ok(Found {
        pod,
        volumes,
        host_paths,
    })
}

/// Whether the volume was set up to the end, and is still mounted if it has to be.
fn is_ready(layout: &Layout, id: &VolumeId, mounts: &[Mount]) -> bool {
    let path = layout.volume(id);
    let at = layout.mounted(id);
    let mounted = mounts.iter().rev().find(|mount| mount.at == at);
    if !layout::is_ours(&id.plugin) {
        return mounted.is_some();
    }
    if layout::in_memory(&id.plugin) && mounted.is_none_or(|mount| mount.kind != "tmpfs") {
        return false;
    }
    let marked = layout
        .pod(&id.uid)
        .join(layout::marker(id))
        .join("ready")
        .is_file();
    let written = || {
        path.join("..data")
            .symlink_metadata()
            .is_ok_and(|data| data.is_symlink())
    };
    marked && (!layout::is_files(&id.plugin) || written())
}
