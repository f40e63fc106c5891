//! A directory of the node, mounted where a pod's volumes are.

use std::path::Path;

use rustix::mount::MountFlags;

use super::{VolumeError, dir, group, mount};
use crate::core::layout::{Layout, VolumeId};

/// Binds the directory, unless it is there already.
pub fn set_up(
    layout: &Layout,
    id: &VolumeId,
    source: &Path,
    read_only: bool,
    gid: Option<u32>,
    lazy: bool,
) -> Result<(), VolumeError> {
    let path = layout.volume(id);
    let from = dir::open(source)?;
    let root = layout.pods();
    let root = root.parent().unwrap_or(Path::new("/"));
    let parts = ["pods", &id.uid, "volumes", &id.plugin, &id.name];
    dir::make_all(dir::open(root)?, root, &parts)?;
    if !mount::table()?.iter().any(|mount| mount.at == path) {
        let failed = |errno: rustix::io::Errno| VolumeError::Mount {
            kind: "a local volume",
            path: path.clone(),
            source: errno.into(),
        };
        rustix::mount::mount_bind(source, &path).map_err(failed)?;
        if read_only {
            let flags = MountFlags::BIND | MountFlags::RDONLY;
            if let Err(errno) = rustix::mount::mount_remount(&path, flags, c"") {
                mount::unmount(&path)?;
                return Err(failed(errno));
            }
        }
    }
    match gid {
        Some(gid) => group::give(&from, source, gid, lazy),
        None => Ok(()),
    }
}
