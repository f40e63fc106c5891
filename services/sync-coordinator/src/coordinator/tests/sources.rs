//! Pods by the source that serves them.

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
