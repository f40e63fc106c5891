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
    let load = || file.load_or_set_aside("starting without it");
    assert_eq!(load(), None);
    fs::write(&path, "{").unwrap();
    assert_eq!(load(), None);
    assert!(!path.exists() && dir.path().join("x.json.broken").exists());
    file.save(&vec![3]).unwrap();
    assert_eq!(load(), Some(vec![3]));
}
