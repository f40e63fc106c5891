//! Mounts that are local to the kernel: they cannot hang on anybody.

use std::ffi::CString;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::fstatfs;
use rustix::io::Errno;
use rustix::mount::{
    FsOpenFlags, MountFlags, MountPropagationFlags, UnmountFlags, fsconfig_set_flag, fsopen,
};

use super::VolumeError;
use crate::core::mounts::{self, Mount, Share};
use crate::core::spec::Medium;

const TMPFS: &str = "tmpfs";
const HUGETLBFS: &str = "hugetlbfs";
const TMPFS_MAGIC: i64 = 0x0102_1994;
const HUGETLBFS_MAGIC: i64 = 0x9584_58f6;

/// Whether the kernel takes `noswap` (6.4 and up); found out by the first mount.
static NOSWAP: AtomicBool = AtomicBool::new(true);

/// Mounts what a medium stands for; nothing for the disk.
pub fn mount(medium: Medium, at: &Path) -> Result<(), VolumeError> {
    let (kind, mounted) = match medium {
        Medium::Disk => return Ok(()),
        Medium::Memory { size } => (TMPFS, memory(at, size)),
        Medium::HugePages { page_size } => (
            HUGETLBFS,
            call("nodev", at, HUGETLBFS, &format!("pagesize={page_size}")),
        ),
    };
    mounted.map_err(|source| VolumeError::Mount {
        kind,
        path: at.to_owned(),
        source,
    })
}

fn memory(at: &Path, size: Option<u64>) -> io::Result<()> {
    let size = size.map(|size| format!("size={size}")).unwrap_or_default();
    if NOSWAP.load(Ordering::Relaxed) {
        let comma = if size.is_empty() { "" } else { "," };
        match call(TMPFS, at, TMPFS, &format!("{size}{comma}noswap")) {
            Err(error) if error.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => {
                NOSWAP.store(false, Ordering::Relaxed);
            }
            done => return done,
        }
    }
    call(TMPFS, at, TMPFS, &size)
}

/// Whether this machine may write what lies in memory to a disk.
pub fn is_swapped() -> bool {
    let swaps = std::fs::read_to_string("/proc/swaps").unwrap_or_default();
    // The first line says what the others hold.
    swaps.trim().lines().count() > 1
}

/// Whether the kernel can be told not to do so with a volume.
pub fn can_stay_in_memory() -> bool {
    let aside = fsopen(TMPFS, FsOpenFlags::FSOPEN_CLOEXEC);
    aside.is_ok_and(|aside| fsconfig_set_flag(aside, "noswap").is_ok())
}

fn call(source: &str, at: &Path, kind: &str, options: &str) -> io::Result<()> {
    let options = CString::new(options)?;
    Ok(rustix::mount::mount(
        source,
        at,
        kind,
        MountFlags::empty(),
        options.as_c_str(),
    )?)
}

/// Whether a directory lies on what the medium stands for.
pub fn is_on(medium: Medium, dir: impl AsFd) -> rustix::io::Result<bool> {
    let kind = fstatfs(dir)?.f_type;
    Ok(match medium {
        Medium::Disk => true,
        Medium::Memory { .. } => kind == TMPFS_MAGIC,
        Medium::HugePages { .. } => kind == HUGETLBFS_MAGIC,
    })
}

/// Makes mounts below the root directory reach containers that ask for it (`HostToContainer`), and
/// those of containers reach the node (`Bidirectional`): upstream does the same at its start.
pub fn share(root: &Path) -> Result<(), VolumeError> {
    let how = mounts::share(&table()?, root);
    let bind = || match how {
        Share::Directory => rustix::mount::mount_bind(root, root),
        _ => Ok(()),
    };
    let shared = match how {
        Share::Already => Ok(()),
        Share::TooLate => {
            tracing::warn!(
                root = %root.display(),
                "the root directory is not shared: mounts do not propagate before the next start \
                 without pods"
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
    let table = std::fs::read("/proc/self/mountinfo").map_err(VolumeError::MountTable)?;
    Ok(mounts::parse(&table))
}

/// Undoes one mount. Only for local file systems.
pub fn unmount(at: &Path) -> Result<(), VolumeError> {
    match rustix::mount::unmount(at, UnmountFlags::NOFOLLOW) {
        // Not a mount any more.
        Ok(()) | Err(Errno::INVAL | Errno::NOENT) => Ok(()),
        Err(errno) => Err(VolumeError::Unmount {
            path: at.to_owned(),
            source: errno.into(),
        }),
    }
}
