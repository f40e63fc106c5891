//! Checks what a hostPath is. The path is the user's: it may lie on a file system whose server is
//! dead, so whatever is not plainly local is looked at in a child process.

use std::fs::{self, DirBuilder, OpenOptions};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};
use rustix::io::Errno;

use super::{VolumeError, dir, mount};
use crate::core::mounts;
use crate::core::spec::PathCheck;

/// Whether looking at the path can hang on nobody: every file system on the way is local, and no
/// link leads elsewhere.
pub fn is_local(path: &Path) -> bool {
    let Ok(table) = mount::table() else {
        return false;
    };
    let Some(last) = mounts::local_way(&table, path) else {
        return false;
    };
    let Ok(rest) = path.strip_prefix(&last.at) else {
        return false;
    };
    if rest.as_os_str().is_empty() {
        return true;
    }
    let Ok(start) = dir::open(&last.at) else {
        return false;
    };
    let stay = ResolveFlags::NO_XDEV | ResolveFlags::NO_SYMLINKS | ResolveFlags::BENEATH;
    let found = openat2(
        start,
        rest,
        OFlags::PATH | OFlags::CLOEXEC,
        Mode::empty(),
        stay,
    );
    matches!(found, Ok(_) | Err(Errno::NOENT))
}

/// Checks it, and makes it where that was asked for. What is wrong is told as upstream tells it.
pub fn check(path: &Path, check: PathCheck) -> Result<(), VolumeError> {
    // Upstream counts a path that cannot be looked at as one that is not there.
    let Ok(found) = fs::metadata(path).map(|found| found.file_type()) else {
        return make(path, check);
    };
    let right = match check {
        PathCheck::None => true,
        PathCheck::DirectoryOrCreate | PathCheck::Directory => found.is_dir(),
        PathCheck::FileOrCreate | PathCheck::File => found.is_file(),
        PathCheck::Socket => found.is_socket(),
        PathCheck::CharDevice => found.is_char_device(),
        PathCheck::BlockDevice => found.is_block_device(),
    };
    if right {
        return Ok(());
    }
    Err(unlike(path, check))
}

fn make(path: &Path, check: PathCheck) -> Result<(), VolumeError> {
    let made = match check {
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
        _ => return Err(unlike(path, check)),
    };
    made.map_err(|source| VolumeError::Write {
        path: path.to_owned(),
        source,
    })
}

/// Upstream's words for a path that is something else, or nothing.
fn unlike(path: &Path, check: PathCheck) -> VolumeError {
    let wanted = match check {
        PathCheck::None => "anything",
        PathCheck::DirectoryOrCreate | PathCheck::Directory => "directory",
        PathCheck::FileOrCreate | PathCheck::File => "file",
        PathCheck::Socket => "socket file",
        PathCheck::CharDevice => "character device",
        PathCheck::BlockDevice => "block device",
    };
    VolumeError::HostPath(format!(
        "hostPath type check failed: {} is not a {wanted}",
        path.display()
    ))
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn every_check_and_what_it_says() {
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
        let said = |name: &str, wanted| match check(&at(name), wanted) {
            Ok(()) => "fine".to_owned(),
            Err(error) => error
                .to_string()
                .replace(&format!("{}/", temp.path().display()), ""),
        };
        let not = |name: &str, wanted: &str| {
            format!("hostPath type check failed: {name} is not a {wanted}")
        };
        use PathCheck::{
            BlockDevice, CharDevice, Directory, DirectoryOrCreate, File, FileOrCreate, None, Socket,
        };
        let fine = || "fine".to_owned();
        for (name, wanted, expected) in [
            ("dir", Directory, fine()),
            ("dir", DirectoryOrCreate, fine()),
            ("file", File, fine()),
            ("link", File, fine()),
            ("socket", Socket, fine()),
            ("pipe", None, fine()),
            ("new/deep", DirectoryOrCreate, fine()),
            ("made", FileOrCreate, fine()),
            ("none", None, fine()),
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
            assert_eq!(said(name, wanted), expected, "{name} {wanted:?}");
        }
        assert_eq!(check(Path::new("/dev/null"), CharDevice).ok(), Some(()));
        let device = check(Path::new("/dev/null"), File).unwrap_err().to_string();
        assert_eq!(device, not("/dev/null", "file"));
        use std::os::unix::fs::PermissionsExt;
        let mode = |name: &str| fs::metadata(at(name)).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode("new/deep"), mode("made")), (0o755, 0o644));
    }
}
