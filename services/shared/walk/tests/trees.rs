//! Trees that a pod can write: deep, linked, renamed while they are walked, with mounts in them.

use std::cell::RefCell;
use std::ffi::CStr;
use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;

use polylet_walk::{
    Budget, Descent, Progress, VisitedEntry, Visitor, Walk, WalkError, measure, open_dir,
    open_root, remove_tree,
};
use rustix::fs::{Mode, OFlags, mkdirat, openat};
use rustix::mount::{MountFlags, UnmountFlags, mount, mount_bind, unmount};

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY);
/// More than any path is long.
const DEPTH: usize = 6_000;

/// Makes a chain of directories named `d`, with a file in each.
fn make_chain(root: &OwnedFd, depth: usize) {
    let mut dir = openat(root, c".", DIRECTORY, Mode::empty()).unwrap();
    for _ in 0..depth {
        mkdirat(&dir, c"d", Mode::from_raw_mode(0o755)).unwrap();
        dir = openat(&dir, c"d", DIRECTORY, Mode::empty()).unwrap();
        let flags = OFlags::CREATE | OFlags::WRONLY;
        openat(&dir, c"f", flags, Mode::from_raw_mode(0o600)).unwrap();
    }
}

fn remove_all(root: &OwnedFd, name: &CStr) -> Result<Progress, WalkError> {
    remove_tree(root, name, &mut Budget::unlimited())
}

#[test]
fn trees_deeper_than_a_path_are_measured_and_removed() {
    let temp = tempfile::tempdir().unwrap();
    fs::create_dir(temp.path().join("t")).unwrap();
    let root = open_root(temp.path()).unwrap();
    let top = open_dir(&root, c"t").unwrap();
    make_chain(&top, DEPTH);
    let measured = measure(&top, &mut Budget::unlimited()).unwrap();
    assert_eq!(measured.usage.inodes, 2 * DEPTH as u64 + 1);
    assert_eq!(
        (measured.unreadable, measured.progress),
        (0, Progress::Finished)
    );
    assert_eq!(remove_all(&root, c"t").unwrap(), Progress::Finished);
    assert!(!temp.path().join("t").exists());
}

#[test]
fn files_with_several_names_count_once() {
    let temp = tempfile::tempdir().unwrap();
    fs::write(temp.path().join("a"), vec![0_u8; 8192]).unwrap();
    let root = open_root(temp.path()).unwrap();
    let single = measure(&root, &mut Budget::unlimited()).unwrap().usage;
    assert!(single.bytes >= 8192);
    assert_eq!(single.inodes, 2);
    for name in ["b", "c"] {
        fs::hard_link(temp.path().join("a"), temp.path().join(name)).unwrap();
    }
    assert_eq!(
        measure(&root, &mut Budget::unlimited()).unwrap().usage,
        single
    );
}

#[test]
fn links_are_not_followed() {
    let temp = tempfile::tempdir().unwrap();
    let outside = temp.path().join("outside");
    let tree = temp.path().join("t");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("keep"), vec![0_u8; 1 << 20]).unwrap();
    fs::create_dir(&tree).unwrap();
    symlink(&outside, tree.join("link")).unwrap();
    symlink("/", tree.join("root")).unwrap();
    let root = open_root(temp.path()).unwrap();
    assert!(open_dir(&root, c"t/link").is_err());
    let top = open_dir(&root, c"t").unwrap();
    let usage = measure(&top, &mut Budget::unlimited()).unwrap().usage;
    assert_eq!(usage.inodes, 3);
    assert!(usage.bytes < 1 << 20);
    remove_all(&root, c"t").unwrap();
    assert!(outside.join("keep").exists() && !tree.exists());
}

/// Replaces a directory by a link to `outside` between its listing and its visit.
struct Swapper<'a> {
    tree: &'a Path,
    outside: &'a Path,
    visited: RefCell<Vec<u64>>,
}

