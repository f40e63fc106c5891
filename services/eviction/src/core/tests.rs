use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use proptest::prelude::*;

use super::message::quantity;
use super::pressure::{Condition, Pressure};
use super::rank::{Candidate, ContainerUse, Usage, rank};
use super::round::{Act, Rules, Standing, evict, observe};
use super::signal::{Level, Levels, Signal};
use super::threshold::{Amount, Threshold, ThresholdError, parse};

const MI: u64 = 1 << 20;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + second).expect("a time")
}

fn hard(lines: &[(&str, &str)]) -> Vec<Threshold> {
    let map: BTreeMap<String, String> = lines
        .iter()
        .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
        .collect();
    let none = BTreeMap::new();
    let (thresholds, errors) = parse(&map, &none, &BTreeMap::new(), &none);
    assert_eq!(errors, []);
    thresholds
}

fn rules(lines: &[(&str, &str)]) -> Rules {
    Rules {
        thresholds: hard(lines),
        transition: Duration::from_secs(300),
        maximum_grace_seconds: 0,
        one_filesystem: true,
    }
}

fn level(available: u64, capacity: u64) -> Level {
    Level {
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
        usage: memory.map(|memory| Usage {
            memory,
            ..Usage::default()
        }),
        containers: vec![ContainerUse {
            name: "c".to_owned(),
            memory: memory.unwrap_or(0),
            memory_request: request,
            ..ContainerUse::default()
        }],
        ..Candidate::default()
    }
}

