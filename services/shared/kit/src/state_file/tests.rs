use super::*;
use std::os::unix::fs::PermissionsExt;

#[test]
fn saved_data_is_loaded() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.json");
    for file in [
        StateFile::<Vec<u32>>::new(&path, 1),
        StateFile::new(&path, 1).without_sync(),
    ] {
        file.remove().unwrap();
        file.remove().unwrap();
        assert_eq!(file.load().unwrap(), None);
        file.save(&vec![1, 2]).unwrap();
        assert_eq!(file.load().unwrap(), Some(vec![1, 2]));
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
    assert!(matches!(
        StateFile::<Vec<u32>>::new(&path, 2).load(),
        Err(StateFileError::Version { found: 1, .. })
    ));
    assert_eq!(fs::read_dir(&dir).unwrap().count(), 1, "temporary files");
}

#[tokio::test]
async fn saves_on_a_blocking_thread() {
    let dir = tempfile::tempdir().unwrap();
    let file = StateFile::<Vec<u32>>::new(dir.path().join("x.json"), 1);
    file.save_async(std::sync::Arc::new(vec![1])).await.unwrap();
    file.save_async(vec![2]).await.unwrap();
    assert_eq!(file.load().unwrap(), Some(vec![2]));
    let nowhere = StateFile::<Vec<u32>>::new(dir.path().join("absent/x.json"), 1);
    let failed = nowhere.save_async(vec![2]).await;
    assert!(matches!(failed, Err(StateFileError::Write { .. })));
}

#[test]
fn a_corrupt_file_is_an_error_and_can_be_set_aside() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.json");
    let file = StateFile::<Vec<u32>>::new(&path, 1);
    for text in ["", "{", "{\"version\":1}", "{\"version\":1,\"data\":{}}"] {
        fs::write(&path, text).unwrap();
        let loaded = file.load();
        assert!(
            matches!(loaded, Err(StateFileError::Corrupt { .. })),
            "{text}"
        );
    }
    assert!(file.set_aside().unwrap().ends_with("x.json.broken"));
    assert_eq!(file.load().unwrap(), None);
    let restore = || file.restore("starting without it").unwrap();
    assert_eq!(restore(), None);
    fs::write(&path, "{").unwrap();
    assert_eq!(restore(), None);
    assert!(!path.exists() && dir.path().join("x.json.broken").exists());
    file.save(&vec![3]).unwrap();
    assert_eq!(restore(), Some(vec![3]));
}

#[test]
fn a_file_of_an_older_build_is_set_aside_and_one_of_a_newer_build_stays() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.json");
    let file = |version| StateFile::<Vec<u32>>::new(&path, version);
    file(2).save(&vec![1]).unwrap();
    let refused = file(1).restore("losing it").unwrap_err();
    assert!(matches!(refused, StateFileError::NewerVersion { .. }));
    assert!(refused.to_string().contains("written by a newer build"));
    assert_eq!(file(2).restore("").unwrap(), Some(vec![1]));
    assert_eq!(file(3).restore("losing it").unwrap(), None);
    assert!(dir.path().join("x.json.broken").exists());
}

#[test]
fn a_file_that_cannot_be_read_stays_and_is_read_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.json");
    fs::create_dir(&path).unwrap();
    let file = StateFile::<Vec<u32>>::new(&path, 1);
    let refused = file.restore("losing it");
    assert!(matches!(refused, Err(StateFileError::Read { .. })));
    assert!(path.exists(), "not set aside");
    for (errno, failures, expected) in [(5, 2, true), (24, 3, true), (5, 4, false)] {
        let mut attempts = 0;
        let read = with_retry(|| {
            attempts += 1;
            let source = std::io::Error::from_raw_os_error(errno);
            let path = path.clone();
            (attempts > failures)
                .then_some(())
                .ok_or(StateFileError::Read { path, source })
        });
        assert_eq!(read.is_ok(), expected, "errno {errno}, {failures} failures");
        assert_eq!(attempts, 4.min(failures + 1));
    }
}
