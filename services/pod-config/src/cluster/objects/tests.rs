//! How long objects stay in the cache, and when they are requested.

use futures::FutureExt;
use jiff::Timestamp;
use polylet_api::ClientConfig;
use polylet_model::PodUid;
use polylet_wire::podconfig::v1::Pod;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use super::super::request::ApiRequestError;
use super::*;

type State = watch::Receiver<Option<PublishedObject>>;

fn kind() -> ApiKind {
    ApiKind::from_name("Secret").unwrap()
}

fn key(name: &str) -> ObjectId {
    ObjectId {
        kind: "Secret".to_owned(),
        namespace: "ns".to_owned(),
        name: name.to_owned(),
    }
}

fn secret(name: &str, value: &str) -> Value {
    json!({ "metadata": { "name": name }, "immutable": true, "data": { "k": value } })
}

/// A pod whose variables are from these Secrets.
fn pod(uid: &str, secrets: &[&str]) -> (PodUid, Pod) {
    let sources = secrets.iter();
    let sources: Vec<_> = sources
        .map(|name| json!({ "secretRef": { "name": name } }))
        .collect();
    let spec = json!({ "containers": [{ "name": "c", "envFrom": sources }] });
    let manifest = json!({ "metadata": { "namespace": "ns" }, "spec": spec });
    let pod = Pod {
        digest: secrets.concat(),
        manifest: manifest.to_string().into(),
        ..Pod::default()
    };
    (uid.into(), pod)
}

struct TestObjects {
    dir: tempfile::TempDir,
    objects: ObjectWatches,
    queue: ObjectStartQueue,
    pods: PodStores,
}

impl TestObjects {
    /// On a node with these pods.
    fn new(pods: Vec<(PodUid, Pod)>) -> TestObjects {
        let test = TestObjects::unsynced();
        test.pods.replace(pods);
        test
    }

    fn unsynced() -> TestObjects {
        let dir = tempfile::tempdir().unwrap();
        let log = KeyedLog::new(dir.path().join("objects.json"));
        let pods = PodStores::new("1");
        let (objects, queue) = ObjectWatches::new(log, KeepSecrets::Disk, pods.clone());
        TestObjects {
            dir,
            objects,
            queue,
            pods,
        }
    }

    /// Reads a Secret once, as for variables; the grace after that is over at once.
    fn read_once(&mut self, name: &str) {
        let state = self.objects.subscribe(&key(name), kind());
        let (key, kind, entry) = self.queue.try_recv().unwrap();
        let cache = self.objects.cache();
        let mut handler = ObjectHandler::new(&cache, key.clone(), kind, entry.clone());
        handler.set_object(Some(secret(name, "v")));
        assert!(!self.objects.remove_entry(&key, &entry), "it is subscribed");
        drop(state);
        assert!(self.objects.remove_entry(&key, &entry));
    }

    fn is_cached(&self, name: &str) -> bool {
        self.objects.cache.get(&key(name)).is_some()
    }

    fn handle_released(&self) {
        if let Some(released) = self.pods.released_objects().now_or_never() {
            self.objects.remove_released(&released);
        }
    }

    /// Runs the watches with the API server at a port.
    fn run(self, port: u16) -> (ObjectWatches, ConnectionPool, tempfile::TempDir) {
        let path = self.dir.path().join("kubeconfig");
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
             clusters: [{{name: c, cluster: {{server: 'http://127.0.0.1:{port}'}}}}]\n\
             users: [{{name: u, user: {{}}}}]\ncontexts: [{{name: c, context: {{cluster: c, user: u}}}}]\n"
        );
        std::fs::write(&path, text).unwrap();
        let pool = ConnectionPool::new(ClientConfig::new(path, "pod-config"));
        let drain = CancellationToken::new();
        let running = self.objects.clone().run(pool.clone(), self.queue, drain);
        tokio::spawn(running);
        (self.objects, pool, self.dir)
    }
}

/// The value of the Secret, or the error.
async fn value(state: &mut State) -> String {
    let published = timeout(Duration::from_secs(10), state.wait_for(Option::is_some));
    let published = published.await.expect("a state").unwrap().clone();
    match published.unwrap() {
        PublishedObject::Manifest(json) => {
            let secret: Value = serde_json::from_slice(&json).unwrap();
            secret["data"]["k"].as_str().unwrap().to_owned()
        }
        PublishedObject::Absent => "absent".to_owned(),
        PublishedObject::Unknown(_) => "unknown".to_owned(),
    }
}

fn start_outage(pool: &ConnectionPool) {
    let error = ApiRequestError::unreachable("away");
    pool.health.record_failure(&error, Timestamp::now());
}

#[test]
fn objects_that_a_pod_names_outlive_their_watch() {
    for (mut test, stays) in [
        (TestObjects::new(vec![pod("u", &["a"])]), true),
        (TestObjects::new(vec![pod("u", &["b"])]), false),
        (TestObjects::new(Vec::new()), false),
        (TestObjects::unsynced(), true),
    ] {
        test.read_once("a");
        assert_eq!(test.is_cached("a"), stays);
    }
}

#[test]
fn objects_go_with_the_last_pod_that_names_them() {
    let mut test = TestObjects::new(vec![pod("u", &["a", "b"]), pod("v", &["a"])]);
    test.read_once("a");
    test.read_once("b");
    let cached = |test: &TestObjects| {
        test.handle_released();
        (test.is_cached("a"), test.is_cached("b"))
    };
    let (uid, changed) = pod("u", &["a"]);
    test.pods.upsert(uid.clone(), changed);
    assert_eq!(cached(&test), (true, false), "the manifest has changed");
    test.pods.remove(&uid);
    assert_eq!(cached(&test), (true, false));
    let state = test.objects.subscribe(&key("a"), kind());
    test.pods.replace(Vec::new());
    assert_eq!(cached(&test), (true, false), "it is subscribed");
    drop(state);
    let (key, _, entry) = test.queue.try_recv().unwrap();
    assert!(test.objects.remove_entry(&key, &entry));
    assert_eq!(cached(&test), (false, false));
}

