//! Pods by the source that serves them.

use polylet_wire::pleg::v1::{Container, ContainerPhase};

use super::*;

#[test]
fn served_pods_are_counted_until_their_source_removes_them() {
    let (mut coordinator, _effects) = synced(RestoredState::default());
    assert_eq!(coordinator.desired_pods(), (0, 0));
    for uid in ["u1", "u1", "u2"] {
        set_desired(&mut coordinator, PodSource::Api, desired(uid), 1);
    }
    set_desired(&mut coordinator, PodSource::File, desired("u3"), 1);
    assert_eq!(coordinator.desired_pods(), (2, 1));
    let removed = Update::Remove("u1".into());
    set_desired(&mut coordinator, PodSource::Api, removed, 2);
    // A source removes its own pods alone.
    let foreign = Update::Remove("u3".into());
    set_desired(&mut coordinator, PodSource::Api, foreign, 2);
    assert_eq!(coordinator.desired_pods(), (1, 1));
    let again = Update::Remove("u1".into());
    set_desired(&mut coordinator, PodSource::Api, again, 3);
    assert_eq!(coordinator.desired_pods(), (1, 1));
    // Another source takes a pod over.
    set_desired(&mut coordinator, PodSource::Http, desired("u2"), 3);
    assert_eq!(coordinator.desired_pods(), (0, 2));
    set_desired(&mut coordinator, PodSource::Api, desired("u1"), 4);
    assert_eq!(coordinator.desired_pods(), (1, 2));
    for uid in ["u1", "u2", "u3"] {
        coordinator.state.workers.remove(&uid.into());
    }
    assert_eq!(coordinator.desired_pods(), (0, 0));
}

#[test]
fn pod_with_an_invalid_manifest_is_counted() {
    let (mut coordinator, _effects) = synced(RestoredState::default());
    for second in [1, 2] {
        let invalid = Update::Upsert("u1".into(), Pod::default());
        set_desired(&mut coordinator, PodSource::Api, invalid, second);
        assert_eq!(coordinator.desired_pods(), (1, 0));
    }
}

/// The pods that are queued, in the order of their arrival.
fn queued(coordinator: &mut Coordinator) -> Vec<PodUid> {
    let workers = &mut coordinator.state.workers;
    std::iter::from_fn(|| workers.next_to_reconcile()).collect()
}

#[test]
fn pods_of_one_name_are_found_while_they_have_a_worker() {
    let (mut coordinator, _effects) = synced(RestoredState::default());
    for (uid, name) in [("u1", "web"), ("u2", "web"), ("u3", "we"), ("u4", "webs")] {
        let pod = desired_with(uid, name, json!([]));
        set_desired(&mut coordinator, PodSource::File, pod, 1);
    }
    let Update::Upsert(uid, mut elsewhere) = desired("u5") else {
        return;
    };
    if let Some(reference) = &mut elsewhere.r#ref {
        reference.namespace = "other".to_owned();
    }
    let elsewhere = Update::Upsert(uid, elsewhere);
    set_desired(&mut coordinator, PodSource::File, elsewhere, 1);
    for (uid, expected) in [
        ("u1", None),
        ("u2", Some("u1")),
        ("u3", None),
        ("u4", None),
        ("u5", None),
    ] {
        let blocked_by = name_conflicts::blocked_by(&coordinator.state.workers, &uid.into());
        assert_eq!(blocked_by.as_deref(), expected, "{uid}");
    }
    queued(&mut coordinator);
    name_conflicts::requeue_same_name(&mut coordinator.state.workers, &"u1".into());
    assert_eq!(queued(&mut coordinator), ["u1", "u2"]);
    let workers = &mut coordinator.state.workers;
    let reference = workers.remove(&"u1".into()).expect("a worker").reference;
    assert_eq!(name_conflicts::blocked_by(workers, &"u2".into()), None);
    assert_eq!(workers.with_name(&reference).count(), 1);
    workers.remove(&"u2".into());
    assert_eq!(workers.with_name(&reference).count(), 0);
}

#[test]
fn pods_of_the_cluster_do_not_wait_for_pods_of_the_same_name() {
    let (mut coordinator, _effects) = synced(RestoredState::default());
    for uid in ["u1", "u2"] {
        set_desired(&mut coordinator, PodSource::Api, desired(uid), 1);
    }
    sync_sources(&mut coordinator);
    coordinator.reconcile(at(1));
    let blocked_by = |coordinator: &Coordinator, uid: &str| {
        name_conflicts::blocked_by(&coordinator.state.workers, &uid.into())
    };
    assert_eq!(blocked_by(&coordinator, "u1"), None);
    assert_eq!(blocked_by(&coordinator, "u2"), None);
    set_desired(&mut coordinator, PodSource::File, desired("u3"), 2);
    let by_cluster = blocked_by(&coordinator, "u3");
    assert_eq!(by_cluster, None, "nor do static pods wait for them");
    set_desired(&mut coordinator, PodSource::File, desired("u4"), 3);
    assert_eq!(blocked_by(&coordinator, "u4").as_deref(), Some("u3"));
}

/// The state of a pod that the runtime alone knows, with a container in this phase.
fn state_with(uid: &str, phase: ContainerPhase, observed_at: i64) -> Update<PodUid, PodState> {
    let Update::Upsert(uid, mut state) = state(uid, observed_at) else {
        unreachable!("it is an upsert")
    };
    state.containers.push(Container {
        id: "c1".to_owned(),
        sandbox_id: "s1".to_owned(),
        name: "a".to_owned(),
        phase: phase.into(),
        ..Default::default()
    });
    Update::Upsert(uid, state)
}

/// The API server may be the new pod: without it the sources never sync.
#[test]
fn what_runs_of_a_pod_that_no_source_serves_blocks_the_next_one() {
    let (mut coordinator, _effects) = synced(RestoredState::default());
    let running = state_with("old", ContainerPhase::Running, 1);
    coordinator.handle_input(Input::PodState(running), at(1));
    set_desired(&mut coordinator, PodSource::File, desired("new"), 2);
    coordinator.reconcile(at(2));
    let blocked_by = |coordinator: &Coordinator| {
        let workers = &coordinator.state.workers;
        name_conflicts::blocked_by(workers, &"new".into())
    };
    assert_eq!(blocked_by(&coordinator).as_deref(), Some("old"));
    let exited = state_with("old", ContainerPhase::Exited, 3);
    coordinator.handle_input(Input::PodState(exited), at(3));
    assert_eq!(blocked_by(&coordinator), None);
    assert_eq!(queued(&mut coordinator), ["old", "new"], "decide again");
}
