//! Published pods after any sequence of events, compared with a model.

use std::collections::BTreeMap;

use futures::StreamExt;
use polylet_api::ApiErrorKind;
use polylet_watch::{Change, WatchWire};
use polylet_wire::podconfig::v1::WatchPodsResponse;
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::core::ObjectId;
use crate::core::cluster::state::PodRecord;
use crate::persist::{LogFile, RecordSource};

#[derive(Clone, Debug)]
enum Event {
    /// Pods by number, each with its image and status.
    List(BTreeMap<u8, (u8, u8)>),
    Upsert(u8, (u8, u8)),
    Delete(u8),
    Error,
    SlowStart,
}

fn event() -> impl Strategy<Value = Event> {
    let content = (0u8..3, 0u8..3);
    prop_oneof![
        1 => prop::collection::btree_map(0u8..6, content.clone(), 0..6).prop_map(Event::List),
        4 => (0u8..6, content).prop_map(|(pod, content)| Event::Upsert(pod, content)),
        2 => (0u8..6).prop_map(Event::Delete),
        2 => Just(Event::Error),
        1 => Just(Event::SlowStart),
    ]
}

/// Number 5 is a mirror pod.
fn object(number: u8, (image, status): (u8, u8)) -> Value {
    let mut pod = json!({
        "metadata": { "name": format!("p{number}"), "namespace": "n", "uid": format!("u{number}") },
        "spec": { "containers": [{ "name": "c", "image": format!("i{image}") }] },
        "status": { "message": format!("s{status}") },
    });
    if number == 5 {
        pod["metadata"]["annotations"] = json!({ "kubernetes.io/config.mirror": "m" });
    }
    pod
}

struct World {
    dir: tempfile::TempDir,
    stores: PodStores,
    pods: PodHandler,
    health: ApiHealth,
}

impl World {
    fn new(dir: tempfile::TempDir) -> World {
        let (stores, health) = (PodStores::new("1"), ApiHealth::new());
        let log = KeyedLog::new(dir.path().join("api.json"));
        let errors = watch::Sender::new(Vec::new());
        World {
            pods: PodHandler::new(stores.clone(), health.clone(), log, errors, "node"),
            dir,
            stores,
            health,
        }
    }

    fn handle(&mut self, event: &Event) {
        match event {
            Event::List(all) => {
                let mut all = all
                    .iter()
                    .map(|(number, content)| object(*number, *content));
                wait_for(self.pods.handle_list(&mut all));
            }
            Event::Upsert(number, content) => self.pods.handle_upsert(object(*number, *content)),
            Event::Delete(number) => self.pods.handle_delete(object(*number, (0, 0))),
            Event::Error => self
                .pods
                .handle_error(&ApiRequestError::unreachable("away")),
            Event::SlowStart => self.pods.handle_slow_start(),
        }
    }

    /// All records to persist.
    fn records(&self, node: &str) -> Vec<(PodRecordKey, PodRecord)> {
        let persister = PodPersister {
            stores: self.stores.clone(),
            health: self.health.clone(),
            node: node.to_owned(),
        };
        let keys = persister.keys().into_iter();
        keys.filter_map(|key| Some((key.clone(), persister.record(&key)?)))
            .collect()
    }

    /// Another process with the persisted state of this one.
    fn restart(self) -> World {
        let records = self.records("node");
        LogFile::create(&self.dir.path().join("api.json"), records).unwrap();
        World::new(self.dir)
    }
}