/// A claim of a pod, and what is behind it: key and spec.
fn objects_behind_a_claim() -> Vec<(ObjectId, Value)> {
    let id = |kind: &str, namespace: &str, name: &str| ObjectId {
        kind: kind.to_owned(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    };
    let csi = json!({ "driver": "d", "volumeHandle": "h",
        "nodeStageSecretRef": { "namespace": "s", "name": "stage" } });
    let attachment = json!({ "attacher": "d", "nodeName": "n",
        "source": { "persistentVolumeName": "pv" } });
    vec![
        (
            id("PersistentVolumeClaim", "ns", "data"),
            json!({ "volumeName": "pv" }),
        ),
        (id("PersistentVolume", "", "pv"), json!({ "csi": csi })),
        (id("VolumeAttachment", "", "csi-1"), attachment),
        (id("CSIDriver", "", "d"), json!({})),
        (id("Secret", "s", "stage"), json!({})),
    ]
}

#[test]
fn objects_behind_a_claim_outlive_their_watch_and_go_with_the_pod() {
    let volume = json!({ "name": "v", "persistentVolumeClaim": { "claimName": "data" } });
    let manifest = json!({ "metadata": { "namespace": "ns" }, "spec": { "volumes": [volume] } });
    let pod = Pod {
        manifest: manifest.to_string().into(),
        ..Pod::default()
    };
    let test = TestObjects::new(vec![("u".into(), pod)]);
    let objects = objects_behind_a_claim();
    for (key, spec) in &objects {
        let json = json!({ "spec": spec }).to_string().into();
        test.objects.cache.set(key, Some(&json));
    }
    let cached = || -> Vec<&str> {
        let keys = objects.iter().map(|(key, _)| key);
        let cached = keys.filter(|key| test.objects.cache.get(key).is_some());
        cached.map(|key| key.kind.as_str()).collect()
    };
    for (key, _) in &objects {
        test.objects.remove_unreferenced(key);
    }
    test.objects.prune_unsubscribed();
    test.handle_released();
    assert_eq!(cached().len(), objects.len(), "{:?}", cached());

    test.pods.remove(&"u".into());
    for _ in &objects {
        test.handle_released();
    }
    assert!(cached().is_empty(), "{:?}", cached());
}

#[test]
fn loaded_objects_of_restored_pods_are_not_pruned() {
    let test = TestObjects::unsynced();
    for name in ["a", "b"] {
        let json = secret(name, "v").to_string().into();
        test.objects.cache.set(&key(name), Some(&json));
    }
    test.objects.prune_unsubscribed();
    assert!(test.is_cached("a") && test.is_cached("b"));
    test.pods.replace(vec![pod("u", &["a"])]);
    test.objects.prune_unsubscribed();
    assert!(test.is_cached("a") && !test.is_cached("b"));
}

#[tokio::test]
async fn objects_read_once_are_served_during_an_outage() {
    let mut test = TestObjects::new(vec![pod("u", &["a"])]);
    test.read_once("a");
    test.read_once("b");
    let (objects, pool, _dir) = test.run(1);
    start_outage(&pool);
    for (name, expected) in [("a", "v"), ("b", "unknown")] {
        let mut state = objects.subscribe(&key(name), kind());
        assert_eq!(value(&mut state).await, expected, "{name}");
    }
}

/// Responds to all requests with the present object.
async fn serve(objects: watch::Receiver<Value>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(respond(stream, objects.clone()));
        }
    });
    port
}

async fn respond(mut stream: TcpStream, objects: watch::Receiver<Value>) {
    let mut request = [0; 4096];
    // Each request is small enough for one packet.
    while stream.read(&mut request).await.is_ok_and(|n| n > 0) {
        let body = objects.borrow().to_string();
        let length = body.len();
        let response = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{body}");
        if stream.write_all(response.as_bytes()).await.is_err() {
            return;
        }
    }
}

#[tokio::test]
async fn recreated_immutable_objects_are_requested_for_new_subscribers() {
    let object = watch::Sender::new(secret("a", "1"));
    let port = serve(object.subscribe()).await;
    let test = TestObjects::new(vec![pod("u", &["a"])]);
    let (objects, pool, _dir) = test.run(port);
    let subscribe = || objects.subscribe(&key("a"), kind());
    assert_eq!(value(&mut subscribe()).await, "1");

    object.send_replace(secret("a", "2"));
    let mut waiting = subscribe();
    assert_eq!(value(&mut waiting).await, "2");
    object.send_replace(secret("a", "3"));
    assert_eq!(value(&mut subscribe()).await, "2", "just received");
    drop(waiting);
    let mut waiting = subscribe();
    assert_eq!(value(&mut waiting).await, "3");
    drop(waiting);

    start_outage(&pool);
    object.send_replace(secret("a", "4"));
    let mut state = subscribe();
    assert_eq!(value(&mut state).await, "3", "the cached one");
    pool.health.recovered();
    state.borrow_and_update();
    timeout(Duration::from_secs(10), state.changed())
        .await
        .expect("a change")
        .unwrap();
    assert_eq!(value(&mut state).await, "4");
}
