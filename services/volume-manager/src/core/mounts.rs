//! The mount table, as the kernel writes it.

use std::path::{Path, PathBuf};

/// One mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// Where it is.
    pub at: PathBuf,
    /// The file system's device, by its numbers.
    pub device: String,
    /// Which directory of the file system is mounted.
    pub root: PathBuf,
    /// The file system's type.
    pub kind: String,
    /// What is mounted below it, others see, too.
    pub shared: bool,
}

/// Types whose calls end without another machine's or another process's help.
const LOCAL: &[&str] = &[
    "bpf",
    "btrfs",
    "cgroup",
    "cgroup2",
    "configfs",
    "debugfs",
    "devpts",
    "devtmpfs",
    "erofs",
    "ext2",
    "ext3",
    "ext4",
    "f2fs",
    "hugetlbfs",
    "iso9660",
    "mqueue",
    "overlay",
    "proc",
    "pstore",
    "ramfs",
    "securityfs",
    "squashfs",
    "sysfs",
    "tmpfs",
    "tracefs",
    "vfat",
    "xfs",
    "zfs",
];

impl Mount {
    /// Whether a call on it cannot hang on somebody else.
    pub fn is_local(&self) -> bool {
        LOCAL.contains(&self.kind.as_str())
    }
}

/// Reads `/proc/self/mountinfo`; a line that is not understood is left out.
pub fn parse(table: &[u8]) -> Vec<Mount> {
    table.split(|b| *b == b'\n').filter_map(line).collect()
}

fn line(line: &[u8]) -> Option<Mount> {
    let mut words = line.split(|b| *b == b' ');
    let device = String::from_utf8_lossy(words.nth(2)?).into_owned();
    let root = path(&unescape(words.next()?));
    let at = path(&unescape(words.next()?));
    // Any number of optional fields ends with a lone dash.
    let mut shared = false;
    let _options = words.next()?;
    words.find(|word| {
        shared |= word.starts_with(b"shared:");
        *word == b"-"
    })?;
    let kind = String::from_utf8_lossy(words.next()?).into_owned();
    Some(Mount {
        at,
        device,
        root,
        kind,
        shared,
    })
}

fn path(bytes: &[u8]) -> PathBuf {
    use std::os::unix::ffi::OsStrExt;
    PathBuf::from(std::ffi::OsStr::from_bytes(bytes))
}

/// Space, tab, newline and backslash are written as a backslash and three octal digits.
fn unescape(word: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(word.len());
    let mut rest = word;
    while let Some((first, tail)) = rest.split_first() {
        let octal = (*first == b'\\').then(|| tail.get(..3)).flatten();
        let value = octal.and_then(|digits| {
            let digits = std::str::from_utf8(digits).ok()?;
            u8::from_str_radix(digits, 8).ok()
        });
        match value {
            Some(value) => {
                out.push(value);
                rest = &tail[3..];
            }
            None => {
                out.push(*first);
                rest = tail;
            }
        }
    }
    out
}

/// The mounts at or below `dir`, deepest and latest first: the order in which they can be undone.
pub fn below<'a>(mounts: &'a [Mount], dir: &Path) -> Vec<&'a Mount> {
    let mut found: Vec<_> = mounts.iter().filter(|m| m.at.starts_with(dir)).collect();
    found.reverse();
    found.sort_by_key(|m| std::cmp::Reverse(m.at.components().count()));
    found
}

/// Other places where the same directory is mounted, be it a mount itself or lie below one.
pub fn elsewhere<'a>(mounts: &'a [Mount], path: &Path) -> Vec<&'a Mount> {
    let on_the_way = mounts.iter().filter(|mount| path.starts_with(&mount.at));
    // Of several at one place the last is on top.
    let Some(of) = on_the_way.max_by_key(|mount| mount.at.components().count()) else {
        return Vec::new();
    };
    let within = path.strip_prefix(&of.at).unwrap_or(Path::new(""));
    let root = match within == Path::new("") {
        true => of.root.clone(),
        false => of.root.join(within),
    };
    let same = |mount: &&Mount| mount.at != path && mount.device == of.device && mount.root == root;
    mounts.iter().filter(same).collect()
}

