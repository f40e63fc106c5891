//! Resources that pods are allocated, and resizes.

use super::*;
use crate::core::pod_spec::PodSpecView;

/// Sets a pod of the API server that requests this many CPUs.
fn request_cpus(coordinator: &mut Coordinator, uid: &str, cpus: u32, second: i64) {
    let manifest = manifest(uid, cpus);
    let pod = Pod {
        r#ref: Some(PodRef {
            uid: uid.to_owned(),
            namespace: "default".to_owned(),
            name: uid.to_owned(),
        }),
        manifest: manifest.raw().clone(),
        ..Default::default()
    };
    let update = Update::Upsert(uid.into(), pod);
    set_desired(coordinator, PodSource::Api, update, second);
    coordinator.reconcile(at(second));
}

fn manifest(uid: &str, cpus: u32) -> polylet_model::Manifest {
    let manifest = json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": uid, "namespace": "default", "uid": uid,
            "annotations": {"kubernetes.io/config.source": "api"}},
        "spec": {"containers": [{"name": "a", "image": "a:1",
            "resources": {"requests": {"cpu": cpus.to_string()}}}]}});
    polylet_model::Manifest::from_json(manifest.to_string().as_bytes()).unwrap()
}

fn set_allocatable(coordinator: &mut Coordinator, milli_cpus: i64) {
    let resources = &mut coordinator.state.node.state.resources;
    resources.allocatable = Some([("cpu".to_owned(), milli_cpus)].into());
}

#[test]
fn second_resize_waits_for_the_resources_that_the_first_pod_releases() {
    let entry = |uid: &str| {
        let spec = PodSpecView::from_manifest(&manifest(uid, 1), &[]);
        let checkpoint = PodCheckpoint {
            acknowledged_at: Some(at(-9)),
            request: Some(spec.request),
            allocated: Some(spec.allocation),
            ..Default::default()
        };
        (uid.to_owned(), checkpoint)
    };
    let (mut coordinator, effects) = synced(RestoredState {
        checkpoints: [entry("u1"), entry("u2")].into(),
        ..Default::default()
    });
    set_allocatable(&mut coordinator, 3000);
    let resized = || -> Vec<String> {
        let steps = effects.steps.take().into_iter();
        let resized = steps.filter(|(_, s)| matches!(s, Step::CheckpointAllocation { .. }));
        resized.map(|(uid, _)| uid).collect()
    };
    let finish_checkpoint = |coordinator: &mut Coordinator, uid: &str, second: i64| {
        let finished = Input::StepFinished {
            uid: uid.into(),
            key: StepKey::Checkpoint,
            outcome: Box::new(StepOutcome::Done),
            state: None,
        };
        coordinator.handle_input(finished, at(second));
        coordinator.reconcile(at(second));
    };
    request_cpus(&mut coordinator, "u1", 2, 1);
    // Not even while the checkpoint of the first one is being written.
    request_cpus(&mut coordinator, "u2", 2, 2);
    assert_eq!(resized(), ["u1"]);
    finish_checkpoint(&mut coordinator, "u1", 3);
    assert_eq!(resized(), Vec::<String>::new());
    request_cpus(&mut coordinator, "u1", 1, 4);
    assert_eq!(resized(), ["u1"]);
    // The capacity is free once the checkpoint with less is written.
    finish_checkpoint(&mut coordinator, "u1", 5);
    assert_eq!(resized(), ["u2"]);
    let used = coordinator.state.node.state.resources.allocated.used("cpu");
    assert_eq!(used, 3000);
}

#[test]
fn pod_of_a_kubelet_keeps_its_allocated_resources() {
    let before = PodSpecView::from_manifest(&manifest("u1", 1), &[]);
    let (mut coordinator, _) = synced(RestoredState {
        kubelet_allocations: [("u1".to_owned(), (*before.allocation).clone())].into(),
        ..Default::default()
    });
    set_allocatable(&mut coordinator, 3000);
    request_cpus(&mut coordinator, "u1", 4, 1);
    let checkpoint = &worker(&coordinator, "u1").pod.checkpoint;
    assert_eq!(checkpoint.allocated.as_deref(), Some(&*before.allocation));
    let request = checkpoint.request.as_ref().unwrap();
    assert_eq!(request.requests, before.request.requests);
}