impl Visitor for Swapper<'_> {
    fn enter(&mut self, dir: &VisitedEntry<'_>) -> io::Result<Descent> {
        let name = dir.name().to_str().unwrap();
        fs::rename(
            self.tree.join(name),
            self.tree.join(format!("moved-{name}")),
        )?;
        symlink(self.outside, self.tree.join(name))?;
        Ok(Descent::Enter)
    }

    fn visit(&mut self, entry: &VisitedEntry<'_>) -> io::Result<()> {
        self.visited.borrow_mut().push(entry.stat().st_ino);
        if entry.file_type() == rustix::fs::FileType::RegularFile {
            entry.set_mode(0o640)?;
        }
        Ok(())
    }
}

#[test]
fn directories_that_become_links_do_not_lead_outside() {
    let temp = tempfile::tempdir().unwrap();
    let outside = temp.path().join("outside");
    let tree = temp.path().join("t");
    fs::create_dir_all(tree.join("a")).unwrap();
    fs::write(tree.join("a/inside"), "").unwrap();
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("secret"), "").unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o7777;
    let (before, secret) = (mode(&outside.join("secret")), outside.join("secret"));
    let visited = RefCell::default();
    let mut swapper = Swapper {
        tree: &tree,
        outside: &outside,
        visited,
    };
    let mut walk = Walk::new(open_root(&tree).unwrap()).unwrap();
    // Bounded: each directory that is renamed may be met again.
    walk.run(&mut Budget::unlimited().with_steps(20), &mut swapper)
        .unwrap();
    let secret_inode = fs::metadata(&secret).unwrap().ino();
    let visited = swapper.visited.into_inner();
    assert!(!visited.is_empty() && !visited.contains(&secret_inode));
    assert_eq!(mode(&secret), before);
}

/// Moves a deep directory out of the tree when the walk is at its deepest.
struct Mover<'a> {
    depth: usize,
    base: &'a Path,
    files: u64,
    lost: u64,
}

impl Visitor for Mover<'_> {
    fn enter(&mut self, _dir: &VisitedEntry<'_>) -> io::Result<Descent> {
        self.depth += 1;
        if self.depth == 200 {
            let deep: String = (0..100).map(|_| "/d").collect();
            let from = format!("{}/t{deep}", self.base.display());
            fs::rename(from, self.base.join("moved"))?;
        }
        Ok(Descent::Enter)
    }

    fn visit(&mut self, _entry: &VisitedEntry<'_>) -> io::Result<()> {
        self.files += 1;
        Ok(())
    }

    fn skip_failed(&mut self, error: WalkError) -> Result<(), WalkError> {
        assert_eq!(error.to_string(), "returning to the directory above ..");
        self.lost += 1;
        Ok(())
    }
}

#[test]
fn a_walk_never_leaves_its_tree_through_a_moved_directory() {
    let temp = tempfile::tempdir().unwrap();
    fs::create_dir(temp.path().join("t")).unwrap();
    fs::write(temp.path().join("outside"), "").unwrap();
    let top = open_root(&temp.path().join("t")).unwrap();
    make_chain(&top, 200);
    let mut mover = Mover {
        depth: 0,
        base: temp.path(),
        files: 0,
        lost: 0,
    };
    let progress = Walk::new(&top)
        .unwrap()
        .run(&mut Budget::unlimited(), &mut mover);
    assert_eq!(progress.unwrap(), Progress::Finished);
    assert_eq!(mover.lost, 1);
    assert!(mover.files <= 200);
}

#[test]
fn a_paused_walk_is_resumed() {
    let temp = tempfile::tempdir().unwrap();
    let root = open_root(temp.path()).unwrap();
    make_chain(&root, 100);
    for name in 0..300 {
        fs::write(temp.path().join(name.to_string()), "").unwrap();
    }
    let whole = measure(&root, &mut Budget::unlimited()).unwrap().usage;
    let mut counted = polylet_walk::Measurement::default();
    let mut walk = Walk::new(&root).unwrap();
    let mut rounds = 1;
    while walk
        .run(&mut Budget::unlimited().with_steps(7), &mut counted)
        .unwrap()
        == Progress::Paused
    {
        rounds += 1;
    }
    // Without the root itself.
    assert_eq!(counted.usage().inodes, whole.inodes - 1);
    assert!(rounds > 50, "{rounds}");
}

