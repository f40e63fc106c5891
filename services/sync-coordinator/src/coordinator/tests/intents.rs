//! What is saved before calls to the runtime.

use polylet_wire::pleg::v1::{Container, ContainerPhase};

use super::*;

/// A pod whose container with a postStart hook was created and not started.
fn created(coordinator: &mut Coordinator) {
    let manifest = json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "web", "namespace": "default", "uid": "u1"},
        "spec": {"hostNetwork": true, "containers": [{"name": "a", "image": "a:1",
            "lifecycle": {"postStart": {"exec": {"command": ["true"]}}}}]}});
    let Update::Upsert(uid, mut pod) = desired("u1") else {
        return;
    };
    pod.manifest = serde_json::to_vec(&manifest).unwrap().into();
    set_desired(coordinator, POD_SOURCES[0], Update::Upsert(uid, pod), 1);
    let Update::Upsert(uid, mut state) = state("u1", 2) else {
        return;
    };
    state.sandboxes[0].host_network = true;
    let mut container = Container {
        id: "c1".to_owned(),
        name: "a".to_owned(),
        sandbox_id: "s1".to_owned(),
        ..Default::default()
    };
    container.set_phase(ContainerPhase::Created);
    state.containers.push(container);
    coordinator.handle_input(Input::PodState(Update::Upsert(uid, state)), at(2));
}

#[test]
fn no_container_starts_while_its_hook_cannot_be_saved() {
    let (mut coordinator, effects) = synced(RestoredState::default());
    created(&mut coordinator);
    let starts = || {
        let steps = effects.steps.take().into_iter();
        let is_start = |(_, step): &(String, Step)| matches!(step, Step::StartContainer { .. });
        steps.filter(is_start).count()
    };
    effects.disk_full.set(true);
    coordinator.reconcile(at(2));
    assert_eq!(starts(), 0);
    let worker_of = |coordinator: &Coordinator| worker(coordinator, "u1").pod.clone();
    let key = StepKey::StartContainer("a".into());
    assert!(
        worker_of(&coordinator).failures.contains_key(&key),
        "it is retried"
    );
    effects.disk_full.set(false);
    coordinator.handle_input(Input::Timer, at(10));
    coordinator.reconcile(at(10));
    assert_eq!(starts(), 1);
    assert_eq!(
        worker(&coordinator, "u1").saved_lifecycle,
        worker_of(&coordinator).lifecycle
    );
}
