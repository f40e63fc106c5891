use polylet_kit::state_file::StateFileError;
use polylet_wire::pleg::v1::Sandbox;
use serde_json::{Value, json};

use super::*;
use crate::core::signal::{Observation, Signal};
use crate::core::threshold::ThresholdValue;
use crate::evictions::EvictionStore;

const NOW: Timestamp = Timestamp::UNIX_EPOCH;

/// Stores nothing.
struct NoEvictionFile;

impl EvictionStore for NoEvictionFile {
    fn save(&self, _: &BTreeMap<String, wire::Eviction>) -> Result<(), StateFileError> {
        Ok(())
    }
}

fn memory_threshold() -> Threshold {
    Threshold {
        signal: Signal::MemoryAvailable,
        value: ThresholdValue::Quantity(100, "100".to_owned()),
        grace: None,
        minimum_reclaim: None,
    }
}

fn manager(threshold: &Threshold) -> EvictionManager {
    let config = EvictionConfig {
        thresholds: vec![threshold.clone()],
        pressure_transition_period: Duration::ZERO,
        max_pod_grace_seconds: 0,
        one_filesystem: true,
    };
    let evictions = Evictions::new(Box::new(NoEvictionFile), BTreeMap::new());
    let mut manager = EvictionManager::new(config, evictions, Store::new("test"));
    manager.handle_pod_state(Update::Synced);
    manager
}

fn pod(uid: &str) -> Update<PodUid, Pod> {
    pod_with(uid, json!({ "containers": [{ "name": "c" }] }))
}

fn pod_with(uid: &str, spec: Value) -> Update<PodUid, Pod> {
    let metadata = json!({ "name": uid, "namespace": "default", "uid": uid });
    let manifest = json!({ "metadata": metadata, "spec": spec });
    let pod = Pod {
        manifest: manifest.to_string().into_bytes().into(),
        ..Pod::default()
    };
    Update::Upsert(uid.into(), pod)
}

fn state(uid: &str, ready: bool) -> Update<PodUid, PodState> {
    let sandbox = Sandbox {
        ready,
        ..Sandbox::default()
    };
    let state = PodState {
        sandboxes: vec![sandbox],
        ..PodState::default()
    };
    Update::Upsert(uid.into(), state)
}

#[test]
fn a_pod_that_ended_while_it_was_measured_is_not_evicted() {
    let threshold = memory_threshold();
    let observation = Observation {
        available: 5,
        capacity: 1000,
    };
    let observations = Observations::from([(Signal::MemoryAvailable, observation)]);
    for (ended, expected) in [
        (vec![], Some("a")),
        (vec![state("a", false)], Some("b")),
        (vec![Update::Remove("a".into())], Some("b")),
        (vec![state("a", false), state("b", false)], None),
    ] {
        let mut manager = manager(&threshold);
        for uid in ["a", "b"] {
            manager.handle_pod(pod(uid));
            manager.handle_pod_state(state(uid, true));
        }
        let candidates = manager.candidates_without_usage();
        for change in ended {
            manager.handle_pod_state(change);
        }
        let started = manager.evict(&threshold, &observations, candidates, NOW);
        if let Some(started) = &started {
            assert_eq!(started.signal, "memory.available");
        }
        let evicted = started.map(|started| started.pod.uid);
        assert_eq!(evicted.as_deref(), expected);
    }
}

#[test]
fn an_eviction_for_a_storage_limit_is_counted_under_its_limit() {
    let mut manager = manager(&memory_threshold());
    let volume = json!({ "name": "cache", "emptyDir": { "sizeLimit": "1Mi" } });
    let spec = json!({ "containers": [{ "name": "c" }], "volumes": [volume] });
    manager.handle_pod(pod_with("a", spec));
    manager.handle_pod_state(state("a", true));
    let usage = LocalStorageUsage {
        empty_dirs: BTreeMap::from([("cache".to_owned(), 2 << 20)]),
        ..LocalStorageUsage::default()
    };
    let started = manager.enforce_storage_limits("a".to_owned(), &usage, NOW);
    assert_eq!(started.unwrap().signal, "emptydirfs.limit");
}
