//! The type check of a hostPath. The path may be on a file system whose server does not answer, so
//! paths that are not certainly local are checked in a child process.

use std::fs::{self, DirBuilder, OpenOptions};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use polylet_kit::subprocess::{SubprocessTask, TaskProgress};
use polylet_kit::{CancellationToken, report};
use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::{VolumeError, blocking, dir, mount};
use crate::core::builtin::PathCheck;
use crate::core::mounts;
use crate::subprocess::Subprocesses;

/// Checks a path, and creates it where the check asks for that.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CheckPathTask {
    /// The path.
    pub path: PathBuf,
    /// What must be there.
    pub check: PathCheck,
}

impl SubprocessTask for CheckPathTask {
    const NAME: &'static str = "check-path";
    type Progress = ();
    type Output = Result<(), String>;

    fn key(&self) -> String {
        self.path.display().to_string()
    }

    fn run(self, _progress: &mut TaskProgress<()>) -> Self::Output {
        check(&self.path, self.check).map_err(|error| report(&error))
    }
}

/// Finds out what is at a path; links are followed.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PathTypeTask {
    /// The path.
    pub path: PathBuf,
}

/// What is at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum PathType {
    /// Nothing at all.
    Missing,
    /// A directory.
    Directory,
    /// A block device.
    BlockDevice,
    /// Anything else.
    Other,
}

impl SubprocessTask for PathTypeTask {
    const NAME: &'static str = "path-type";
    type Progress = ();
    type Output = Result<PathType, String>;

    fn key(&self) -> String {
        self.path.display().to_string()
    }

    fn run(self, _progress: &mut TaskProgress<()>) -> Self::Output {
        path_type(&self.path).map_err(|error| report(&error))
    }
}

/// Checks the path of a pod's hostPath.
pub async fn check_for_pod(
    task: CheckPathTask,
    pod_uid: &str,
    subprocesses: &Subprocesses,
    cancel: &CancellationToken,
) -> Result<(), VolumeError> {
    if task.check == PathCheck::None {
        return Ok(());
    }
    let local = task.clone();
    let here = blocking(move || {
        let is_local = is_local(&local.path);
        Ok(is_local.then(|| check(&local.path, local.check)))
    });
    match here.await? {
        Some(result) => result,
        None => {
            let done = subprocesses.call_until(pod_uid, &task, cancel).await?;
            done.map_err(VolumeError::HostPath)
        }
    }
}

/// Finds out what is at a path of the node.
pub async fn type_for_pod(
    path: &Path,
    pod_uid: &str,
    subprocesses: &Subprocesses,
) -> Result<PathType, VolumeError> {
    let local = path.to_owned();
    let here = blocking(move || {
        let is_local = is_local(&local);
        is_local.then(|| path_type(&local)).transpose()
    });
    if let Some(found) = here.await? {
        return Ok(found);
    }
    let path = path.to_owned();
    let done = subprocesses.call(pod_uid, &PathTypeTask { path }).await?;
    done.map_err(VolumeError::Task)
}

fn path_type(path: &Path) -> Result<PathType, VolumeError> {
    match fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => Ok(PathType::Directory),
        Ok(metadata) if metadata.file_type().is_block_device() => Ok(PathType::BlockDevice),
        Ok(_) => Ok(PathType::Other),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(PathType::Missing),
        Err(source) => Err(VolumeError::Open {
            path: path.to_owned(),
            source,
        }),
    }
}

/// Whether access to the path cannot hang: every file system on the way is local, and no link leads
/// elsewhere.
pub fn is_local(path: &Path) -> bool {
    let Ok(table) = mount::table() else {
        return false;
    };
    let Some(last) = mounts::local_mount(&table, path) else {
        return false;
    };
    let Ok(rest) = path.strip_prefix(&last.mount_point) else {
        return false;
    };
    if rest.as_os_str().is_empty() {
        return true;
    }
    let Ok(start) = dir::open(&last.mount_point) else {
        return false;
    };
    let stay = ResolveFlags::NO_XDEV | ResolveFlags::NO_SYMLINKS | ResolveFlags::BENEATH;
    let opened = openat2(
        start,
        rest,
        OFlags::PATH | OFlags::CLOEXEC,
        Mode::empty(),
        stay,
    );
    matches!(opened, Ok(_) | Err(Errno::NOENT))
}