#[test]
fn shrinking_pod_holds_its_resources_until_it_has_shrunk() {
    use polylet_wire::pleg::v1::{Container, ContainerPhase};
    let before = PodSpecView::from_manifest(&manifest("u1", 2), &[]);
    let checkpoint = PodCheckpoint {
        acknowledged_at: Some(at(-9)),
        request: Some(before.request),
        allocated: Some(before.allocation),
        ..Default::default()
    };
    let (mut coordinator, effects) = synced(RestoredState {
        checkpoints: BTreeMap::from([("u1".to_owned(), checkpoint)]),
        ..Default::default()
    });
    set_allocatable(&mut coordinator, 3000);
    let Update::Upsert(uid, mut running) = state("u1", 1) else {
        return;
    };
    running.sandboxes[0].ips = vec!["10.0.0.1".to_owned()];
    let mut container = Container {
        id: "c1".to_owned(),
        name: "a".to_owned(),
        sandbox_id: "s1".to_owned(),
        ..Default::default()
    };
    container.set_phase(ContainerPhase::Running);
    running.containers.push(container);
    coordinator.handle_input(Input::PodState(Update::Upsert(uid, running)), at(1));
    let used = |coordinator: &Coordinator| {
        let resources = &coordinator.state.node.state.resources;
        resources.allocated.used("cpu")
    };
    request_cpus(&mut coordinator, "u1", 1, 2);
    for (key, after) in [(StepKey::Checkpoint, 2000), (StepKey::Resize, 1000)] {
        assert_eq!(used(&coordinator), 2000, "before {key:?}");
        let steps = effects.steps.take();
        assert!(steps.iter().any(|(_, step)| step.key() == key), "{steps:?}");
        let finished = Input::StepFinished {
            uid: "u1".into(),
            key,
            outcome: Box::new(StepOutcome::Done),
            state: None,
        };
        coordinator.handle_input(finished, at(3));
        coordinator.reconcile(at(3));
        assert_eq!(used(&coordinator), after);
    }
}

/// The coordinator of a node of three CPUs, after a restart before which a pod had two of them.
fn restarted_beside(uid: &str) -> (Coordinator, Rc<RecordedEffects>) {
    let spec = PodSpecView::from_manifest(&manifest(uid, 2), &[]);
    let checkpoint = PodCheckpoint {
        acknowledged_at: Some(at(-9)),
        request: Some(spec.request),
        allocated: Some(spec.allocation),
        ..Default::default()
    };
    let (mut coordinator, effects) = synced(RestoredState {
        checkpoints: [(uid.to_owned(), checkpoint)].into(),
        ..Default::default()
    });
    set_allocatable(&mut coordinator, 3000);
    (coordinator, effects)
}

/// Whether the new pod was admitted or rejected, if either.
fn decided(effects: &RecordedEffects) -> Option<&'static str> {
    let steps = effects.steps.take().into_iter();
    let mut of_new = steps.filter(|(uid, _)| uid == "new").map(|(_, step)| step);
    of_new.find_map(|step| match step {
        Step::Checkpoint => Some("admitted"),
        Step::CheckpointTermination(_) => Some("rejected"),
        _ => None,
    })
}

#[test]
fn what_a_pod_had_that_is_gone_rejects_no_other() {
    // Known from its checkpoint alone, and from the runtime: reconciled before and after the new one.
    for (gone, in_runtime) in [("gone", false), ("gone", true), ("zone", true)] {
        let (mut coordinator, effects) = restarted_beside(gone);
        if in_runtime {
            coordinator.handle_input(Input::PodState(state(gone, 0)), at(1));
        }
        request_cpus(&mut coordinator, "new", 2, 1);
        assert_eq!(decided(&effects), None, "{gone}");
        sync_sources(&mut coordinator);
        coordinator.reconcile(at(2));
        assert_eq!(decided(&effects), Some("admitted"), "{gone}");
    }
}

#[test]
fn what_a_served_pod_had_before_a_restart_it_keeps() {
    let (mut coordinator, effects) = restarted_beside("old");
    request_cpus(&mut coordinator, "new", 2, 1);
    assert_eq!(decided(&effects), None);
    request_cpus(&mut coordinator, "old", 2, 2);
    assert_eq!(decided(&effects), Some("rejected"));
}
