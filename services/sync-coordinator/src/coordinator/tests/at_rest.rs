//! Pods that do not change.

use polylet_model::Manifest;

use super::*;

#[test]
fn manifests_of_pods_at_rest_are_not_parsed() {
    let (mut coordinator, effects) = synced(RestoredState::default());
    set_desired(&mut coordinator, POD_SOURCES[0], desired("u1"), 1);
    coordinator.reconcile(at(1));
    let before = worker(&coordinator, "u1").pod.spec.clone().unwrap();
    assert!(before.manifest.is_parsed());
    let manifests = |coordinator: &Coordinator| {
        let worker = worker(coordinator, "u1");
        let spec = worker.pod.spec.clone().unwrap();
        [worker.manifest.clone().unwrap(), spec.manifest.clone()]
    };
    coordinator.on_quiet();
    assert!(!manifests(&coordinator).iter().any(Manifest::is_parsed));
    let spec = worker(&coordinator, "u1").pod.spec.clone().unwrap();
    // All containers are of one manifest, which is parsed once.
    assert_eq!(spec.containers[0].spec.name, "a");
    assert!(manifests(&coordinator).iter().all(Manifest::is_parsed));
    assert_eq!(spec, before);
    assert!(!effects.steps.borrow().is_empty());
}

#[test]
fn manifests_of_many_pods_are_not_parsed_at_once() {
    let (mut coordinator, _) = synced(RestoredState::default());
    let uids: Vec<String> = (0..300).map(|number| format!("u{number}")).collect();
    for uid in &uids {
        set_desired(&mut coordinator, POD_SOURCES[0], desired(uid), 1);
    }
    coordinator.reconcile(at(1));
    let parsed = |uid: &&String| {
        let worker = worker(&coordinator, uid);
        worker.pod.spec.as_ref().unwrap().manifest.is_parsed()
    };
    assert_eq!(uids.iter().filter(parsed).count(), 16);
}
