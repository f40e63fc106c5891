//! From observations to conditions and actions.

use super::*;

#[test]
fn synchronize_sets_the_condition_reclaims_and_then_evicts() {
    let config = config(&[("imagefs.available", "15%"), ("memory.available", "100Mi")]);
    let normal = Observations::from([
        (Signal::MemoryAvailable, observation(500 * MI, 1000 * MI)),
        (Signal::ImageFsAvailable, observation(500, 1000)),
    ]);
    let (state, action) = synchronize(&config, &State::default(), &normal, false, at(0));
    assert_eq!(action, Action::None);
    assert!(state.conditions.values().all(|p| !p.active));

    let mut full = normal.clone();
    full.insert(Signal::ImageFsAvailable, observation(100, 1000));
    let (state, action) = synchronize(&config, &state, &full, false, at(10));
    let Action::Reclaim { threshold } = action else {
        panic!("{action:?}")
    };
    assert_eq!(threshold.signal, Signal::ImageFsAvailable);
    assert!(state.conditions[&NodeCondition::Disk].active);
    assert!(!state.conditions[&NodeCondition::Memory].active);
    assert_eq!(is_resolved(&config, &threshold, &full), Some(false));
    assert_eq!(is_resolved(&config, &threshold, &normal), Some(true));

    // Meanwhile nothing is done for the disk, but for memory.
    let (_, action) = synchronize(&config, &state, &full, true, at(11));
    assert_eq!(action, Action::None);
    full.insert(Signal::MemoryAvailable, observation(10 * MI, 1000 * MI));
    let (_, action) = synchronize(&config, &state, &full, true, at(20));
    let Action::Evict { threshold } = action else {
        panic!("{action:?}")
    };
    let pods = [
        pod("hog", 0, 0, Some(600 * MI)),
        pod("mouse", 0, 0, Some(MI)),
    ];
    let eviction = evict(&config, &threshold, &full, &pods).expect("a pod to evict");
    assert_eq!(eviction.name, "hog");
    assert_eq!(eviction.grace_seconds, 1);
    assert_eq!(
        eviction.message,
        "The node was low on resource: memory. Threshold quantity: 100Mi, available: 10Mi. \
         Container c was using 600Mi, request is 0, has larger consumption of memory. "
    );
    let annotations = [
        ("offending_containers", "c"),
        ("offending_containers_usage", "600Mi"),
        ("starved_resource", "memory"),
    ];
    assert_eq!(eviction.event_annotations, map(&annotations));
}

#[test]
fn soft_threshold_acts_after_its_grace_period() {
    let (thresholds, _) = parse(&[], &[("memory.available", "1Gi")], 60, &[]);
    let config = EvictionConfig {
        thresholds,
        max_pod_grace_seconds: 10,
        ..EvictionConfig::default()
    };
    let low = Observations::from([(Signal::MemoryAvailable, observation(MI, 1000 * MI))]);
    let (state, action) = synchronize(&config, &State::default(), &low, false, at(0));
    assert_eq!(action, Action::None);
    let (state, action) = synchronize(&config, &state, &low, false, at(59));
    assert_eq!(action, Action::None);
    let (_, action) = synchronize(&config, &state, &low, false, at(60));
    let Action::Evict { threshold } = action else {
        panic!("{action:?}")
    };
    let eviction = evict(&config, &threshold, &low, &[pod("a", 0, 0, Some(1))]).expect("a pod");
    assert_eq!(eviction.grace_seconds, 10);
}

#[test]
fn met_threshold_stays_met_until_the_minimum_reclaim_is_available() {
    let reclaim = [("memory.available", "50Mi")];
    let (thresholds, _) = parse(&[("memory.available", "100Mi")], &[], 0, &reclaim);
    let config = EvictionConfig {
        thresholds,
        ..EvictionConfig::default()
    };
    let sample =
        |mi: u64| Observations::from([(Signal::MemoryAvailable, observation(mi * MI, 1000 * MI))]);
    let first = synchronize(&config, &State::default(), &sample(120), false, at(0));
    assert_eq!(first.1, Action::None);
    let (state, _) = synchronize(&config, &State::default(), &sample(90), false, at(0));
    let (state, action) = synchronize(&config, &state, &sample(120), false, at(1));
    assert!(matches!(action, Action::Evict { .. }));
    let (_, action) = synchronize(&config, &state, &sample(150), false, at(2));
    assert_eq!(action, Action::None);
}

/// Upstream applies the minimum reclaim only to thresholds whose grace period had passed.
#[test]
fn minimum_reclaim_waits_for_the_grace_period() {
    let reclaim = [("memory.available", "50Mi")];
    let (thresholds, _) = parse(&[], &[("memory.available", "100Mi")], 60, &reclaim);
    let config = EvictionConfig {
        thresholds,
        ..EvictionConfig::default()
    };
    let sample =
        |mi: u64| Observations::from([(Signal::MemoryAvailable, observation(mi * MI, 1000 * MI))]);
    let (state, _) = synchronize(&config, &State::default(), &sample(90), false, at(0));
    // Above the threshold before its grace is over, below threshold and reclaim.
    let (state, action) = synchronize(&config, &state, &sample(120), false, at(30));
    assert_eq!(action, Action::None);
    assert!(state.met_since.is_empty(), "{state:?}");
    let (state, _) = synchronize(&config, &state, &sample(90), false, at(40));
    let (state, action) = synchronize(&config, &state, &sample(90), false, at(100));
    assert!(matches!(action, Action::Evict { .. }));
    let (_, action) = synchronize(&config, &state, &sample(120), false, at(110));
    assert!(matches!(action, Action::Evict { .. }));
}

#[test]
fn what_cannot_be_observed_changes_nothing() {
    let config = config(&[("nodefs.available", "10%"), ("imagefs.available", "15%")]);
    let full = Observations::from([
        (Signal::NodeFsAvailable, observation(1, 100)),
        (Signal::ImageFsAvailable, observation(50, 100)),
    ]);
    let (active, action) = synchronize(&config, &State::default(), &full, false, at(0));
    assert!(matches!(action, Action::Reclaim { .. }));
    let mut unknown = Observations::from([(Signal::ImageFsAvailable, observation(50, 100))]);
    unknown.fail(Signal::NodeFsAvailable);
    // Long after the transition period the condition is still active, and nothing is done.
    let (held, action) = synchronize(&config, &active, &unknown, false, at(4000));
    assert!(held.conditions[&NodeCondition::Disk].active);
    assert_eq!(action, Action::None);
    assert_eq!(held.met_since, active.met_since);
    // Nor does it become active.
    let (state, _) = synchronize(&config, &State::default(), &unknown, false, at(0));
    assert!(!state.conditions[&NodeCondition::Disk].active);
    // The file system that answers is still seen.
    unknown.insert(Signal::ImageFsAvailable, observation(1, 100));
    let (state, action) = synchronize(&config, &state, &unknown, false, at(10));
    assert!(state.conditions[&NodeCondition::Disk].active);
    assert!(matches!(action, Action::Reclaim { ref threshold }
        if threshold.signal == Signal::ImageFsAvailable));
    // Not known to be resolved: neither given up nor a reason to evict.
    let threshold = &hard(&[("nodefs.available", "10%")])[0];
    assert_eq!(is_resolved(&config, threshold, &unknown), None);
}
