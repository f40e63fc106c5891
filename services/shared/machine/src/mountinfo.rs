//! The mount table of this process: `/proc/self/mountinfo` (proc_pid_mountinfo(5)).
//!
//! An own parser, although `procfs` has one: `procfs::process::MountInfos` fails as a whole on one
//! line that is not UTF-8 (whoever may mount chooses the path), keeps the octal escapes of spaces in
//! paths, and builds two hash maps of options for each line, which takes twice as long (600 lines:
//! 0.75 ms against 0.36 ms). The table is read around each mount and unmount, and has a line for each
//! volume and each container's root file system.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Where the table is.
const FILE: &str = "/proc/self/mountinfo";

/// One line of the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// Where it is mounted, relative to the root directory of this process.
    pub mount_point: PathBuf,
    /// Device of the file system as `major:minor`, the `st_dev` of its files.
    pub device: String,
    /// The directory of the file system that is mounted.
    pub root: PathBuf,
    /// The file system's type, for example `ext4`.
    pub fs_type: String,
    /// Whether it is in a peer group: mounts below it propagate to its peers.
    pub shared: bool,
}

/// Reads the table; a line that cannot be parsed is left out. In the order of the kernel: of
/// several mounts at one place the last is on top.
pub fn read() -> io::Result<Vec<Mount>> {
    std::fs::read(FILE).map(|table| parse(&table))
}

/// Tells whether the table has changed, without reading it: with many pods that takes the kernel
/// milliseconds.
#[derive(Debug)]
pub struct MountWatch(File);

impl MountWatch {
    /// Watches from now on.
    pub fn new() -> io::Result<Self> {
        File::open(FILE).map(Self)
    }

    /// Whether something was mounted or unmounted since the last call, or since the watch began.
    pub fn has_changed(&mut self) -> io::Result<bool> {
        // The kernel reports a change to each open file once.
        let mut files = [PollFd::new(&self.0, PollFlags::PRI)];
        Ok(poll(&mut files, Some(&Timespec::default()))? > 0)
    }
}

/// The same for a table that was read already.
pub fn parse(table: &[u8]) -> Vec<Mount> {
    let lines = table.split(|byte| *byte == b'\n');
    lines.filter_map(parse_line).collect()
}

/// `36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue`
fn parse_line(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|byte| *byte == b' ');
    let device = String::from_utf8_lossy(fields.nth(2)?).into_owned();
    let root = unescape(fields.next()?);
    let mount_point = unescape(fields.next()?);
    let _options = fields.next()?;
    // Any number of optional fields ends with a lone dash.
    let mut shared = false;
    fields.find(|field| {
        shared |= field.starts_with(b"shared:");
        *field == b"-"
    })?;
    let fs_type = String::from_utf8_lossy(fields.next()?).into_owned();
    Some(Mount {
        mount_point,
        device,
        root,
        fs_type,
        shared,
    })
}

