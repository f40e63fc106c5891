//! Records of image pulls across processes, pulls and removals of images.

use super::*;
use crate::core::credentials::verify::{ImageAccess, ImagePullSecret, image_access};

#[tokio::test]
async fn records_are_restored() {
    let root = tempfile::tempdir().unwrap();
    let records = Rc::new(PullRecords::open(root.path()).unwrap());
    let pending = records.record_intent("r.example/a:1").await.unwrap();
    assert!(records.is_pending("r.example/a:1"));
    // The process dies here, during a pull.
    let next = Rc::new(PullRecords::open(root.path()).unwrap());
    assert!(next.is_pending("r.example/a:1"));
    drop(pending);
    assert!(!records.is_pending("r.example/a:1"));
    assert!(
        !PullRecords::open(root.path())
            .unwrap()
            .is_pending("r.example/a:1")
    );

    let access = Some(ImagePullCredentials::from_pull(None));
    records
        .record_pulled("id", "r.example/a:1", access)
        .await
        .unwrap();
    let next = PullRecords::open(root.path()).unwrap();
    assert_eq!(
        image_access(next.get("id").as_ref(), "r.example/a:1"),
        ImageAccess::AnyPod
    );
}

#[tokio::test]
async fn intent_stays_until_all_pulls_have_finished() {
    let root = tempfile::tempdir().unwrap();
    let records = Rc::new(PullRecords::open(root.path()).unwrap());
    let one = records.record_intent("r/a").await.unwrap();
    let two = records.record_intent("r/a").await.unwrap();
    drop(one);
    assert!(records.is_pending("r/a"));
    drop(two);
    assert!(!records.is_pending("r/a"));
    records.record_intent("r/a").await.unwrap().keep();
    assert!(PullRecords::open(root.path()).unwrap().is_pending("r/a"));
}

#[tokio::test]
async fn concurrent_pulls_share_an_intent() {
    let root = tempfile::tempdir().unwrap();
    let records = Rc::new(PullRecords::open(root.path()).unwrap());
    let file = records.pulling.join(file_name("r.example/a:1"));
    for _ in 0..20 {
        let all = (0..8).map(|_| records.record_intent("r.example/a:1"));
        let all = futures::future::join_all(all).await;
        assert!(all.iter().all(Result::is_ok));
        assert!(file.is_file());
        drop(all);
        assert!(!file.exists());
    }
}

const IMAGE: &str = "r.example/a:1";

fn anonymous() -> Option<ImagePullCredentials> {
    Some(ImagePullCredentials::from_pull(None))
}

fn listed(id: &str) -> Vec<v1::Image> {
    vec![v1::Image {
        id: id.to_owned(),
        ..v1::Image::default()
    }]
}

#[tokio::test]
async fn records_are_removed_with_their_images() {
    let root = tempfile::tempdir().unwrap();
    let records = PullRecords::open(root.path()).unwrap();
    let file = records.pulled.join(file_name("id"));
    let before = Timestamp::now();
    let recorded = records.record_pulled("id", IMAGE, anonymous()).await;
    recorded.unwrap();
    // It was pulled after the list.
    records.prune(&[], before).await;
    assert!(records.get("id").is_some() && file.is_file());
    records.prune(&listed("id"), Timestamp::now()).await;
    assert!(records.get("id").is_some() && file.is_file());
    records.prune(&listed("other"), Timestamp::now()).await;
    assert!(records.get("id").is_none() && !file.exists());

    // The repository has become private meanwhile.
    let secret = ImagePullSecret {
        namespace: "ns".into(),
        name: "s".into(),
        uid: "u".into(),
        credential_hash: "h".into(),
    };
    let access = ImagePullCredentials {
        kubernetes_secrets: vec![secret.clone()],
        ..ImagePullCredentials::default()
    };
    let recorded = records.record_pulled("id", IMAGE, Some(access)).await;
    recorded.unwrap();
    assert_eq!(
        image_access(records.get("id").as_ref(), IMAGE),
        ImageAccess::Restricted(vec![secret], Vec::new())
    );
}

/// Records, of which those of the image `id` and the intents to pull `IMAGE` are unreadable.
fn unreadable(root: &Path) -> Rc<PullRecords> {
    for (dir, name) in [("pulled", "id"), ("pulling", IMAGE)] {
        let dir = root.join("image_manager").join(dir);
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join(file_name(name)), "{").unwrap();
        fs::write(dir.join("other"), "{").unwrap();
    }
    Rc::new(PullRecords::open(root).unwrap())
}

#[tokio::test]
async fn an_unreadable_record_counts_until_its_image_is_pulled_or_removed() {
    let root = tempfile::tempdir().unwrap();
    let records = unreadable(root.path());
    assert!(records.get("id").is_none() && !records.is_pending(IMAGE));
    assert!(records.is_unreadable("id", "r.example/b:1"));
    assert!(records.is_unreadable("preloaded", IMAGE));
    assert!(!records.is_unreadable("preloaded", "r.example/b:1"));

    let pending = records.record_intent(IMAGE).await.unwrap();
    let intent = records.pulling.join(file_name(IMAGE));
    assert!(serde_json::from_slice::<Intent>(&fs::read(intent).unwrap()).is_ok());
    let recorded = records.record_pulled("id", IMAGE, anonymous()).await;
    recorded.unwrap();
    drop(pending);
    for records in [records, Rc::new(PullRecords::open(root.path()).unwrap())] {
        assert!(!records.is_unreadable("id", IMAGE));
        assert!(records.get("id").is_some() && !records.is_pending(IMAGE));
    }

    let root = tempfile::tempdir().unwrap();
    let records = unreadable(root.path());
    let file = records.pulled.join(file_name("id"));
    records.prune(&listed("id"), Timestamp::now()).await;
    assert!(records.is_unreadable("id", "r.example/b:1") && file.is_file());
    records.prune(&[], Timestamp::now()).await;
    assert!(!records.is_unreadable("id", "r.example/b:1") && !file.exists());
}
