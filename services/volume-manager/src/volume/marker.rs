//! The marker `ready` of a volume that has been set up, in a directory that pods do not have.
//!
//! Files on disk are not synced when they are written: after a power loss they may be incomplete under
//! a marker that is there. The marker of such a volume contains the id of the boot; in another boot
//! the files are written again before a container gets them. Others, and the kubelet's, are empty.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, openat};

use crate::core::layout::{self, Layout, VolumeId};

const NAME: &str = "ready";

/// Whether files of such a volume may be incomplete after a power loss.
fn needs_boot_id(plugin: &str) -> bool {
    layout::is_files(plugin) && !layout::in_memory(plugin)
}

/// The path of the marker.
pub fn path(layout: &Layout, id: &VolumeId) -> PathBuf {
    layout.pod(&id.uid).join(layout::marker(id)).join(NAME)
}

/// The path of the marker, relative to the pod's directory.
pub fn within_pod(id: &VolumeId) -> PathBuf {
    layout::marker(id).join(NAME)
}

/// Whether the volume has been set up, and its files are whole.
pub fn is_valid(layout: &Layout, id: &VolumeId) -> bool {
    let path = path(layout, id);
    match needs_boot_id(&id.plugin) {
        true => is_of_this_boot(&path),
        false => path.is_file(),
    }
}

fn is_of_this_boot(path: &Path) -> bool {
    let boot = polylet_machine::boot_id();
    let marked = fs::read_to_string(path).ok();
    boot.is_some_and(|boot| marked.is_some_and(|marked| marked == boot))
}

/// Creates the marker in its directory.
pub fn create(dir: &OwnedFd, id: &VolumeId) -> io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW;
    let file = openat(
        dir,
        NAME,
        flags | OFlags::CLOEXEC,
        Mode::from_raw_mode(0o640),
    )?;
    if !needs_boot_id(&id.plugin) {
        return Ok(());
    }
    // Without an id the files are written again by the next process.
    let boot = polylet_machine::boot_id().unwrap_or_default();
    File::from(file).write_all(boot.as_bytes())
}