/// Checks the path, and creates it where the type asks for that; with upstream's messages.
pub fn check(path: &Path, check: PathCheck) -> Result<(), VolumeError> {
    // Upstream treats a path that cannot be read as missing.
    let Ok(file_type) = fs::metadata(path).map(|metadata| metadata.file_type()) else {
        return create(path, check);
    };
    let is_valid = match check {
        PathCheck::None => true,
        PathCheck::DirectoryOrCreate | PathCheck::Directory => file_type.is_dir(),
        PathCheck::FileOrCreate | PathCheck::File => file_type.is_file(),
        PathCheck::Socket => file_type.is_socket(),
        PathCheck::CharDevice => file_type.is_char_device(),
        PathCheck::BlockDevice => file_type.is_block_device(),
    };
    if is_valid {
        return Ok(());
    }
    Err(type_mismatch(path, check))
}

fn create(path: &Path, check: PathCheck) -> Result<(), VolumeError> {
    let created = match check {
        PathCheck::None => Ok(()),
        PathCheck::DirectoryOrCreate => DirBuilder::new().recursive(true).mode(0o755).create(path),
        PathCheck::FileOrCreate => {
            let mut options = OpenOptions::new();
            options
                .write(true)
                .create(true)
                .mode(0o644)
                .open(path)
                .map(|_| ())
        }
        _ => return Err(type_mismatch(path, check)),
    };
    created.map_err(|source| VolumeError::Write {
        path: path.to_owned(),
        source,
    })
}

/// Upstream's message for a path that has another type, or is missing.
fn type_mismatch(path: &Path, check: PathCheck) -> VolumeError {
    let expected = match check {
        PathCheck::None => "anything",
        PathCheck::DirectoryOrCreate | PathCheck::Directory => "directory",
        PathCheck::FileOrCreate | PathCheck::File => "file",
        PathCheck::Socket => "socket file",
        PathCheck::CharDevice => "character device",
        PathCheck::BlockDevice => "block device",
    };
    VolumeError::HostPath(format!(
        "hostPath type check failed: {} is not a {expected}",
        path.display()
    ))
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn checks_every_type() {
        let temp = tempfile::tempdir().unwrap();
        let at = |name: &str| temp.path().join(name);
        fs::create_dir(at("dir")).unwrap();
        fs::write(at("file"), "").unwrap();
        std::os::unix::fs::symlink("file", at("link")).unwrap();
        let _socket = UnixListener::bind(at("socket")).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            at("pipe"),
            rustix::fs::FileType::Fifo,
            Mode::from_raw_mode(0o600),
            0,
        )
        .unwrap();
        let result = |name: &str, path_check| match check(&at(name), path_check) {
            Ok(()) => "ok".to_owned(),
            Err(error) => error
                .to_string()
                .replace(&format!("{}/", temp.path().display()), ""),
        };
        let not = |name: &str, expected: &str| {
            format!("hostPath type check failed: {name} is not a {expected}")
        };
        use PathCheck::{
            BlockDevice, CharDevice, Directory, DirectoryOrCreate, File, FileOrCreate, None, Socket,
        };
        let ok = || "ok".to_owned();
        for (name, path_check, expected) in [
            ("dir", Directory, ok()),
            ("dir", DirectoryOrCreate, ok()),
            ("file", File, ok()),
            ("link", File, ok()),
            ("socket", Socket, ok()),
            ("pipe", None, ok()),
            ("new/deep", DirectoryOrCreate, ok()),
            ("made", FileOrCreate, ok()),
            ("none", None, ok()),
            ("none", File, not("none", "file")),
            ("file/x", Directory, not("file/x", "directory")),
            ("none", CharDevice, not("none", "character device")),
            ("dir", File, not("dir", "file")),
            ("dir", FileOrCreate, not("dir", "file")),
            ("file", Directory, not("file", "directory")),
            ("file", DirectoryOrCreate, not("file", "directory")),
            ("socket", File, not("socket", "file")),
            ("file", Socket, not("file", "socket file")),
            ("file", CharDevice, not("file", "character device")),
            ("dir", BlockDevice, not("dir", "block device")),
            ("pipe", Directory, not("pipe", "directory")),
        ] {
            assert_eq!(result(name, path_check), expected, "{name} {path_check:?}");
        }
        assert_eq!(check(Path::new("/dev/null"), CharDevice).ok(), Some(()));
        let device = check(Path::new("/dev/null"), File).unwrap_err().to_string();
        assert_eq!(device, not("/dev/null", "file"));
        use std::os::unix::fs::PermissionsExt;
        let mode = |name: &str| fs::metadata(at(name)).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode("new/deep"), mode("made")), (0o755, 0o644));
    }
}
