use jiff::Timestamp;
use polylet_model::Manifest;
use polylet_model::probe::ProbeKind;
use polylet_model::status::{
    ContainerPhase, ContainerProbeResult, PodWorkerState, RuntimeContainer, RuntimeSandbox,
    TerminalDecision, WaitReason, is_ready,
};
use serde_json::json;

use super::*;
use crate::core::facts::{DesiredManifest, FactStream, ManifestSource, RuntimePodState};

mod api_form;
mod devices;
mod lifecycle;
mod orders;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_000_000 + second).unwrap()
}

fn manifest() -> Manifest {
    let pod = json!({"metadata": {"name": "p", "namespace": "n", "uid": "u"},
        "spec": {"containers": [{"name": "a", "image": "x", "readinessProbe": {"exec": {}}}]}});
    Manifest::from_json(pod.to_string().as_bytes()).unwrap()
}

fn desired() -> Option<DesiredManifest> {
    Some(DesiredManifest {
        manifest: manifest(),
        stale: false,
    })
}

fn progress(worker_state: PodWorkerState) -> SyncProgress {
    SyncProgress {
        worker_state,
        acknowledged_at: Some(at(0)),
        ..SyncProgress::default()
    }
}

fn runtime_state(phase: ContainerPhase) -> Option<RuntimePodState> {
    let container = RuntimeContainer {
        id: "c".into(),
        sandbox_id: "s".into(),
        name: "a".into(),
        attempt: 0,
        image: "x".into(),
        image_id: "i".into(),
        phase,
        exit_code: 0,
        reason: String::new(),
        message: String::new(),
        created_at: Some(at(2)),
        started_at: Some(at(3)),
        actual: None,
        user: None,
        finished_at: (phase == ContainerPhase::Exited).then(|| at(90)),
    };
    let sandbox = RuntimeSandbox {
        id: "s".into(),
        attempt: 0,
        ready: true,
        ips: vec!["10.0.0.1".into()],
        created_at: Some(at(1)),
        host_network: false,
        runtime_handler: String::new(),
    };
    Some(RuntimePodState {
        sandboxes: vec![sandbox],
        containers: vec![container],
        inspect_error: String::new(),
    })
}

fn probe(success: bool, since: i64) -> Option<ContainerProbeResult> {
    Some(ContainerProbeResult {
        container_id: "c".into(),
        kind: ProbeKind::Readiness,
        success,
        since: Some(at(since)),
    })
}

/// One fact of a pod that has become ready, by number.
fn fact(manager: &mut StatusManager, number: usize) {
    match number {
        0 => manager
            .facts
            .set_desired(ManifestSource::File, "u".into(), desired()),
        1 => manager
            .facts
            .set_progress("u".into(), Some(progress(PodWorkerState::Syncing))),
        2 => manager
            .facts
            .set_runtime_state("u".into(), runtime_state(ContainerPhase::Running)),
        _ => manager
            .facts
            .set_probe("u".into(), "c".into(), ProbeKind::Readiness, probe(true, 9)),
    }
}

fn sync_all(manager: &mut StatusManager) {
    FactStream::REQUIRED
        .into_iter()
        .for_each(|stream| manager.facts.mark_synced(stream));
}

fn ready_with(restored: BTreeMap<PodUid, SharedStatus>) -> StatusManager {
    let mut manager = StatusManager::new(restored);
    (0..4).for_each(|number| fact(&mut manager, number));
    sync_all(&mut manager);
    manager
}

fn ready() -> StatusManager {
    let mut manager = ready_with(BTreeMap::new());
    assert!(is_ready(&reconcile_all(&mut manager).unwrap().status));
    manager
}

/// Reconciles all dirty pods; the last status published by it.
fn reconcile_all(manager: &mut StatusManager) -> Option<PublishedStatus> {
    let mut last = None;
    for uid in manager.take_dirty() {
        if let StatusChange::Updated { published, .. } = manager.reconcile(&uid) {
            last = Some(*published);
        }
    }
    last
}