#[test]
fn thresholds_are_read_as_upstream_reads_them() {
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
    assert_eq!(found[0].amount, Amount::Absolute(100 * MI));
    assert_eq!(found[1].amount.of(1000), 100);

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
fn pressure_comes_at_once_and_goes_after_the_transition_period() {
    let transition = Duration::from_secs(300);
    let calm = Pressure::none(at(0));
    let pressed = calm.next(true, at(10), transition);
    assert!(pressed.under);
    assert_eq!(pressed.since, at(10));
    let held = pressed.next(false, at(309), transition);
    assert!(held.under);
    assert_eq!(held.since, at(10));
    let gone = held.next(false, at(310), transition);
    assert!(!gone.under);
    assert_eq!(gone.since, at(310));
}

#[test]
fn rank_follows_upstream() {
    let cases: &[(&str, Vec<Candidate>, &[&str])] = &[
        (
            "above the request before below it, whatever the priority",
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
            "the larger excess first",
            vec![
                pod("small", 0, 100, Some(150)),
                pod("large", 0, 100, Some(300)),
            ],
            &["large", "small"],
        ),
        (
            "no sample goes first of all",
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
fn a_round_presses_reclaims_and_then_evicts() {
    let rules = rules(&[("imagefs.available", "15%"), ("memory.available", "100Mi")]);
    let calm = Levels::from([
        (Signal::MemoryAvailable, level(500 * MI, 1000 * MI)),
        (Signal::ImageFsAvailable, level(500, 1000)),
    ]);
    let (standing, act) = observe(&rules, &Standing::default(), &calm, false, at(0));
    assert_eq!(act, Act::Nothing);
    assert!(standing.conditions.values().all(|p| !p.under));

    let mut full = calm.clone();
    full.insert(Signal::ImageFsAvailable, level(100, 1000));
    let (standing, act) = observe(&rules, &standing, &full, false, at(10));
    assert_eq!(
        act,
        Act::Reclaim {
            signal: Signal::ImageFsAvailable,
            bytes: 50
        }
    );
    assert!(standing.conditions[&Condition::Disk].under);
    assert!(!standing.conditions[&Condition::Memory].under);
    let (_, act) = observe(&rules, &standing, &full, true, at(11));
    assert!(
        matches!(act, Act::Evict { ref threshold } if threshold.signal == Signal::ImageFsAvailable)
    );

    // Memory goes before disk and cannot be reclaimed.
    full.insert(Signal::MemoryAvailable, level(10 * MI, 1000 * MI));
    let (_, act) = observe(&rules, &standing, &full, false, at(20));
    let Act::Evict { threshold } = act else {
        panic!("{act:?}")
    };
    let pods = [
        pod("hog", 0, 0, Some(600 * MI)),
        pod("mouse", 0, 0, Some(MI)),
    ];
    let verdict = evict(&rules, &threshold, &full, &pods).expect("a pod to evict");
    assert_eq!(verdict.name, "hog");
    assert_eq!(verdict.grace_seconds, 1);
    assert_eq!(
        verdict.message,
        "The node was low on resource: memory. Threshold quantity: 100Mi, available: 10Mi. \
         Container c was using 600Mi, request is 0, has larger consumption of memory. "
    );
}

#[test]
fn a_soft_threshold_waits_for_its_grace() {
    let map = BTreeMap::from([("memory.available".to_owned(), "1Gi".to_owned())]);
    let grace = BTreeMap::from([("memory.available".to_owned(), Duration::from_secs(60))]);
    let none = BTreeMap::new();
    let (thresholds, _) = parse(&none, &map, &grace, &none);
    let rules = Rules {
        thresholds,
        maximum_grace_seconds: 10,
        ..Rules::default()
    };
    let low = Levels::from([(Signal::MemoryAvailable, level(MI, 1000 * MI))]);
    let (standing, act) = observe(&rules, &Standing::default(), &low, false, at(0));
    assert_eq!(act, Act::Nothing);
    let (standing, act) = observe(&rules, &standing, &low, false, at(59));
    assert_eq!(act, Act::Nothing);
    let (_, act) = observe(&rules, &standing, &low, false, at(60));
    let Act::Evict { threshold } = act else {
        panic!("{act:?}")
    };
    let verdict = evict(&rules, &threshold, &low, &[pod("a", 0, 0, Some(1))]).expect("a pod");
    assert_eq!(verdict.grace_seconds, 10);
}

#[test]
fn a_met_threshold_stays_until_the_minimum_reclaim_is_there() {
    let map = BTreeMap::from([("memory.available".to_owned(), "100Mi".to_owned())]);
    let reclaim = BTreeMap::from([("memory.available".to_owned(), "50Mi".to_owned())]);
    let none = BTreeMap::new();
    let (thresholds, _) = parse(&map, &none, &BTreeMap::new(), &reclaim);
    let rules = Rules {
        thresholds,
        ..Rules::default()
    };
    let sample = |mi: u64| Levels::from([(Signal::MemoryAvailable, level(mi * MI, 1000 * MI))]);
    let fresh = observe(&rules, &Standing::default(), &sample(120), false, at(0));
    assert_eq!(fresh.1, Act::Nothing);
    let (standing, _) = observe(&rules, &Standing::default(), &sample(90), false, at(0));
    let (standing, act) = observe(&rules, &standing, &sample(120), false, at(1));
    assert!(matches!(act, Act::Evict { .. }));
    let (_, act) = observe(&rules, &standing, &sample(150), false, at(2));
    assert_eq!(act, Act::Nothing);
}

#[test]
fn quantities_read_as_people_write_them() {
    assert_eq!(quantity(Signal::MemoryAvailable, 0), "0Ki");
    assert_eq!(quantity(Signal::MemoryAvailable, 1500), "2Ki");
    assert_eq!(quantity(Signal::MemoryAvailable, 3 << 30), "3Gi");
    assert_eq!(quantity(Signal::PidAvailable, 1024), "1024");
}

proptest! {
    #[test]
    fn junk_thresholds_never_panic(name in ".{0,20}", value in ".{0,20}") {
        let map = BTreeMap::from([(name, value)]);
        let none = BTreeMap::new();
        let _ = parse(&map, &none, &BTreeMap::new(), &none);
    }

    #[test]
    fn rank_ignores_the_order_of_its_input(
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
