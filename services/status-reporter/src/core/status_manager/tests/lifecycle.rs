//! Termination, removal and recreation of pods, and what else changes a status.

use super::*;

#[test]
fn termination_waits_for_container_exits() {
    let mut manager = ready();
    manager
        .facts
        .set_progress("u".into(), Some(progress(PodWorkerState::Terminated)));
    assert_eq!(reconcile_all(&mut manager), None);
    manager
        .facts
        .set_runtime_state("u".into(), runtime_state(ContainerPhase::Exited));
    let late = reconcile_all(&mut manager).unwrap();
    let state = late.status.container_statuses.as_ref().unwrap()[0]
        .state
        .clone()
        .unwrap();
    assert_eq!(state.terminated.unwrap().exit_code, 0);
    assert_eq!(late.status.phase.as_deref(), Some("Succeeded"));
}

#[test]
fn recreated_pod_starts_over() {
    let mut manager = ready();
    let terminal = TerminalDecision {
        phase: "Failed".into(),
        reason: "Evicted".into(),
        message: String::new(),
        decided_at: Some(at(50)),
        disruption_target: true,
    };
    manager.facts.set_progress(
        "u".into(),
        Some(SyncProgress {
            terminal: Some(terminal),
            ..progress(PodWorkerState::Terminated)
        }),
    );
    manager.facts.set_runtime_state("u".into(), None);
    assert_eq!(
        reconcile_all(&mut manager).unwrap().status.phase.as_deref(),
        Some("Failed")
    );
    manager.facts.set_progress(
        "u".into(),
        Some(SyncProgress {
            acknowledged_at: Some(at(200)),
            ..SyncProgress::default()
        }),
    );
    let again = reconcile_all(&mut manager).unwrap().status;
    assert_eq!(
        (again.phase.as_deref(), again.reason.as_deref()),
        (Some("Pending"), None)
    );
}

#[test]
fn waiting_reasons_are_published() {
    let mut manager = ready();
    let reason = WaitReason {
        container: "a".into(),
        reason: "ErrImagePull".into(),
        message: "no".into(),
        restarts: 0,
    };
    let waiting = SyncProgress {
        wait_reasons: vec![reason],
        waiting_for: vec!["image x".into()],
        ..progress(PodWorkerState::Syncing)
    };
    manager.facts.set_progress("u".into(), Some(waiting));
    let published = reconcile_all(&mut manager).unwrap();
    assert_eq!(published.waiting_for, ["image x"]);
    assert!(
        is_ready(&published.status),
        "a running container is not waiting"
    );
}

#[test]
fn only_changed_pods_are_reconciled() {
    let mut manager = ready();
    manager
        .facts
        .set_desired(ManifestSource::File, "v".into(), desired());
    assert_eq!(manager.take_dirty(), BTreeSet::from(["v".into()]));
    assert!(manager.take_dirty().is_empty());
    fact(&mut manager, 1);
    reconcile_all(&mut manager);
    fact(&mut manager, 1);
    assert_eq!(
        reconcile_all(&mut manager),
        None,
        "identical facts change nothing"
    );
}

#[test]
fn reclaimed_pod_has_no_ready_sandbox() {
    let mut manager = ready();
    manager
        .facts
        .set_runtime_state("u".into(), runtime_state(ContainerPhase::Exited));
    for reclaimed in [false, true] {
        let progress = SyncProgress {
            reclaimed,
            ..progress(PodWorkerState::Terminated)
        };
        manager.facts.set_progress("u".into(), Some(progress));
        let status = reconcile_all(&mut manager).unwrap().status;
        let mut conditions = status.conditions.iter().flatten();
        let has = conditions.find(|of| of.type_ == "PodReadyToStartContainers");
        assert_eq!(has.unwrap().status == "True", !reclaimed);
    }
}

#[test]
fn a_removed_init_container_of_a_static_pod_has_completed_before_the_restart() {
    let pod = json!({"metadata": {"name": "p", "namespace": "n", "uid": "u",
            "annotations": {"kubernetes.io/config.source": "file"}},
        "spec": {"initContainers": [{"name": "i", "image": "x"}],
            "containers": [{"name": "a", "image": "x"}]}});
    let manifest = Manifest::from_json(pod.to_string().as_bytes()).unwrap();
    let set_facts = |manager: &mut StatusManager, with_init: bool| {
        let desired = Some(DesiredManifest {
            manifest: manifest.clone(),
            stale: false,
        });
        let facts = &mut manager.facts;
        facts.set_desired(ManifestSource::File, "u".into(), desired);
        facts.set_progress("u".into(), Some(progress(PodWorkerState::Syncing)));
        let mut state = runtime_state(ContainerPhase::Running).unwrap();
        if with_init {
            let exited = runtime_state(ContainerPhase::Exited).unwrap();
            let init = exited.containers.into_iter().map(|it| RuntimeContainer {
                id: "i".into(),
                name: "i".into(),
                reason: "Completed".into(),
                ..it
            });
            state.containers.extend(init);
        }
        facts.set_runtime_state("u".into(), Some(state));
        sync_all(manager);
    };
    let message = |manager: &mut StatusManager| {
        let status = reconcile_all(manager).unwrap().status;
        let init = status.init_container_statuses.as_ref().unwrap()[0].clone();
        let end = init.state.unwrap().terminated.unwrap();
        assert_eq!(end.reason.as_deref(), Some("Completed"));
        end.message
    };
    let mut manager = StatusManager::new(BTreeMap::new());
    set_facts(&mut manager, true);
    assert_eq!(message(&mut manager), None);
    // Removed by someone while the pod runs, and then after a restart.
    let mut next = StatusManager::new(manager.statuses());
    set_facts(&mut next, false);
    let restored = message(&mut next).unwrap();
    assert!(restored.starts_with("Unable to get init container status"));
}

#[test]
fn a_deleted_pod_that_is_served_is_deletable_once_it_is_reclaimed() {
    let with_deletion = |deleted: bool| {
        let mut pod = json!({"metadata": {"name": "p", "namespace": "n", "uid": "u"},
            "spec": {"containers": [{"name": "a", "image": "x"}]}});
        if deleted {
            pod["metadata"]["deletionTimestamp"] = json!("2026-01-02T03:04:05Z");
        }
        Manifest::from_json(pod.to_string().as_bytes()).unwrap()
    };
    for (deleted, reclaimed, served, expected) in [
        (true, true, true, true),
        (false, true, true, false),
        (true, false, true, false),
        (true, true, false, false),
    ] {
        let manifest = with_deletion(deleted);
        let mut manager = ready();
        let source = ManifestSource::Api;
        manager
            .facts
            .set_desired(ManifestSource::File, "u".into(), None);
        let desired = DesiredManifest {
            manifest: manifest.clone(),
            stale: false,
        };
        manager
            .facts
            .set_desired(source, "u".into(), served.then_some(desired));
        manager
            .facts
            .set_runtime_state("u".into(), runtime_state(ContainerPhase::Exited));
        let progress = SyncProgress {
            reclaimed,
            last_manifest: (!served).then_some(manifest),
            ..progress(PodWorkerState::Terminated)
        };
        manager.facts.set_progress("u".into(), Some(progress));
        let published = reconcile_all(&mut manager).unwrap();
        assert_eq!(
            published.is_deletable(),
            expected,
            "{deleted} {reclaimed} {served}"
        );
    }
}