#[test]
fn nothing_is_published_before_required_streams_synced() {
    let needed = FactStream::REQUIRED.into_iter().filter(|s| {
        !matches!(
            s,
            FactStream::Pods(ManifestSource::Http | ManifestSource::Api)
        )
    });
    for missing in needed {
        let mut manager = StatusManager::new(BTreeMap::new());
        (0..4).for_each(|number| fact(&mut manager, number));
        FactStream::REQUIRED
            .into_iter()
            .filter(|stream| *stream != missing)
            .for_each(|stream| manager.facts.mark_synced(stream));
        assert_eq!(reconcile_all(&mut manager), None, "{missing:?}");
        assert!(!manager.facts.has_synced());
        assert_eq!(manager.facts.unsynced().collect::<Vec<_>>(), [missing]);
        manager.facts.mark_synced(missing);
        assert!(
            is_ready(&reconcile_all(&mut manager).unwrap().status),
            "{missing:?}"
        );
        assert!(manager.facts.has_synced() && manager.facts.unsynced().next().is_none());
    }
}

#[test]
fn file_pods_do_not_wait_for_the_api_server() {
    let mut manager = StatusManager::new(BTreeMap::new());
    (0..4).for_each(|number| fact(&mut manager, number));
    manager
        .facts
        .set_desired(ManifestSource::Api, "v".into(), desired());
    let synced = FactStream::REQUIRED
        .into_iter()
        .filter(|stream| *stream != FactStream::Pods(ManifestSource::Api));
    synced.for_each(|stream| manager.facts.mark_synced(stream));
    let dirty = manager.take_dirty();
    assert_eq!(dirty.len(), 2);
    assert!(matches!(
        manager.reconcile(&"u".into()),
        StatusChange::Updated { .. }
    ));
    assert_eq!(manager.reconcile(&"v".into()), StatusChange::Unchanged);
    assert!(!manager.facts.has_synced());
    manager
        .facts
        .mark_synced(FactStream::Pods(ManifestSource::Api));
    assert!(manager.take_dirty().contains("v"));
    assert!(matches!(
        manager.reconcile(&"v".into()),
        StatusChange::Updated { .. }
    ));
}

#[test]
fn pod_is_removed_when_undesired_and_cleaned_up() {
    for (wants, cleaned_up, holds, gone) in [
        (false, Some(true), false, true),
        (false, None, false, true),
        (true, Some(true), false, false),
        (false, Some(false), false, false),
        (false, None, true, false),
        (false, Some(true), true, false),
    ] {
        let mut manager = ready();
        manager.facts.set_desired(
            ManifestSource::File,
            "u".into(),
            if wants { desired() } else { None },
        );
        let progress = cleaned_up.map(|cleaned_up| SyncProgress {
            cleaned_up,
            ..progress(PodWorkerState::Terminated)
        });
        manager.facts.set_progress("u".into(), progress);
        manager.facts.set_runtime_state(
            "u".into(),
            if holds {
                runtime_state(ContainerPhase::Exited)
            } else {
                None
            },
        );
        manager.take_dirty();
        assert_eq!(
            matches!(manager.reconcile(&"u".into()), StatusChange::Removed { .. }),
            gone,
            "{wants} {cleaned_up:?} {holds}"
        );
        assert_eq!(manager.statuses().is_empty(), gone);
    }
}

#[test]
fn terminating_pod_uses_its_last_manifest() {
    let published = ready().statuses();
    let mut manager = StatusManager::new(published);
    let leaving = SyncProgress {
        last_manifest: Some(manifest()),
        ..progress(PodWorkerState::Terminating)
    };
    manager.facts.set_progress("u".into(), Some(leaving));
    manager
        .facts
        .set_runtime_state("u".into(), runtime_state(ContainerPhase::Exited));
    sync_all(&mut manager);
    let published = reconcile_all(&mut manager).unwrap();
    assert_eq!(published.status.phase.as_deref(), Some("Succeeded"));
    // Without a manifest, a pod known by the runtime alone has no status.
    let mut orphan = StatusManager::new(BTreeMap::new());
    orphan
        .facts
        .set_runtime_state("u".into(), runtime_state(ContainerPhase::Running));
    sync_all(&mut orphan);
    assert_eq!(reconcile_all(&mut orphan), None);
}

