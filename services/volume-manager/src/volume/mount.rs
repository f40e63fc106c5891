//! Mounts of local file systems, which cannot hang.

use std::ffi::CString;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use polylet_machine::mountinfo::{self, Mount};
use rustix::fs::fstatfs;
use rustix::io::Errno;
use rustix::mount::{
    FsOpenFlags, MountFlags, MountPropagationFlags, UnmountFlags, fsconfig_set_flag, fsopen,
};

use super::{VolumeError, dir};
use crate::core::builtin::Medium;
use crate::core::mounts::{self, Share};

const TMPFS: &str = "tmpfs";
const HUGETLBFS: &str = "hugetlbfs";
const TMPFS_MAGIC: i64 = 0x0102_1994;
const HUGETLBFS_MAGIC: i64 = 0x9584_58f6;

/// Whether the kernel supports `noswap` (6.4 and later), as the first mount shows.
static NOSWAP: AtomicBool = AtomicBool::new(true);

/// Mounts the file system of a medium; nothing for the disk.
pub fn mount(medium: Medium, at: &Path) -> Result<(), VolumeError> {
    let (kind, mounted) = match medium {
        Medium::Disk => return Ok(()),
        Medium::Memory { size } => (TMPFS, mount_tmpfs(at, size)),
        Medium::HugePages { page_size } => (
            HUGETLBFS,
            mount_with("nodev", at, HUGETLBFS, &format!("pagesize={page_size}")),
        ),
    };
    mounted.map_err(|source| VolumeError::Mount {
        kind,
        path: at.to_owned(),
        source,
    })
}

fn mount_tmpfs(at: &Path, size: Option<u64>) -> io::Result<()> {
    let size = size.map(|size| format!("size={size}")).unwrap_or_default();
    if NOSWAP.load(Ordering::Relaxed) {
        let comma = if size.is_empty() { "" } else { "," };
        match mount_with(TMPFS, at, TMPFS, &format!("{size}{comma}noswap")) {
            Err(error) if error.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => {
                NOSWAP.store(false, Ordering::Relaxed);
            }
            done => return done,
        }
    }
    mount_with(TMPFS, at, TMPFS, &size)
}

/// Whether swap is on.
pub fn is_swap_on() -> bool {
    let swaps = std::fs::read_to_string("/proc/swaps").unwrap_or_default();
    // The first line is the header.
    swaps.trim().lines().count() > 1
}

/// Whether the kernel supports `noswap` for a tmpfs.
pub fn supports_noswap() -> bool {
    let context = fsopen(TMPFS, FsOpenFlags::FSOPEN_CLOEXEC);
    context.is_ok_and(|context| fsconfig_set_flag(context, "noswap").is_ok())
}

fn mount_with(source: &str, at: &Path, kind: &str, options: &str) -> io::Result<()> {
    let options = CString::new(options)?;
    Ok(rustix::mount::mount(
        source,
        at,
        kind,
        MountFlags::empty(),
        options.as_c_str(),
    )?)
}

/// Whether a directory is on the file system of a medium.
pub fn is_on(medium: Medium, dir: impl AsFd) -> rustix::io::Result<bool> {
    let kind = fstatfs(dir)?.f_type;
    Ok(match medium {
        Medium::Disk => true,
        Medium::Memory { .. } => kind == TMPFS_MAGIC,
        Medium::HugePages { .. } => kind == HUGETLBFS_MAGIC,
    })
}

/// Creates the root directory where it is missing, as upstream, and returns its canonical path, as in
/// the mount table.
pub fn make_root(root: &Path) -> Result<PathBuf, VolumeError> {
    dir::create_all(root, 0o750).map_err(|source| VolumeError::MakeDir {
        path: root.to_owned(),
        source,
    })?;
    std::fs::canonicalize(root).map_err(|source| VolumeError::Open {
        path: root.to_owned(),
        source,
    })
}

/// Makes the root directory a shared mount, so that mounts propagate to containers
/// (`HostToContainer`) and from them (`Bidirectional`); as upstream at its start.
pub fn share(root: &Path) -> Result<(), VolumeError> {
    let share = mounts::share(&table()?, root);
    let bind = || match share {
        Share::Directory => rustix::mount::mount_bind(root, root),
        _ => Ok(()),
    };
    let shared = match share {
        Share::Already => Ok(()),
        Share::TooLate => {
            tracing::warn!(
                path = %root.display(),
                "root directory is not shared; mounts do not propagate until a start without pods"
            );
            Ok(())
        }
        Share::Mount | Share::Directory => {
            bind().and_then(|()| rustix::mount::mount_change(root, MountPropagationFlags::SHARED))
        }
    };
    shared.map_err(|errno| VolumeError::Mount {
        kind: "the root directory",
        path: root.to_owned(),
        source: errno.into(),
    })
}

/// The mount table.
pub fn table() -> Result<Vec<Mount>, VolumeError> {
    mountinfo::read().map_err(VolumeError::MountTable)
}

/// Unmounts a local file system.
pub fn unmount(at: &Path) -> Result<(), VolumeError> {
    match rustix::mount::unmount(at, UnmountFlags::NOFOLLOW) {
        // Not a mount point any more.
        Ok(()) | Err(Errno::INVAL | Errno::NOENT) => Ok(()),
        Err(errno) => Err(VolumeError::Unmount {
            path: at.to_owned(),
            source: errno.into(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A private mount, which is removed with its directory.
    struct PrivateMount(tempfile::TempDir);

    impl Drop for PrivateMount {
        fn drop(&mut self) {
            let _ = rustix::mount::unmount(self.0.path(), UnmountFlags::DETACH);
        }
    }

    #[test]
    fn a_missing_root_directory_is_made_before_it_is_shared() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let mounted = PrivateMount(tempfile::tempdir().unwrap());
        let at = mounted.0.path();
        mount_with(TMPFS, at, TMPFS, "").unwrap();
        rustix::mount::mount_change(at, MountPropagationFlags::PRIVATE).unwrap();
        let missing = at.join("var/kubelet");
        let root = make_root(&missing).unwrap();
        share(&root).unwrap();
        let shared = |table: Vec<Mount>| {
            let mut at_root = table.into_iter().filter(|mount| mount.mount_point == root);
            at_root.next().is_some_and(|mount| mount.shared)
        };
        assert!(shared(table().unwrap()), "mounts do not propagate");
        assert_eq!(make_root(&missing).unwrap(), root);
    }
}
