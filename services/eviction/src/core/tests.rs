use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use proptest::prelude::*;

use super::message::quantity;
use super::pressure::{ConditionState, NodeCondition};
use super::rank::{Candidate, ContainerUsage, PodUsage, rank};
use super::signal::{Observation, Observations, Signal};
use super::synchronize::{Action, EvictionConfig, State, evict, synchronize};
use super::threshold::{Threshold, ThresholdError, ThresholdValue, parse};

const MI: u64 = 1 << 20;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + second).expect("a time")
}

fn hard(thresholds: &[(&str, &str)]) -> Vec<Threshold> {
    let map: BTreeMap<String, String> = thresholds
        .iter()
        .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
        .collect();
    let none = BTreeMap::new();
    let (thresholds, errors) = parse(&map, &none, &BTreeMap::new(), &none);
    assert_eq!(errors, []);
    thresholds
}

fn config(thresholds: &[(&str, &str)]) -> EvictionConfig {
    EvictionConfig {
        thresholds: hard(thresholds),
        pressure_transition_period: Duration::from_secs(300),
        max_pod_grace_seconds: 0,
        one_filesystem: true,
    }
}

fn observation(available: u64, capacity: u64) -> Observation {
    Observation {
        available,
        capacity,
    }
}

fn pod(name: &str, priority: i32, request: u64, memory: Option<u64>) -> Candidate {
    Candidate {
        uid: name.to_owned(),
        name: name.to_owned(),
        namespace: "default".to_owned(),
        priority,
        memory_request: request,
        termination_grace_seconds: 30,
        usage: memory.map(|memory| PodUsage {
            memory,
            ..PodUsage::default()
        }),
        containers: vec![ContainerUsage {
            name: "c".to_owned(),
            memory: memory.unwrap_or(0),
            memory_request: request,
            ..ContainerUsage::default()
        }],
        ..Candidate::default()
    }
}

#[test]
fn thresholds_are_parsed_as_upstream() {
    let found = hard(&[
        ("memory.available", "100Mi"),
        ("nodefs.available", "10%"),
        ("imagefs.available", "0%"),
    ]);
    let signals: Vec<Signal> = found.iter().map(|t| t.signal).collect();
    assert_eq!(
        signals,
        [
            Signal::MemoryAvailable,
            Signal::NodeFsAvailable,
            Signal::AllocatableMemoryAvailable
        ]
    );
    assert_eq!(found[0].value, ThresholdValue::Quantity(100 * MI));
    assert_eq!(found[1].value.resolve(1000), 100);

    let wrong = BTreeMap::from([
        ("memory.free".to_owned(), "1Gi".to_owned()),
        ("pid.available".to_owned(), "110%".to_owned()),
        ("nodefs.available".to_owned(), "-1Gi".to_owned()),
    ]);
    let none = BTreeMap::new();
    let (found, errors) = parse(&wrong, &none, &BTreeMap::new(), &none);
    assert!(found.is_empty());
    assert_eq!(errors.len(), 3);
    assert!(errors.contains(&ThresholdError::UnknownSignal("memory.free".to_owned())));
}

#[test]
fn condition_is_active_at_once_and_until_the_transition_period_is_over() {
    let transition = Duration::from_secs(300);
    let inactive = ConditionState::inactive(at(0));
    let active = inactive.next(true, at(10), transition);
    assert!(active.active);
    assert_eq!(active.since, at(10));
    let still_active = active.next(false, at(309), transition);
    assert!(still_active.active);
    assert_eq!(still_active.since, at(10));
    let ended = still_active.next(false, at(310), transition);
    assert!(!ended.active);
    assert_eq!(ended.since, at(310));
}

