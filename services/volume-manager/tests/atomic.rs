//! The atomic writer under crashes: after any number of changes readers find all old files or all
//! new ones.

use std::collections::BTreeMap;
use std::fs;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;

use polylet_volume_manager::core::builtin::Medium;
use polylet_volume_manager::core::files::{VolumeFile, VolumeFiles};
use polylet_volume_manager::volume::atomic::AtomicWriter;
use polylet_volume_manager::volume::{VolumeError, dir};
use proptest::prelude::*;

type Content = BTreeMap<String, (Vec<u8>, u32)>;

fn files(content: &Content) -> VolumeFiles {
    let file = |(path, (bytes, mode)): (&String, &(Vec<u8>, u32))| {
        (
            path.clone(),
            VolumeFile {
                bytes: bytes.clone().into(),
                mode: *mode,
                uid: None,
            },
        )
    };
    let content = Arc::new(content.iter().map(file).collect());
    VolumeFiles {
        medium: Medium::Disk,
        gid: None,
        content,
    }
}

/// Writes, interrupted after `steps` changes; returns whether the content has changed if it finished.
fn write(path: &Path, content: &Content, steps: usize) -> Option<bool> {
    let opened = dir::open(path).unwrap();
    let mut left = steps;
    let mut before_change = || {
        left = left.checked_sub(1).ok_or(VolumeError::Interrupted)?;
        Ok(())
    };
    let dir = opened.as_fd();
    let mut writer = AtomicWriter {
        dir,
        path,
        before_change: &mut before_change,
    };
    match writer.write(&files(content)) {
        Ok(changed) => Some(changed),
        Err(VolumeError::Interrupted) => None,
        Err(error) => panic!("{}", polylet_kit::report(&error)),
    }
}

/// What a reader finds through `..data`.
fn read(path: &Path) -> Content {
    let mut found = Content::new();
    if path.join("..data").exists() {
        collect(&path.join("..data"), "", &mut found);
    }
    found
}

fn collect(dir: &Path, prefix: &str, found: &mut Content) {
    use std::os::unix::fs::PermissionsExt;
    for entry in fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        let name = format!("{prefix}{}", entry.file_name().to_str().unwrap());
        let meta = entry.metadata().unwrap();
        if meta.is_dir() {
            collect(&entry.path(), &format!("{name}/"), found);
        } else {
            let bytes = fs::read(entry.path()).unwrap();
            found.insert(name, (bytes, meta.permissions().mode() & 0o7777));
        }
    }
}

/// Asserts that the visible names lead to the content, and that nothing else is left.
fn assert_complete(path: &Path, content: &Content) {
    for (file, (bytes, _)) in content {
        assert_eq!(&fs::read(path.join(file)).unwrap(), bytes);
    }
    let mut tops: Vec<_> = content
        .keys()
        .filter_map(|path| path.split('/').next())
        .collect();
    tops.dedup();
    let entries = fs::read_dir(path).unwrap().count();
    // `..data` and its directory.
    assert_eq!(
        entries,
        tops.len() + 2,
        "{:?}",
        fs::read_dir(path).unwrap().collect::<Vec<_>>()
    );
}

fn content() -> impl Strategy<Value = Content> {
    let path = prop_oneof![
        Just("a".to_owned()),
        Just("b".to_owned()),
        Just("d/x".to_owned()),
        Just("d/e/y".to_owned()),
    ];
    let bytes = proptest::collection::vec(any::<u8>(), 0..4);
    let mode = prop_oneof![Just(0o644u32), Just(0o400), Just(0o755)];
    proptest::collection::btree_map(path, (bytes, mode), 0..4)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn readers_see_all_old_or_all_new_files(old in content(), new in content(), crashes in proptest::collection::vec(0usize..14, 0..4)) {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path();
        prop_assert_eq!(write(path, &old, usize::MAX), Some(true));
        assert_complete(path, &old);
        for steps in crashes {
            write(path, &new, steps);
            let found = read(path);
            prop_assert!(found == old || found == new, "neither: {:?}", found);
            // Files in both are readable by name at any time.
            for (file, (bytes, _)) in &found {
                if old.contains_key(file) && new.contains_key(file) {
                    prop_assert_eq!(&fs::read(path.join(file)).unwrap(), bytes);
                }
            }
        }
        prop_assert!(write(path, &new, usize::MAX).is_some());
        assert_complete(path, &new);
        // Writing the same again changes nothing.
        prop_assert_eq!(write(path, &new, 0), Some(false));
    }
}

#[test]
fn planted_links_and_pipes_are_replaced_and_not_followed() {
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("v");
    fs::create_dir(&path).unwrap();
    let outside = temp.path().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("k"), "precious").unwrap();
    std::os::unix::fs::symlink("../outside", path.join("..data")).unwrap();
    std::os::unix::fs::symlink("../outside/k", path.join("k")).unwrap();
    std::os::unix::fs::symlink("../outside", path.join("..data_tmp")).unwrap();
    let content = Content::from([("k".to_owned(), (b"new".to_vec(), 0o600))]);
    assert_eq!(write(&path, &content, usize::MAX), Some(true));
    assert_complete(&path, &content);
    assert_eq!(fs::read(outside.join("k")).unwrap(), b"precious");
    // Reading a pipe in place of a file does not block.
    let data = path.join(fs::read_link(path.join("..data")).unwrap());
    fs::remove_file(data.join("k")).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, data.join("k"), 0o600.into()).unwrap();
    assert_eq!(write(&path, &content, usize::MAX), Some(true));
    assert_complete(&path, &content);
}