/// Whether walking to `path` passes through local file systems only, as far as the table tells;
/// and the last mount on the way.
pub fn local_way<'a>(mounts: &'a [Mount], path: &Path) -> Option<&'a Mount> {
    let on_the_way = || mounts.iter().filter(|m| path.starts_with(&m.at));
    if !on_the_way().all(Mount::is_local) {
        return None;
    }
    on_the_way().max_by_key(|m| m.at.components().count())
}

/// What makes mounts below a directory reach containers that ask for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Share {
    /// They do.
    Already,
    /// The directory is a mount, which must be shared.
    Mount,
    /// It must be made one first.
    Directory,
    /// Mounts below it would be hidden by that.
    TooLate,
}

/// How mounts below `dir` come to be shared.
pub fn share(mounts: &[Mount], dir: &Path) -> Share {
    let on_the_way = mounts.iter().filter(|m| dir.starts_with(&m.at));
    // Of several at one place the last is on top.
    let Some(last) = on_the_way.max_by_key(|m| m.at.components().count()) else {
        return Share::Directory;
    };
    if last.shared {
        Share::Already
    } else if last.at == dir {
        Share::Mount
    } else if below(mounts, dir).is_empty() {
        Share::Directory
    } else {
        Share::TooLate
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TABLE: &[u8] = b"22 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n\
        30 22 0:25 / /a\\040b rw shared:1 master:2 - tmpfs tmpfs rw,size=4k\n\
        31 30 0:26 / /a\\040b/c rw - nfs4 srv:/x rw\n\
        junk\n";

    #[test]
    fn reads_what_the_kernel_writes() {
        let mounts = parse(TABLE);
        assert_eq!(mounts.len(), 3);
        assert_eq!(mounts[1].at, Path::new("/a b"));
        assert_eq!(mounts[2].kind, "nfs4");
        let below: Vec<_> = below(&mounts, Path::new("/a b"))
            .iter()
            .map(|m| &m.kind)
            .collect();
        assert_eq!(below, ["nfs4", "tmpfs"]);
    }

    #[test]
    fn a_directory_is_shared_in_time() {
        let mounts = parse(TABLE);
        let share = |path| share(&mounts, Path::new(path));
        assert_eq!(share("/a b"), Share::Already);
        assert_eq!(share("/a b/c"), Share::Mount);
        assert_eq!(share("/root"), Share::Directory);
        assert_eq!(share("/"), Share::Mount);
        let table = [TABLE, b"32 22 0:27 / /root/x rw - tmpfs tmpfs rw\n"].concat();
        let mounts = parse(&table);
        assert_eq!(super::share(&mounts, Path::new("/root")), Share::TooLate);
        assert_eq!(super::share(&mounts, Path::new("/roo")), Share::Directory);
        assert_eq!(super::share(&[], Path::new("/root")), Share::Directory);
    }

    #[test]
    fn the_same_directory_is_found_elsewhere() {
        let table = [
            "22 1 254:0 / / rw - ext4 /dev/vda rw",
            "30 22 254:0 /disk /pods/a rw - ext4 /dev/vda rw",
            "31 22 254:0 /disk/x /pods/b rw - ext4 /dev/vda rw",
            "32 22 7:0 / /mounts/pv rw - ext4 /dev/loop0 rw",
            "33 22 7:0 / /pods/c rw - ext4 /dev/loop0 rw",
        ];
        let mounts = parse(table.join("\n").as_bytes());
        let at = |path| {
            let all = elsewhere(&mounts, Path::new(path));
            all.iter()
                .map(|m| m.at.to_str().unwrap())
                .collect::<Vec<_>>()
        };
        assert_eq!(at("/disk"), ["/pods/a"]);
        assert_eq!(at("/disk/x"), ["/pods/b"]);
        assert_eq!(at("/mounts/pv"), ["/pods/c"]);
        assert_eq!(at("/mounts/pv/x"), Vec::<&str>::new());
    }

    #[test]
    fn a_way_over_the_network_is_not_local() {
        let mounts = parse(TABLE);
        let way = |path| local_way(&mounts, Path::new(path)).map(|m| m.kind.as_str());
        assert_eq!(way("/etc/x"), Some("ext4"));
        assert_eq!(way("/a b/x"), Some("tmpfs"));
        assert_eq!(way("/a b/c/x"), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read(table in proptest::collection::vec(any::<u8>(), 0..200)) {
            parse(&table);
        }
    }
}
