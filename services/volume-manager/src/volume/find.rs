//! Finds what is there of pods' volumes, from directories, markers and the mount table. Looks into
//! no volume that is not ours: its server may be dead.

use std::collections::BTreeMap;
use std::path::Path;

use super::{VolumeError, dir, mount, note};
use crate::core::layout::{self, Layout, VolumeId};
use crate::core::mounts::Mount;
use crate::core::state::Found;

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
            let ready = is_ready(layout, &VolumeId::new(uid, &plugin, &name), mounts);
            volumes.insert((plugin.clone(), name), ready);
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
