//! The memory of a walk does not depend on what a directory holds.

use std::ffi::CString;
use std::fs;

use polylet_walk::{Budget, Progress, measure, open_root, remove_tree};
use rustix::fs::{AtFlags, linkat};

/// Names of one directory. Half of them are names of one file, half of a file each.
const NAMES: u64 = 200_000;
/// What the walk may take; a listing of these names takes ten times as much.
const BOUND_KIB: u64 = 4096;

/// The most memory that was ever resident.
fn peak_kib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmHWM"))
        .unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn many_names_are_measured_and_removed_in_bounded_memory() {
    // In memory where there is such a directory: on a disk it takes longer, and files have fewer names.
    let temp = tempfile::tempdir_in("/dev/shm")
        .or_else(|_| tempfile::tempdir())
        .unwrap();
    let tree = temp.path().join("t");
    fs::create_dir(&tree).unwrap();
    let top = open_root(&tree).unwrap();
    fs::write(tree.join("file"), "").unwrap();
    for number in 0..NAMES / 2 {
        fs::File::create(tree.join(format!("a-longer-name-of-a-file-{number}"))).unwrap();
        let name = CString::new(format!("a-longer-name-of-a-link-{number}")).unwrap();
        if linkat(&top, c"file", &top, &name, AtFlags::empty()).is_err() {
            // The file has as many names as the file system allows.
            fs::remove_file(tree.join("file")).unwrap();
            fs::write(tree.join("file"), "").unwrap();
        }
    }
    let root = open_root(temp.path()).unwrap();
    let before = peak_kib();
    let measured = measure(&top, &mut Budget::unlimited()).unwrap();
    assert!(measured.usage.inodes > NAMES / 2, "{measured:?}");
    assert_eq!(measured.progress, Progress::Finished);
    let removed = remove_tree(&root, c"t", &mut Budget::unlimited()).unwrap();
    assert_eq!(removed, Progress::Finished);
    let grown = peak_kib() - before;
    assert!(grown < BOUND_KIB, "{grown} KiB");
    assert!(!tree.exists());
}