#[test]
fn rank_follows_upstream() {
    let cases: &[(&str, Vec<Candidate>, &[&str])] = &[
        (
            "usage above the request goes before usage below it, whatever the priority",
            vec![
                pod("below", -5, 100, Some(50)),
                pod("above", 5, 100, Some(101)),
            ],
            &["above", "below"],
        ),
        (
            "lower priority first",
            vec![pod("high", 10, 0, Some(900)), pod("low", 0, 0, Some(1))],
            &["low", "high"],
        ),
        (
            "larger usage above the request first",
            vec![
                pod("small", 0, 100, Some(150)),
                pod("large", 0, 100, Some(300)),
            ],
            &["large", "small"],
        ),
        (
            "unknown usage first of all",
            vec![pod("known", -5, 0, Some(900)), pod("unknown", 10, 0, None)],
            &["unknown", "known"],
        ),
    ];
    for (what, pods, expected) in cases {
        let names: Vec<&str> = rank(pods, Signal::MemoryAvailable, true)
            .iter()
            .map(|pod| pod.name.as_str())
            .collect();
        assert_eq!(&names, expected, "{what}");
    }
    let mut critical = pod("critical", 0, 0, Some(1000));
    critical.critical = true;
    assert!(rank(&[critical], Signal::MemoryAvailable, true).is_empty());
}

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
    assert_eq!(
        action,
        Action::Reclaim {
            signal: Signal::ImageFsAvailable,
            bytes: 50
        }
    );
    assert!(state.conditions[&NodeCondition::Disk].active);
    assert!(!state.conditions[&NodeCondition::Memory].active);
    let (_, action) = synchronize(&config, &state, &full, true, at(11));
    assert!(
        matches!(action, Action::Evict { ref threshold } if threshold.signal == Signal::ImageFsAvailable)
    );

    // Memory comes before disk and cannot be reclaimed.
    full.insert(Signal::MemoryAvailable, observation(10 * MI, 1000 * MI));
    let (_, action) = synchronize(&config, &state, &full, false, at(20));
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
}

#[test]
fn soft_threshold_acts_after_its_grace_period() {
    let map = BTreeMap::from([("memory.available".to_owned(), "1Gi".to_owned())]);
    let grace = BTreeMap::from([("memory.available".to_owned(), Duration::from_secs(60))]);
    let none = BTreeMap::new();
    let (thresholds, _) = parse(&none, &map, &grace, &none);
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
    let map = BTreeMap::from([("memory.available".to_owned(), "100Mi".to_owned())]);
    let reclaim = BTreeMap::from([("memory.available".to_owned(), "50Mi".to_owned())]);
    let none = BTreeMap::new();
    let (thresholds, _) = parse(&map, &none, &BTreeMap::new(), &reclaim);
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

#[test]
fn quantities_have_a_binary_unit() {
    assert_eq!(quantity(Signal::MemoryAvailable, 0), "0Ki");
    assert_eq!(quantity(Signal::MemoryAvailable, 1500), "2Ki");
    assert_eq!(quantity(Signal::MemoryAvailable, 3 << 30), "3Gi");
    assert_eq!(quantity(Signal::PidAvailable, 1024), "1024");
}

proptest! {
    #[test]
    fn any_threshold_is_parsed_or_rejected(name in ".{0,20}", value in ".{0,20}") {
        let map = BTreeMap::from([(name, value)]);
        let none = BTreeMap::new();
        let _ = parse(&map, &none, &BTreeMap::new(), &none);
    }

    #[test]
    fn rank_does_not_depend_on_the_order_of_its_input(
        pods in prop::collection::vec((0_i32..3, 0_u64..3, prop::option::of(0_u64..5)), 0..8)
    ) {
        let mut pods: Vec<Candidate> = pods
            .into_iter()
            .enumerate()
            .map(|(n, (priority, request, usage))| pod(&format!("p{n}"), priority, request, usage))
            .collect();
        let names = |pods: &[Candidate]| -> Vec<String> {
            rank(pods, Signal::MemoryAvailable, true).iter().map(|p| p.uid.clone()).collect()
        };
        let forward = names(&pods);
        pods.reverse();
        prop_assert_eq!(forward, names(&pods));
    }
}