/// Space, tab, newline and backslash are written as a backslash and three octal digits.
fn unescape(field: &[u8]) -> PathBuf {
    if !field.contains(&b'\\') {
        return Path::new(OsStr::from_bytes(field)).to_owned();
    }
    let mut path = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, tail)) = rest.split_first() {
        let digits = tail.get(..3).filter(|_| *first == b'\\');
        let value = digits.and_then(|digits| {
            let digits = std::str::from_utf8(digits).ok()?;
            u8::from_str_radix(digits, 8).ok()
        });
        rest = match value {
            Some(_) => tail.get(3..).unwrap_or_default(),
            None => tail,
        };
        path.push(value.unwrap_or(*first));
    }
    PathBuf::from(OsStr::from_bytes(&path))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn mount(line: &[u8]) -> Option<Mount> {
        parse_line(line)
    }

    /// As root. Others may mount in between: it waits until nobody does.
    #[test]
    fn a_change_is_reported_once() {
        let dir = tempfile::tempdir().unwrap();
        let mut watch = MountWatch::new().unwrap();
        let is_quiet = |watch: &mut MountWatch| !watch.has_changed().unwrap();
        assert!((0..1000).any(|_| is_quiet(&mut watch)));
        let flags = rustix::mount::MountFlags::empty();
        rustix::mount::mount("none", dir.path(), "tmpfs", flags, None).unwrap();
        let mounted = watch.has_changed();
        let is_reported_once = (0..1000).any(|_| is_quiet(&mut watch));
        let detach = rustix::mount::UnmountFlags::DETACH;
        rustix::mount::unmount(dir.path(), detach).unwrap();
        assert!(mounted.unwrap() && is_reported_once);
        assert!(watch.has_changed().unwrap(), "an unmount as well");
    }

    #[test]
    fn parses_what_the_kernel_writes() {
        let table = b"22 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n\
            30 22 0:25 / /a\\040b\\134 rw shared:1 master:2 - tmpfs tmpfs rw,size=4k\n\
            31 30 0:26 /srv/x /a\\040b\\134/c rw propagate_from:3 - nfs4 srv:/x rw\n\
            junk\n\
            32 22 0:27 / /caf\xe9 rw - fuse.x  rw\n";
        let mounts = parse(table);
        let expected = [
            ("/", "254:0", "/", "ext4", false),
            ("/a b\\", "0:25", "/", "tmpfs", true),
            ("/a b\\/c", "0:26", "/srv/x", "nfs4", false),
        ];
        let expected = expected.map(|(mount_point, device, root, fs_type, shared)| Mount {
            mount_point: mount_point.into(),
            device: device.to_owned(),
            root: root.into(),
            fs_type: fs_type.to_owned(),
            shared,
        });
        assert_eq!(mounts[..3], expected);
        // Not UTF-8, and without a source.
        assert_eq!(mounts.len(), 4);
        assert_eq!(mounts[3].mount_point.as_os_str().as_bytes(), b"/caf\xe9");
        assert_eq!(mounts[3].fs_type, "fuse.x");
    }

    #[test]
    fn odd_lines_are_left_out() {
        for line in [
            "",
            "1",
            "1 2 0:1 / /x",
            "1 2 0:1 / /x rw shared:1",
            "1 2 0:1 / /x rw -",
        ] {
            assert_eq!(mount(line.as_bytes()), None, "{line:?}");
        }
        // What is no escape stays as it is.
        let odd = mount(b"1 2 0:1 / /x\\9\\04\\400\\ rw - tmpfs t rw").unwrap();
        assert_eq!(odd.mount_point, Path::new("/x\\9\\04\\400\\"));
    }

    #[test]
    fn agrees_with_procfs_on_this_machine() {
        let Ok(theirs) = procfs::process::Process::myself().and_then(|own| own.mountinfo()) else {
            return;
        };
        let ours = read().unwrap();
        for theirs in theirs {
            assert!(
                ours.iter().any(|ours| {
                    *ours.mount_point == unescape(theirs.mount_point.as_os_str().as_bytes())
                        && ours.device == theirs.majmin
                        && ours.root == unescape(theirs.root.as_bytes())
                        && ours.fs_type == theirs.fs_type
                }),
                "{theirs:?}"
            );
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_parsed(table in proptest::collection::vec(any::<u8>(), 0..200)) {
            parse(&table);
        }

        #[test]
        fn escaped_paths_come_back(path in proptest::collection::vec(1..=255u8, 0..30)) {
            let mut line = b"1 2 0:1 / ".to_vec();
            for byte in &path {
                match byte {
                    b' ' | b'\t' | b'\n' | b'\\' => line.extend(format!("\\{byte:03o}").bytes()),
                    _ => line.push(*byte),
                }
            }
            line.extend(b" rw - tmpfs tmpfs rw");
            let mount = parse(&line).pop().unwrap();
            prop_assert_eq!(mount.mount_point.as_os_str().as_bytes(), path);
        }
    }
}
