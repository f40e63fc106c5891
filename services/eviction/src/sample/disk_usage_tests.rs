use std::fs;

use polylet_harness::HungFuse;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use super::*;

const MIB: usize = 1 << 20;

fn measure(base: &Path, paths: &[&str], budget: Duration) -> PodDiskUsage {
    let task = DiskUsageTask {
        purpose: "test".to_owned(),
        budget,
        pods: vec![PodPaths {
            uid: "u".to_owned(),
            paths: paths
                .iter()
                .map(|path| (base.to_owned(), path.into()))
                .collect(),
        }],
    };
    task.run(&mut TaskProgress::none()).remove("u").unwrap()
}

const LONG: Duration = Duration::from_secs(60);

#[test]
fn paths_are_measured_in_order_and_absent_ones_are_empty() {
    let temp = tempfile::tempdir().unwrap();
    fs::create_dir(temp.path().join("a")).unwrap();
    fs::write(temp.path().join("a/f"), vec![0; MIB]).unwrap();
    fs::write(temp.path().join("hosts"), "127.0.0.1").unwrap();
    std::os::unix::fs::symlink("/", temp.path().join("link")).unwrap();
    let usage = measure(temp.path(), &["absent", "a", "hosts", "link/etc"], LONG);
    let inodes = |index: usize| usage.paths[index].map(|path| path.usage.inodes);
    assert_eq!(
        [inodes(0), inodes(1), inodes(2)],
        [Some(0), Some(2), Some(1)]
    );
    // A link on the way is not followed.
    assert_eq!(usage.paths[3], None);
    assert!(usage.paths[1].unwrap().usage.bytes >= MIB as u64);
}

#[test]
fn what_the_budget_does_not_reach_is_unknown_or_incomplete() {
    let temp = tempfile::tempdir().unwrap();
    for name in ["a", "b"] {
        fs::create_dir(temp.path().join(name)).unwrap();
        fs::write(temp.path().join(name).join("f"), "").unwrap();
    }
    let usage = measure(temp.path(), &["a", "b"], Duration::ZERO);
    let first = usage.paths[0].unwrap();
    assert!(first.incomplete && first.usage.inodes == 1, "{first:?}");
    assert_eq!(usage.paths[1], None);
}

#[test]
fn a_slice_ends_with_its_time() {
    let temp = tempfile::tempdir().unwrap();
    fs::create_dir(temp.path().join("a")).unwrap();
    fs::write(temp.path().join("a/f"), "").unwrap();
    fs::write(temp.path().join("hosts"), "").unwrap();
    let mut pod = PodMeasurement::new(PodPaths {
        uid: "u".to_owned(),
        paths: ["hosts", "a"]
            .map(|path| (temp.path().to_owned(), path.into()))
            .into(),
    });
    let (mut bases, mut mounts) = (Bases::default(), MountTypes::default());
    let until = Instant::now() + LONG;
    let mut advance = |end| pod.advance(&mut bases, &mut mounts, end, until);
    // After the file, and within the directory.
    assert!(!advance(Instant::now()) && !advance(Instant::now()));
    assert!(advance(until));
    let (_, usage) = pod.finish();
    let inodes = |path: &Option<PathUsage>| path.filter(|p| !p.incomplete).map(|p| p.usage.inodes);
    let inodes: Vec<_> = usage.paths.iter().map(inodes).collect();
    assert_eq!(inodes, [Some(1), Some(2)]);
}

#[test]
fn volumes_in_memory_are_measured_and_dead_mounts_are_not_touched() {
    if !HungFuse::is_available() {
        println!("skipped: mounting FUSE needs root and /dev/fuse");
        return;
    }
    let temp = tempfile::tempdir().unwrap();
    for name in ["scratch/mnt", "memory", "data"] {
        fs::create_dir_all(temp.path().join(name)).unwrap();
    }
    fs::write(temp.path().join("scratch/f"), vec![0; MIB]).unwrap();
    let memory = temp.path().join("memory");
    mount("tmpfs", &memory, "tmpfs", MountFlags::empty(), None).unwrap();
    fs::write(memory.join("f"), vec![0; MIB]).unwrap();
    // In a volume of a pod, and as a volume.
    let _inside = HungFuse::mount_unkillable(&temp.path().join("scratch/mnt")).unwrap();
    let _volume = HungFuse::mount(&temp.path().join("data")).unwrap();
    let base = temp.path().to_owned();
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || sender.send(measure(&base, &["scratch", "memory", "data"], LONG)));
    let usage = receiver.recv_timeout(LONG).expect("an answer");
    unmount(&memory, UnmountFlags::DETACH).unwrap();
    let [scratch, memory, data] = usage.paths[..] else {
        panic!("{usage:?}")
    };
    // Without the directory that is covered.
    assert_eq!(scratch.unwrap().usage.inodes, 2);
    let memory = memory.unwrap();
    assert_eq!(memory.usage.inodes, 2);
    assert!(memory.usage.bytes >= MIB as u64 && memory.memory.is_some());
    assert!(data.unwrap().is_mount);
}