fn image_of(pod: &Pod) -> u8 {
    let manifest: Value = serde_json::from_slice(&pod.manifest).unwrap();
    let image = manifest["spec"]["containers"][0]["image"].as_str().unwrap();
    image[1..].parse().unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn only_the_api_server_adds_and_removes_pods(
        first in prop::collection::btree_map(0u8..6, (0u8..3, 0u8..3), 0..6),
        sequence in prop::collection::vec(event(), 0..25),
    ) {
        let mut world = World::new(tempfile::tempdir().unwrap());
        world.handle(&Event::SlowStart);
        world.handle(&Event::Error);
        prop_assert!(!world.stores.pods.has_synced(), "nothing was restored");
        let mut model = first.clone();
        world.handle(&Event::List(first));
        for event in &sequence {
            let before = (world.stores.pods.position(), model.clone());
            world.handle(event);
            match event {
                Event::List(all) => model = all.clone(),
                Event::Upsert(number, content) => drop(model.insert(*number, *content)),
                Event::Delete(number) => drop(model.remove(number)),
                Event::Error | Event::SlowStart => {}
            }
            let plain = world.stores.pods.snapshot();
            let published: BTreeMap<PodUid, u8> =
                plain.iter().map(|(uid, pod)| (uid.clone(), image_of(pod))).collect();
            let pods = model.iter().filter(|(number, _)| **number != 5);
            let images: BTreeMap<PodUid, u8> =
                pods.map(|(number, (image, _))| (format!("u{number}").into(), *image)).collect();
            prop_assert_eq!(&published, &images);
            let reported = world.stores.pods_with_status.snapshot();
            for (uid, pod) in &reported {
                let number: u8 = uid[1..].parse().unwrap();
                let status = String::from_utf8(pod.reported_status.to_vec()).unwrap();
                prop_assert_eq!(status, format!(r#"{{"message":"s{}"}}"#, model[&number].1));
            }
            prop_assert_eq!(reported.len(), plain.len());
            prop_assert_eq!(world.stores.mirror_pods.snapshot().len(), usize::from(model.contains_key(&5)));
            // A change of the status alone does not change pods without status.
            let images = |model: &BTreeMap<u8, (u8, u8)>| -> Vec<(u8, u8)> {
                model.iter().filter(|(n, _)| **n != 5).map(|(n, (image, _))| (*n, *image)).collect()
            };
            if images(&before.1) == images(&model) {
                prop_assert_eq!(before.0, world.stores.pods.position());
            }
        }
        // After a restart during an outage the same pods are published as stale, and no longer stale
        // when the API server is back.
        let before = world.stores.pods_with_status.snapshot();
        let mut world = world.restart();
        world.handle(&Event::Error);
        prop_assert_eq!(world.stores.pods.has_synced(), !before.is_empty());
        prop_assert!(!world.stores.mirror_pods.has_synced(), "mirror pods are not restored");
        let mut stale = world.stores.pods_with_status.snapshot();
        prop_assert!(stale.values().all(|pod| pod.stale_since.is_some()));
        stale.values_mut().for_each(|pod| pod.stale_since = None);
        prop_assert_eq!(&stale, &before);
        world.handle(&Event::List(model));
        prop_assert_eq!(world.stores.pods_with_status.snapshot(), before);
    }
}

#[test]
fn only_the_first_change_of_a_deletion_is_published() {
    let deleted = |grace_period: i64, finalizers: Value| {
        let mut pod = object(1, (0, 0));
        pod["metadata"]["deletionTimestamp"] = json!("2026-01-02T03:04:05Z");
        pod["metadata"]["deletionGracePeriodSeconds"] = json!(grace_period);
        pod["metadata"]["finalizers"] = finalizers;
        pod
    };
    for (change, is_published) in [
        (deleted(0, Value::Null), false),
        (deleted(10, Value::Null), true),
        (deleted(0, json!(["a/b"])), true),
    ] {
        let mut world = World::new(tempfile::tempdir().unwrap());
        world.handle(&Event::List(BTreeMap::from([(1, (0, 0))])));
        let grace_periods = |world: &World| {
            let pods = world.stores.pods.snapshot().into_values();
            let manifests = pods.map(|pod| serde_json::from_slice::<Value>(&pod.manifest).unwrap());
            let metadata = manifests.map(|manifest| manifest["metadata"].clone());
            metadata
                .map(|of| of["deletionGracePeriodSeconds"].as_i64())
                .collect::<Vec<_>>()
        };
        world.pods.handle_upsert(deleted(30, Value::Null));
        assert_eq!(grace_periods(&world), [Some(30)]);
        let position = world.stores.pods.position();
        world.pods.handle_upsert(change.clone());
        assert_eq!(
            world.stores.pods.position() != position,
            is_published,
            "{change}"
        );
        // What a list has is published in any case: its objects are there.
        wait_for(
            world
                .pods
                .handle_list(&mut [deleted(0, Value::Null)].into_iter()),
        );
        assert_eq!(grace_periods(&world), [Some(0)]);
        world.handle(&Event::Delete(1));
        assert!(world.stores.pods.snapshot().is_empty());
    }
    let mut world = World::new(tempfile::tempdir().unwrap());
    world.handle(&Event::List(BTreeMap::from([(1, (0, 0))])));
    let position = world.stores.pods.position();
    world.pods.handle_upsert(deleted(0, Value::Null));
    assert_ne!(
        world.stores.pods.position(),
        position,
        "its deletion was not known"
    );
}

#[test]
fn outage_and_its_start_are_reported() {
    let mut world = World::new(tempfile::tempdir().unwrap());
    world.handle(&Event::List(BTreeMap::from([(1, (0, 0))])));
    world.handle(&Event::Error);
    let since = world.health.outage_since().unwrap();
    world.handle(&Event::Error);
    let mut world = world.restart();
    world.handle(&Event::Error);
    assert_eq!(
        world.health.outage_since(),
        Some(since),
        "not the time of the restart"
    );
    let errors = world.pods.errors.borrow().clone();
    assert_eq!(errors.len(), 1);
    assert!(world.health.backing_off().is_some());
    world.handle(&Event::List(BTreeMap::new()));
    assert!(world.pods.errors.borrow().is_empty());
    world.pods.handle_error(&ApiRequestError {
        kind: ApiErrorKind::Forbidden,
        ..ApiRequestError::unreachable("no")
    });
    assert!(
        world.health.backing_off().is_none(),
        "other requests are not blocked"
    );
}

#[tokio::test]
async fn listed_pods_are_published_oldest_first() {
    let dir = tempfile::tempdir().unwrap();
    let mut world = World::new(dir);
    let created = |number: u8, second: u8| {
        let mut pod = object(number, (0, 0));
        pod["metadata"]["creationTimestamp"] = json!(format!("2026-01-01T00:00:0{second}Z"));
        pod
    };
    let all = [
        created(1, 3),
        created(2, 1),
        created(3, 2),
        object(4, (0, 0)),
    ];
    world.pods.handle_list(&mut all.into_iter()).await;
    let watching = polylet_watch::serve::<WatchPodsResponse>(world.stores.pods.clone(), None);
    let published: Vec<PodUid> = watching
        .filter_map(|message| async { message.ok()?.into_change() })
        .take_while(|change| std::future::ready(!matches!(change, Change::Synced(_))))
        .filter_map(|change| async {
            match change {
                Change::Upsert(pod) => Some(uid_of(&pod)),
                _ => None,
            }
        })
        .collect()
        .await;
    assert_eq!(published, ["u4", "u2", "u3", "u1"]);
}

fn wait_for(done: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    runtime.unwrap().block_on(done);
}

#[test]
fn pods_of_another_node_are_not_restored() {
    let mut world = World::new(tempfile::tempdir().unwrap());
    world.handle(&Event::List(BTreeMap::from([(1, (0, 0))])));
    let records = world.records("another");
    LogFile::create(&world.dir.path().join("api.json"), records).unwrap();
    let mut world = World::new(world.dir);
    world.handle(&Event::Error);
    assert!(!world.stores.pods.has_synced());
}

#[test]
fn objects_are_referenced_while_a_pod_names_them() {
    let naming = |number: u8, secret: &str| {
        let mut pod = object(number, (0, 0));
        let source = json!([{ "secretRef": { "name": secret } }]);
        pod["spec"]["containers"][0]["envFrom"] = source;
        pod
    };
    let referenced = |world: &World| {
        let secret = |name: &str| ObjectId {
            kind: "Secret".to_owned(),
            namespace: "n".to_owned(),
            name: name.to_owned(),
        };
        let names = ["a", "b", "c"].into_iter();
        let named = names.filter(|name| world.stores.is_referenced(&secret(name)));
        named.collect::<String>()
    };
    let mut world = World::new(tempfile::tempdir().unwrap());
    assert_eq!(referenced(&world), "abc", "the pods are not known yet");
    world.handle(&Event::List(BTreeMap::new()));
    assert_eq!(referenced(&world), "");
    for (pod, expected) in [
        (naming(1, "a"), "a"),
        (naming(1, "b"), "b"),
        (naming(2, "b"), "b"),
        (object(1, (0, 1)), "b"),
        (object(2, (0, 1)), ""),
        (naming(2, "c"), "c"),
    ] {
        world.pods.handle_upsert(pod.clone());
        assert_eq!(referenced(&world), expected, "{pod}");
    }
    let mut mirror = naming(2, "c");
    mirror["metadata"]["annotations"] = json!({ "kubernetes.io/config.mirror": "m" });
    world.pods.handle_upsert(mirror);
    assert_eq!(referenced(&world), "");

    let list = |world: &mut World, pods: Vec<Value>| {
        wait_for(world.pods.handle_list(&mut pods.into_iter()));
    };
    list(
        &mut world,
        vec![naming(1, "a"), naming(2, "a"), naming(3, "b")],
    );
    assert_eq!(referenced(&world), "ab");
    world.handle(&Event::Delete(1));
    assert_eq!(referenced(&world), "ab");
    world.handle(&Event::Delete(2));
    assert_eq!(referenced(&world), "b");

    let mut world = world.restart();
    world.handle(&Event::Error);
    assert_eq!(referenced(&world), "b", "of a restored pod");
    list(&mut world, vec![naming(4, "c")]);
    assert_eq!(referenced(&world), "c");
}
