//! What is told of pods, whatever is heard: each sequence of answers against the plain set that it
//! should come to.

use std::collections::BTreeMap;

use futures::StreamExt;
use polylet_api::Refusal;
use polylet_watch::{Change, WatchWire};
use polylet_wire::podconfig::v1::WatchPodsResponse;
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::core::cluster::kept::{KeptPod, PodEntry};
use crate::keep::{EntryFile, Source};

#[derive(Clone, Debug)]
enum Heard {
    /// Pods by number, with the image and the status of each.
    Whole(BTreeMap<u8, (u8, u8)>),
    Changed(u8, (u8, u8)),
    Gone(u8),
    Failed,
    Late,
}

fn heard() -> impl Strategy<Value = Heard> {
    let content = (0u8..3, 0u8..3);
    prop_oneof![
        1 => prop::collection::btree_map(0u8..6, content.clone(), 0..6).prop_map(Heard::Whole),
        4 => (0u8..6, content).prop_map(|(pod, content)| Heard::Changed(pod, content)),
        2 => (0u8..6).prop_map(Heard::Gone),
        2 => Just(Heard::Failed),
        1 => Just(Heard::Late),
    ]
}

/// Number 5 is a mirror.
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
    stores: Stores,
    pods: Pods,
    trouble: Trouble,
}

impl World {
    fn new(dir: tempfile::TempDir) -> World {
        let (stores, trouble) = (Stores::new("1"), Trouble::new());
        let keep = Entries::new(dir.path().join("api.json"));
        let problems = watch::Sender::new(Vec::new());
        World {
            pods: Pods::new(stores.clone(), trouble.clone(), keep, problems, "node"),
            dir,
            stores,
            trouble,
        }
    }

    fn hear(&mut self, heard: &Heard) {
        match heard {
            Heard::Whole(all) => {
                let mut all = all
                    .iter()
                    .map(|(number, content)| object(*number, *content));
                wait_for(self.pods.whole(&mut all));
            }
            Heard::Changed(number, content) => self.pods.changed(object(*number, *content)),
            Heard::Gone(number) => self.pods.gone(object(*number, (0, 0))),
            Heard::Failed => self.pods.failed(&Failure::unreachable("away")),
            Heard::Late => self.pods.late(),
        }
    }

    /// What is kept, as a whole.
    fn kept(&self, node: &str) -> Vec<(PodKey, PodEntry)> {
        let keeping = Keeping {
            stores: self.stores.clone(),
            trouble: self.trouble.clone(),
            node: node.to_owned(),
        };
        let keys = keeping.keys().into_iter();
        keys.filter_map(|key| Some((key.clone(), keeping.entry(&key)?)))
            .collect()
    }

