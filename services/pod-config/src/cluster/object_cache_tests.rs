use polylet_kit::CancellationToken;

use super::*;

const SECRET: &str = "aHVudGVyMg==";

fn id(kind: &str) -> ObjectId {
    ObjectId {
        kind: kind.to_owned(),
        namespace: "default".to_owned(),
        name: "a".to_owned(),
    }
}

/// Starts with the state on disk, hears of two objects, and stops.
async fn run(path: &std::path::Path, keep_secrets: KeepSecrets, events: bool) -> Vec<ObjectId> {
    let log = KeyedLog::new(path.to_owned());
    let cache = ObjectCache::load(log.clone(), keep_secrets, ObjectReferences::default());
    let loaded = cache.lock().keys().cloned().collect();
    if events {
        for kind in ["ConfigMap", "Secret"] {
            let manifest = format!(r#"{{"data":{{"k":"{SECRET}","kind":"{kind}"}}}}"#);
            cache.set(&id(kind), Some(&manifest.into()));
        }
    }
    let drain = CancellationToken::new();
    drain.cancel();
    log.run(cache, drain).await;
    loaded
}

#[tokio::test]
async fn secrets_are_kept_off_the_disk_as_configured() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("objects.json");
    let both = [id("ConfigMap"), id("Secret")];
    let text = || std::fs::read_to_string(&path).unwrap();
    assert_eq!(run(&path, KeepSecrets::Disk, true).await, []);
    assert_eq!(run(&path, KeepSecrets::Disk, false).await, both);

    // With the change of the configuration, those on disk go, without any event.
    let loaded = run(&path, KeepSecrets::Memory, false).await;
    assert_eq!(loaded, [id("ConfigMap")]);
    assert!(
        text().contains("ConfigMap") && !text().contains("Secret"),
        "{}",
        text()
    );
    run(&path, KeepSecrets::Memory, true).await;
    assert!(!text().contains("Secret"), "{}", text());
}

#[tokio::test]
async fn loaded_claims_name_their_volumes() {
    let dir = tempfile::tempdir().unwrap();
    let load = || {
        let references = ObjectReferences::default();
        let log = KeyedLog::new(dir.path().join("objects.json"));
        let cache = ObjectCache::load(log.clone(), KeepSecrets::Disk, references.clone());
        (log, cache, references)
    };
    let (log, cache, references) = load();
    let claim = id("PersistentVolumeClaim");
    let volume = ObjectId {
        namespace: String::new(),
        ..id("PersistentVolume")
    };
    assert!(!references.contains(&volume));
    let manifest = br#"{"spec":{"volumeName":"a"}}"#;
    cache.set(&claim, Some(&manifest[..].into()));
    assert!(references.contains(&volume));
    let drain = CancellationToken::new();
    drain.cancel();
    log.run(cache, drain).await;

    let (_, cache, references) = load();
    assert!(references.contains(&volume));
    cache.set(&claim, None);
    assert!(!references.contains(&volume));
}
