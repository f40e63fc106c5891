//! Rules on the mount table.

use std::path::Path;

use polylet_machine::mountinfo::Mount;

/// File systems of the kernel and of memory, which wait for nothing.
const KERNEL: &[&str] = &[
    "bpf",
    "cgroup",
    "cgroup2",
    "configfs",
    "debugfs",
    "devpts",
    "devtmpfs",
    "hugetlbfs",
    "mqueue",
    "proc",
    "pstore",
    "ramfs",
    "securityfs",
    "sysfs",
    "tmpfs",
    "tracefs",
];

/// File systems of a server, whose unmount can be forced.
const REMOTE: &[&str] = &["9p", "ceph", "cifs", "nfs", "nfs4", "smb3"];

/// Whether the mount is in memory.
pub fn is_memory(mount: &Mount) -> bool {
    ["hugetlbfs", "ramfs", "tmpfs"].contains(&mount.fs_type.as_str())
}

/// Whether unmounting it writes nothing: it is in memory, or the node's own file system, which stays
/// mounted elsewhere.
pub fn unmounts_at_once(mounts: &[Mount], mount: &Mount) -> bool {
    let of_node = |node: &Mount| node.device == mount.device && !is_remote(mount);
    is_memory(mount) || node_mount(mounts).is_some_and(of_node)
}

/// The mount of the node's own file system.
fn node_mount(mounts: &[Mount]) -> Option<&Mount> {
    let mut from_last = mounts.iter().rev();
    from_last.find(|mount| mount.mount_point == Path::new("/"))
}

/// Whether the mount is of a server, and its unmount can be forced.
pub fn is_remote(mount: &Mount) -> bool {
    let fs_type = mount.fs_type.as_str();
    REMOTE.contains(&fs_type) || fs_type == "fuse" || fs_type.starts_with("fuse.")
}

/// The mounts at or below `dir`, deepest and latest first: the order in which to unmount them.
pub fn below<'a>(mounts: &'a [Mount], dir: &Path) -> Vec<&'a Mount> {
    let mut below: Vec<_> = mounts
        .iter()
        .filter(|m| m.mount_point.starts_with(dir))
        .collect();
    below.reverse();
    below.sort_by_key(|m| std::cmp::Reverse(m.mount_point.components().count()));
    below
}

/// The other mounts of the directory `path`, which is a mount itself or below one.
pub fn other_mounts<'a>(mounts: &'a [Mount], path: &Path) -> Vec<&'a Mount> {
    let on_the_way = mounts
        .iter()
        .filter(|mount| path.starts_with(&mount.mount_point));
    // Of several mounts at one mount point, the last is on top.
    let Some(top) = on_the_way.max_by_key(|mount| mount.mount_point.components().count()) else {
        return Vec::new();
    };
    let within = path.strip_prefix(&top.mount_point).unwrap_or(Path::new(""));
    let root = match within == Path::new("") {
        true => top.root.clone(),
        false => top.root.join(within),
    };
    let same = |mount: &&Mount| {
        mount.mount_point != path && mount.device == top.device && mount.root == root
    };
    mounts.iter().filter(same).collect()
}

/// The mount of `path`, if no file system on the way to it can hang: those of the kernel, and that of
/// the node itself. A disk of its own may be one of the network.
pub fn local_mount<'a>(mounts: &'a [Mount], path: &Path) -> Option<&'a Mount> {
    let node = node_mount(mounts)?;
    let is_local = |m: &Mount| {
        KERNEL.contains(&m.fs_type.as_str()) || (m.device == node.device && !is_remote(m))
    };
    let on_the_way = || mounts.iter().filter(|m| path.starts_with(&m.mount_point));
    if !on_the_way().all(is_local) {
        return None;
    }
    on_the_way().max_by_key(|m| m.mount_point.components().count())
}