#[test]
fn stale_peer_is_named_and_status_is_unchanged() {
    for stream in FactStream::REQUIRED {
        let mut manager = ready();
        let before = manager.statuses();
        manager.facts.mark_stale(stream);
        let concerned = !matches!(
            stream,
            FactStream::Pods(ManifestSource::Http | ManifestSource::Api)
        );
        let published = reconcile_all(&mut manager);
        assert_eq!(
            published.map(|published| published.stale),
            concerned.then(|| vec![stream.peer().to_owned()]),
            "{stream:?}"
        );
        assert_eq!(manager.statuses(), before);
        manager.facts.mark_synced(stream);
        assert_eq!(
            reconcile_all(&mut manager).map(|published| published.stale),
            concerned.then(Vec::new)
        );
        assert_eq!(manager.statuses(), before);
    }
}

#[test]
fn stale_source_and_inspect_error_are_named() {
    // An unavailable API server is not blamed on pod-config.
    for (source, who) in [
        (ManifestSource::File, "pod-config"),
        (ManifestSource::Api, "API server"),
    ] {
        let mut manager = ready();
        manager
            .facts
            .set_desired(ManifestSource::File, "u".into(), None);
        let (manifest, stale) = (manifest(), true);
        manager.facts.set_desired(
            source,
            "u".into(),
            Some(DesiredManifest { manifest, stale }),
        );
        let unseen = runtime_state(ContainerPhase::Running).map(|state| RuntimePodState {
            inspect_error: "timed out".into(),
            ..state
        });
        manager.facts.set_runtime_state("u".into(), unseen);
        let published = reconcile_all(&mut manager).unwrap().stale;
        assert_eq!(published, [who, "container runtime: timed out"]);
    }
}

#[test]
fn restart_publishes_the_same_status() {
    let first = ready().statuses();
    for restored in [first.clone(), BTreeMap::new()] {
        let known = !restored.is_empty();
        let mut manager = ready_with(restored);
        manager.take_dirty();
        let StatusChange::Updated {
            published, changed, ..
        } = manager.reconcile(&"u".into())
        else {
            panic!("no status published")
        };
        assert_eq!((Some(&published.status), changed), (first.get("u"), !known));
    }
    // Restored statuses of other pods stay until everything has synced.
    let mut manager = ready_with(BTreeMap::from([(
        "gone".into(),
        SharedStatus::from(PodStatus::default()),
    )]));
    reconcile_all(&mut manager);
    assert!(manager.statuses().contains_key("gone"));
    assert!(manager.drop_restored());
    assert!(!manager.statuses().contains_key("gone") && !manager.drop_restored());
}

#[test]
fn a_restored_status_of_a_pod_that_is_gone_is_removed() {
    let mut manager = ready_with(BTreeMap::from([(
        "gone".into(),
        SharedStatus::from(PodStatus::default()),
    )]));
    reconcile_all(&mut manager);
    // Reported by a peer, and then no longer.
    manager
        .facts
        .set_runtime_state("gone".into(), runtime_state(ContainerPhase::Running));
    manager.facts.set_runtime_state("gone".into(), None);
    assert!(manager.take_dirty().iter().any(|uid| *uid == "gone"));
    assert_eq!(
        manager.reconcile(&"gone".into()),
        StatusChange::Removed { last: None }
    );
    assert!(!manager.statuses().contains_key("gone"));
    assert_eq!(manager.reconcile(&"gone".into()), StatusChange::Unknown);
}
