//! Statuses that come back from the API server are in memory once.

use k8s_openapi::api::core::v1::LinuxContainerUser;
use polylet_model::status::ActualResources;
use serde_json::Value;

use super::*;
use crate::core::normal_form::normalized;
use crate::core::report::desired::{ApiStatus, DesiredStatus, next_action};
use crate::core::report::merge::PhaseRules;

/// What the API server of Kubernetes 1.36 returns after the status of [`full`] was patched.
const PATCHED: &str = include_str!("api_status.json");

fn manifest() -> Manifest {
    let resources = json!({"limits": {"cpu": "500m", "memory": "64Mi"},
        "requests": {"cpu": "100m", "memory": "64Mi"}});
    let mounts = json!([{"name": "t", "mountPath": "/t", "readOnly": true},
        {"name": "e", "mountPath": "/e"}]);
    let pod = json!({
        "metadata": {"name": "p", "namespace": "n", "uid": "u", "generation": 1,
            "creationTimestamp": "1970-01-12T13:46:39Z"},
        "spec": {
            "initContainers": [{"name": "i", "image": "x", "resources": {}, "volumeMounts": mounts}],
            "containers": [
                {"name": "b", "image": "x", "resources": {}},
                {"name": "a", "image": "x", "readinessProbe": {"exec": {}},
                    "resources": resources, "volumeMounts": mounts}]}});
    Manifest::from_json(pod.to_string().as_bytes()).unwrap()
}

/// A time within a second.
fn within(second: i64) -> Option<Timestamp> {
    Some(at(second) + std::time::Duration::from_millis(789))
}

fn container(
    name: &str,
    id: &str,
    attempt: u32,
    finished_at: Option<Timestamp>,
) -> RuntimeContainer {
    let phase = match finished_at {
        Some(_) => ContainerPhase::Exited,
        None => ContainerPhase::Running,
    };
    let base = runtime_state(phase).unwrap().containers.remove(0);
    RuntimeContainer {
        id: id.into(),
        name: name.into(),
        attempt,
        actual: ActualResources::from_kernel(102, 50_000, 100_000, 64 << 20),
        user: Some(LinuxContainerUser {
            uid: 0,
            gid: 0,
            supplemental_groups: Some(vec![0, 10]),
        }),
        started_at: within(3 + i64::from(attempt) * 5),
        finished_at,
        reason: finished_at.map_or_else(String::new, |_| "Completed".into()),
        ..base
    }
}

/// A pod with an init container and a container that was restarted.
fn full(restored: BTreeMap<PodUid, SharedStatus>) -> StatusManager {
    let mut manager = StatusManager::new(restored);
    let desired = DesiredManifest {
        manifest: manifest(),
        stale: false,
    };
    let state = RuntimePodState {
        containers: vec![
            container("i", "i0", 0, within(5)),
            container("b", "b0", 0, None),
            container("a", "c", 1, None),
            container("a", "a0", 0, within(5)),
        ],
        ..runtime_state(ContainerPhase::Running).unwrap()
    };
    let result = ContainerProbeResult {
        since: within(9),
        ..probe(true, 9).unwrap()
    };
    let facts = &mut manager.facts;
    facts.set_host_ips(vec!["192.0.2.1".into()]);
    facts.set_desired(ManifestSource::Api, "u".into(), Some(desired));
    facts.set_progress("u".into(), Some(progress(PodWorkerState::Syncing)));
    facts.set_runtime_state("u".into(), Some(state));
    facts.set_probe("u".into(), "c".into(), ProbeKind::Readiness, Some(result));
    sync_all(&mut manager);
    manager
}

fn set_api_status(manager: &mut StatusManager, status: &Value) {
    let status: PodStatus = serde_json::from_value(status.clone()).unwrap();
    manager.set_api_status(&"u".into(), Some(normalized(status)));
}

fn patched() -> Value {
    serde_json::from_str(PATCHED).unwrap()
}

fn published(manager: &StatusManager) -> SharedStatus {
    manager.statuses()["u"].clone()
}