/// What makes mounts below a directory propagate to containers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Share {
    /// Nothing: it is in a shared mount.
    Already,
    /// Make the directory, which is a mount point, shared.
    Mount,
    /// Bind the directory to itself first, and make that shared.
    Directory,
    /// Not possible: a bind mount would hide the mounts below it.
    TooLate,
}

/// How to make mounts below `dir` propagate.
pub fn share(mounts: &[Mount], dir: &Path) -> Share {
    let on_the_way = mounts.iter().filter(|m| dir.starts_with(&m.mount_point));
    // Of several mounts at one mount point, the last is on top.
    let Some(last) = on_the_way.max_by_key(|m| m.mount_point.components().count()) else {
        return Share::Directory;
    };
    if last.shared {
        Share::Already
    } else if last.mount_point == dir {
        Share::Mount
    } else if below(mounts, dir).is_empty() {
        Share::Directory
    } else {
        Share::TooLate
    }
}

#[cfg(test)]
mod tests {
    use polylet_machine::mountinfo::parse;

    use super::*;

    const TABLE: &[u8] = b"22 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n\
        30 22 0:25 / /a\\040b rw shared:1 master:2 - tmpfs tmpfs rw,size=4k\n\
        31 30 0:26 / /a\\040b/c rw - nfs4 srv:/x rw\n\
        junk\n";

    #[test]
    fn mounts_below_a_directory_are_listed_deepest_first() {
        let mounts = parse(TABLE);
        let below = below(&mounts, Path::new("/a b"));
        let types: Vec<_> = below.iter().map(|mount| &mount.fs_type).collect();
        assert_eq!(types, ["nfs4", "tmpfs"]);
    }

    #[test]
    fn sharing_depends_on_the_mount_of_the_directory() {
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
    fn finds_other_mounts_of_a_directory() {
        let table = [
            "22 1 254:0 / / rw - ext4 /dev/vda rw",
            "30 22 254:0 /disk /pods/a rw - ext4 /dev/vda rw",
            "31 22 254:0 /disk/x /pods/b rw - ext4 /dev/vda rw",
            "32 22 7:0 / /mounts/pv rw - ext4 /dev/loop0 rw",
            "33 22 7:0 / /pods/c rw - ext4 /dev/loop0 rw",
        ];
        let mounts = parse(table.join("\n").as_bytes());
        let other = |path| {
            let all = other_mounts(&mounts, Path::new(path));
            all.iter()
                .map(|m| m.mount_point.to_str().unwrap())
                .collect::<Vec<_>>()
        };
        assert_eq!(other("/disk"), ["/pods/a"]);
        assert_eq!(other("/disk/x"), ["/pods/b"]);
        assert_eq!(other("/mounts/pv"), ["/pods/c"]);
        assert_eq!(other("/mounts/pv/x"), Vec::<&str>::new());
    }

    #[test]
    fn only_mounts_that_write_nothing_are_unmounted_at_once() {
        let table = [
            TABLE,
            b"32 22 254:0 /pods/x /sub rw - ext4 /dev/vda rw\n33 22 8:1 / /disk rw - ext4 /dev/sda rw\n",
        ];
        let mounts = parse(&table.concat());
        let at_once = |path: &str| {
            let mount = mounts.iter().find(|m| m.mount_point == Path::new(path));
            unmounts_at_once(&mounts, mount.unwrap())
        };
        assert!(at_once("/a b") && at_once("/sub"));
        assert!(!at_once("/disk") && !at_once("/a b/c"));
    }

    #[test]
    fn a_path_below_a_network_mount_is_not_local() {
        let mounts = parse(TABLE);
        let fs_type = |path| local_mount(&mounts, Path::new(path)).map(|m| m.fs_type.as_str());
        assert_eq!(fs_type("/etc/x"), Some("ext4"));
        assert_eq!(fs_type("/a b/x"), Some("tmpfs"));
        assert_eq!(fs_type("/a b/c/x"), None);
    }
}