#[test]
fn an_exhausted_budget_still_removes_a_batch() {
    let temp = tempfile::tempdir().unwrap();
    let tree = temp.path().join("t");
    fs::create_dir(&tree).unwrap();
    for name in 0..1000 {
        fs::write(tree.join(name.to_string()), "").unwrap();
    }
    let root = open_root(temp.path()).unwrap();
    let mut left = 1000;
    while tree.exists() {
        let mut none = Budget::unlimited().with_deadline(std::time::Instant::now());
        let progress = remove_tree(&root, c"t", &mut none).unwrap();
        let now = fs::read_dir(&tree).map_or(0, Iterator::count);
        assert!(
            now < left || progress == Progress::Finished,
            "no progress at {left}"
        );
        left = now;
    }
    assert_eq!(left, 0);
}

#[test]
fn removal_of_nothing_succeeds_and_of_a_file_too() {
    let temp = tempfile::tempdir().unwrap();
    let root = open_root(temp.path()).unwrap();
    assert_eq!(remove_all(&root, c"t").unwrap(), Progress::Finished);
    fs::write(temp.path().join("t"), "").unwrap();
    assert_eq!(remove_all(&root, c"t").unwrap(), Progress::Finished);
    assert!(!temp.path().join("t").exists());
}

/// A mount below a directory; unmounted on drop.
struct Mounted(std::path::PathBuf);

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = unmount(&self.0, UnmountFlags::DETACH);
    }
}

fn may_mount() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        println!("skipped: mounting needs root");
    }
    root
}

#[test]
fn mounts_are_neither_entered_nor_removed() {
    if !may_mount() {
        return;
    }
    let temp = tempfile::tempdir().unwrap();
    let tree = temp.path().join("t");
    let outside = temp.path().join("outside");
    for dir in ["t/tmpfs", "t/bind", "t/plain", "outside"] {
        fs::create_dir_all(temp.path().join(dir)).unwrap();
    }
    for file in ["t/file", "t/plain/f", "outside/keep"] {
        fs::write(temp.path().join(file), "").unwrap();
    }
    mount(
        "tmpfs",
        tree.join("tmpfs"),
        "tmpfs",
        MountFlags::empty(),
        None,
    )
    .unwrap();
    let _tmpfs = Mounted(tree.join("tmpfs"));
    fs::write(tree.join("tmpfs/f"), "").unwrap();
    // The same device: only the mount differs.
    mount_bind(&outside, tree.join("bind")).unwrap();
    let _bind = Mounted(tree.join("bind"));
    mount_bind(outside.join("keep"), tree.join("file")).unwrap();
    let _file = Mounted(tree.join("file"));

    let root = open_root(temp.path()).unwrap();
    let top = open_dir(&root, c"t").unwrap();
    let measured = measure(&top, &mut Budget::unlimited()).unwrap();
    assert_eq!((measured.usage.inodes, measured.mounts), (3, 3));
    assert!(polylet_walk::is_mount_point(&top, c"bind").unwrap());
    assert!(!polylet_walk::is_mount_point(&top, c"plain").unwrap());

    let error = remove_all(&root, c"t").unwrap_err();
    assert!(error.is_mount(), "{error}");
    assert!(outside.join("keep").exists() && tree.join("tmpfs/f").exists());
    // Nothing else is left.
    assert!(!tree.join("plain").exists());
    drop((_tmpfs, _bind, _file));
    assert_eq!(remove_all(&root, c"t").unwrap(), Progress::Finished);
    let _ = root.as_fd();
}
