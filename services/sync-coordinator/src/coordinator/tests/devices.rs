//! What device-manager is asked, and when its answers are not needed any more.

use super::*;
use crate::core::devices::{ContainerDeviceLimits, DeviceAdmission, PodDeviceRequest};
use crate::state::device_requests::pod_request;

/// Sets a pod of the API server whose containers request these numbers of devices.
fn request_devices(coordinator: &mut Coordinator, uid: &str, init: u32, regular: u32) {
    let resources = |count: u32| json!({"limits": {"example.com/device": count.to_string()}});
    let manifest = json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": uid, "namespace": "default", "uid": uid},
        "spec": {
            "initContainers": [
                {"name": "i", "image": "a:1", "resources": resources(init)},
                {"name": "s", "image": "a:1", "restartPolicy": "Always", "resources": resources(init)}],
            "containers": [
                {"name": "plain", "image": "a:1"},
                {"name": "a", "image": "a:1", "resources": resources(regular)}]}});
    let pod = Pod {
        r#ref: Some(PodRef {
            uid: uid.to_owned(),
            namespace: "default".to_owned(),
            name: uid.to_owned(),
        }),
        manifest: serde_json::to_vec(&manifest).unwrap().into(),
        ..Default::default()
    };
    let update = Update::Upsert(uid.into(), pod);
    set_desired(coordinator, PodSource::Api, update, 1);
    coordinator.reconcile(at(1));
}

fn request(coordinator: &Coordinator, uid: &str) -> PodDeviceRequest {
    pod_request(&coordinator.state, uid).expect("it has a spec")
}

fn finish(coordinator: &mut Coordinator, uid: &str, key: StepKey, outcome: StepOutcome) {
    let finished = Input::StepFinished {
        uid: uid.into(),
        key,
        outcome: Box::new(outcome),
        state: None,
    };
    coordinator.handle_input(finished, at(2));
    coordinator.reconcile(at(2));
}

fn allocated() -> StepOutcome {
    StepOutcome::DevicesAllocated(DeviceAdmission::Allocated(Default::default()))
}

#[test]
fn containers_are_requested_in_order_with_what_is_known_of_them() {
    let (mut coordinator, effects) = synced(RestoredState::default());
    request_devices(&mut coordinator, "u1", 1, 2);
    let steps = effects.steps.take();
    assert_eq!(steps, [("u1".to_owned(), Step::AllocateDevices)]);
    let expected = |container: &str, count: u64, releases_devices, running| ContainerDeviceLimits {
        container: container.to_owned(),
        limits: [("example.com/device".to_owned(), count)].into(),
        releases_devices,
        running,
    };
    let before = request(&coordinator, "u1");
    assert_eq!(
        before.containers,
        [
            expected("i", 1, true, false),
            expected("s", 1, false, false),
            expected("a", 2, false, false)
        ]
    );
    assert!(!before.pods_synced);
    sync_sources(&mut coordinator);
    let Update::Upsert(uid, mut state) = state("u1", 3) else {
        panic!("a state")
    };
    let mut container = polylet_wire::pleg::v1::Container {
        id: "c1".to_owned(),
        name: "a".to_owned(),
        sandbox_id: "s1".to_owned(),
        ..Default::default()
    };
    container.set_phase(polylet_wire::pleg::v1::ContainerPhase::Running);
    state.containers.push(container);
    coordinator.handle_input(Input::PodState(Update::Upsert(uid, state)), at(3));
    let after = request(&coordinator, "u1");
    assert_eq!(
        after.containers.last(),
        Some(&expected("a", 2, false, true))
    );
    assert!(after.pods_synced);
}

#[test]
fn pods_that_may_use_devices_are_active() {
    let (mut coordinator, _effects) = synced(RestoredState::default());
    sync_sources(&mut coordinator);
    for uid in [
        "running", "rejected", "refused", "dropped", "ended", "waiting",
    ] {
        request_devices(&mut coordinator, uid, 0, 1);
    }
    set_desired(&mut coordinator, PodSource::Api, desired("plain"), 1);
    coordinator.reconcile(at(1));
    let active = |coordinator: &Coordinator| request(coordinator, "waiting").active_pod_uids;
    let all = [
        "dropped", "ended", "refused", "rejected", "running", "waiting",
    ];
    assert_eq!(active(&coordinator), all);
    let key = || StepKey::AllocateDevices;
    finish(&mut coordinator, "running", key(), allocated());
    let refusal = StepOutcome::DevicesAllocated(DeviceAdmission::Refused("none".into()));
    finish(&mut coordinator, "refused", key(), refusal);
    coordinator.state.node.state.pressure.disk = true;
    finish(&mut coordinator, "rejected", key(), allocated());
    coordinator.state.node.state.pressure.disk = false;
    let removed = Update::Remove("dropped".into());
    set_desired(&mut coordinator, PodSource::Api, removed, 2);
    let ended = coordinator.state.workers.get_mut("ended").unwrap();
    ended.plan.phase = crate::core::plan::SyncPhase::Terminated;
    // What is no longer served is still being removed.
    assert_eq!(active(&coordinator), ["dropped", "running", "waiting"]);
    // A started pod that ends keeps its devices until it has ended.
    let running = coordinator.state.workers.get_mut("running").unwrap();
    assert!(running.pod.checkpoint.request.is_some(), "admitted");
    running.pod.checkpoint.termination = Some(crate::core::admission::preempted(at(2)));
    assert_eq!(active(&coordinator), ["dropped", "running", "waiting"]);
}

#[test]
fn the_removal_of_a_pod_cancels_its_allocation() {
    let (mut coordinator, _effects) = synced(RestoredState::default());
    sync_sources(&mut coordinator);
    request_devices(&mut coordinator, "u1", 0, 1);
    let token = CancellationToken::new();
    let worker = coordinator.state.workers.get_mut("u1").unwrap();
    worker
        .cancel_tokens
        .insert(StepKey::AllocateDevices, token.clone());
    coordinator.reconcile(at(2));
    assert!(!token.is_cancelled());
    let removed = Update::Remove("u1".into());
    set_desired(&mut coordinator, PodSource::Api, removed, 3);
    coordinator.reconcile(at(3));
    assert!(token.is_cancelled());
}