fn is_shared(manager: &StatusManager) -> bool {
    published(manager).is_same(manager.api_status("u").unwrap())
}

#[test]
fn what_was_published_comes_back_in_another_form() {
    let mut manager = full(BTreeMap::new());
    reconcile_all(&mut manager).unwrap();
    let raw: PodStatus = serde_json::from_str(PATCHED).unwrap();
    assert_ne!(*published(&manager), raw);
    let last = |status: &PodStatus| {
        status.container_statuses.as_ref().unwrap()[1]
            .last_state
            .clone()
    };
    assert_eq!(
        (last(&published(&manager)), last(&raw)),
        (None, Some(Default::default()))
    );
    set_api_status(&mut manager, &patched());
    assert!(is_shared(&manager));
    assert_eq!(reconcile_all(&mut manager), None);
    let desired = DesiredStatus {
        namespace: "n".into(),
        name: "p".into(),
        status: published(&manager),
        phase: PhaseRules {
            may_run: true,
            is_static: false,
        },
        deleting: false,
        deletable: false,
    };
    for status in [
        manager.api_status("u").unwrap().clone(),
        SharedStatus::from(raw),
    ] {
        let uid = "u".into();
        assert_eq!(next_action(&desired, &ApiStatus { uid, status }), None);
    }
}

#[test]
fn the_api_server_may_have_the_status_first() {
    let mut manager = full(BTreeMap::new());
    set_api_status(&mut manager, &patched());
    let api = manager.api_status("u").unwrap().clone();
    reconcile_all(&mut manager).unwrap();
    assert!(api.is_same(&published(&manager)));
    // After a restart, the state file has it first.
    let file: PodStatus = serde_json::from_str(PATCHED).unwrap();
    let restored = BTreeMap::from([("u".into(), normalized(file))]);
    let mut manager = full(restored.clone());
    set_api_status(&mut manager, &patched());
    assert!(is_shared(&manager));
    reconcile_all(&mut manager).unwrap();
    assert!(is_shared(&manager) && restored["u"].is_same(&published(&manager)));
}

#[test]
fn other_facts_change_no_copy() {
    let mut manager = full(BTreeMap::new());
    reconcile_all(&mut manager).unwrap();
    set_api_status(&mut manager, &patched());
    let progress = SyncProgress {
        waiting_for: vec!["x".into()],
        ..progress(PodWorkerState::Syncing)
    };
    manager.facts.set_progress("u".into(), Some(progress));
    let again = reconcile_all(&mut manager).unwrap();
    assert_eq!(again.waiting_for, ["x"]);
    assert!(is_shared(&manager) && again.status.is_same(&published(&manager)));
}

#[test]
fn conditions_that_others_append_are_part_of_the_status() {
    let mut manager = full(BTreeMap::new());
    reconcile_all(&mut manager).unwrap();
    let mut changed = patched();
    let gate = json!({"type": "example.com/gate", "status": "True"});
    changed["conditions"].as_array_mut().unwrap().push(gate);
    set_api_status(&mut manager, &changed);
    assert!(!is_shared(&manager));
    reconcile_all(&mut manager).unwrap();
    assert!(is_shared(&manager));
    let conditions = published(&manager).conditions.clone().unwrap();
    assert_eq!(
        (conditions.len(), conditions[0].type_.as_str()),
        (6, "example.com/gate")
    );
}

#[test]
fn a_status_of_others_is_not_taken_for_our_own() {
    let mut manager = full(BTreeMap::new());
    reconcile_all(&mut manager).unwrap();
    let mut changed = patched();
    changed["podIP"] = json!("10.9.9.9");
    set_api_status(&mut manager, &changed);
    let first = manager.api_status("u").unwrap().clone();
    assert_eq!(reconcile_all(&mut manager), None);
    assert_eq!(first.pod_ip.as_deref(), Some("10.9.9.9"));
    assert_eq!(published(&manager).pod_ip.as_deref(), Some("10.0.0.1"));
    // It comes again with another change of the pod.
    set_api_status(&mut manager, &changed);
    assert!(first.is_same(manager.api_status("u").unwrap()));
}