    /// The process ends and begins anew, with what it kept.
    fn restart(self) -> World {
        let kept = self.kept("node");
        EntryFile::create(&self.dir.path().join("api.json"), kept).unwrap();
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
    fn only_the_server_adds_and_removes(
        first in prop::collection::btree_map(0u8..6, (0u8..3, 0u8..3), 0..6),
        sequence in prop::collection::vec(heard(), 0..25),
    ) {
        let mut world = World::new(tempfile::tempdir().unwrap());
        world.hear(&Heard::Late);
        world.hear(&Heard::Failed);
        prop_assert!(!world.stores.plain.is_whole(), "nothing was kept, nothing is told");
        let mut model = first.clone();
        world.hear(&Heard::Whole(first));
        for heard in &sequence {
            let before = (world.stores.plain.position(), model.clone());
            world.hear(heard);
            match heard {
                Heard::Whole(all) => model = all.clone(),
                Heard::Changed(number, content) => drop(model.insert(*number, *content)),
                Heard::Gone(number) => drop(model.remove(number)),
                Heard::Failed | Heard::Late => {}
            }
            let plain = world.stores.plain.snapshot();
            let told: BTreeMap<String, u8> =
                plain.iter().map(|(uid, pod)| (uid.clone(), image_of(pod))).collect();
            let pods = model.iter().filter(|(number, _)| **number != 5);
            let images: BTreeMap<String, u8> =
                pods.map(|(number, (image, _))| (format!("u{number}"), *image)).collect();
            prop_assert_eq!(&told, &images);
            let reported = world.stores.reported.snapshot();
            for (uid, pod) in &reported {
                let number: u8 = uid[1..].parse().unwrap();
                let status = String::from_utf8(pod.reported_status.to_vec()).unwrap();
                prop_assert_eq!(status, format!(r#"{{"message":"s{}"}}"#, model[&number].1));
            }
            prop_assert_eq!(reported.len(), plain.len());
            prop_assert_eq!(world.stores.mirrors.snapshot().len(), usize::from(model.contains_key(&5)));
            // A status alone is no change of what should run.
            let images = |model: &BTreeMap<u8, (u8, u8)>| -> Vec<(u8, u8)> {
                model.iter().filter(|(n, _)| **n != 5).map(|(n, (image, _))| (*n, *image)).collect()
            };
            if images(&before.1) == images(&model) {
                prop_assert_eq!(before.0, world.stores.plain.position());
            }
        }
        // Alone after a restart: the same, marked; and the same, unmarked, when the server is back.
        let before = world.stores.reported.snapshot();
        let mut world = world.restart();
        world.hear(&Heard::Failed);
        prop_assert_eq!(world.stores.plain.is_whole(), !before.is_empty());
        prop_assert!(!world.stores.mirrors.is_whole(), "no mirrors before the server is heard");
        let mut alone = world.stores.reported.snapshot();
        prop_assert!(alone.values().all(|pod| pod.stale_since.is_some()));
        alone.values_mut().for_each(|pod| pod.stale_since = None);
        prop_assert_eq!(&alone, &before);
        world.hear(&Heard::Whole(model));
        prop_assert_eq!(world.stores.reported.snapshot(), before);
    }
}

#[test]
fn it_is_told_that_the_server_is_away_and_since_when() {
    let mut world = World::new(tempfile::tempdir().unwrap());
    world.hear(&Heard::Whole(BTreeMap::from([(1, (0, 0))])));
    world.hear(&Heard::Failed);
    let since = world.trouble.since().unwrap();
    world.hear(&Heard::Failed);
    let mut world = world.restart();
    world.hear(&Heard::Failed);
    assert_eq!(world.trouble.since(), Some(since), "not since the restart");
    let problems = world.pods.problems.borrow().clone();
    assert_eq!(problems.len(), 1);
    assert!(world.trouble.shut().is_some());
    world.hear(&Heard::Whole(BTreeMap::new()));
    assert!(world.pods.problems.borrow().is_empty());
    world.pods.failed(&Failure {
        refusal: Refusal::Forbidden,
        ..Failure::unreachable("no")
    });
    assert!(
        world.trouble.shut().is_none(),
        "other things may be asked for"
    );
}

#[tokio::test]
async fn of_pods_that_come_together_the_oldest_is_told_first() {
    let dir = tempfile::tempdir().unwrap();
    let mut world = World::new(dir);
    let made = |number: u8, second: u8| {
        let mut pod = object(number, (0, 0));
        pod["metadata"]["creationTimestamp"] = json!(format!("2026-01-01T00:00:0{second}Z"));
        pod
    };
    let all = [made(1, 3), made(2, 1), made(3, 2), object(4, (0, 0))];
    world.pods.whole(&mut all.into_iter()).await;
    let watching = polylet_watch::serve::<WatchPodsResponse>(world.stores.plain.clone(), None);
    let told: Vec<String> = watching
        .filter_map(|message| async { message.ok()?.unwrap() })
        .take_while(|change| std::future::ready(!matches!(change, Change::Synced(_))))
        .filter_map(|change| async {
            match change {
                Change::Upsert(pod) => Some(uid_of(&pod)),
                _ => None,
            }
        })
        .collect()
        .await;
    assert_eq!(told, ["u4", "u2", "u3", "u1"]);
}

fn wait_for(done: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    runtime.unwrap().block_on(done);
}

#[test]
fn what_a_build_from_before_kept_in_one_stands() {
    let mut world = World::new(tempfile::tempdir().unwrap());
    world.hear(&Heard::Whole(BTreeMap::from([(1, (0, 0)), (2, (1, 1))])));
    world.hear(&Heard::Failed);
    let (before, since) = (world.stores.reported.snapshot(), world.trouble.since());
    let pods = world.kept("node").into_iter();
    let pods: Vec<KeptPod> = pods
        .filter_map(|(_, entry)| match entry {
            PodEntry::Pod(pod) => Some(*pod),
            PodEntry::Away(_) => None,
        })
        .collect();
    let data = json!({ "of": "node", "away_since": since, "pods": pods });
    let path = world.dir.path().join("api.json");
    polylet_kit::kept::save(&path, 1, &data).unwrap();
    let mut world = World::new(world.dir);
    world.hear(&Heard::Failed);
    assert_eq!(world.trouble.since(), since);
    let mut alone = world.stores.reported.snapshot();
    alone
        .values_mut()
        .for_each(|pod| pod.stale_since.clone_from(&None));
    assert_eq!(alone, before);
}

#[test]
fn the_pods_of_another_node_do_not_stand() {
    let mut world = World::new(tempfile::tempdir().unwrap());
    world.hear(&Heard::Whole(BTreeMap::from([(1, (0, 0))])));
    let kept = world.kept("another");
    EntryFile::create(&world.dir.path().join("api.json"), kept).unwrap();
    let mut world = World::new(world.dir);
    world.hear(&Heard::Failed);
    assert!(!world.stores.plain.is_whole());
}
