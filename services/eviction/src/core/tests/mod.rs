use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use proptest::prelude::*;

use crate::core::pressure::{ConditionState, ContainerReclaim, NodeCondition};
use crate::core::rank::{Candidate, ContainerUsage, FileUsage, PodUsage, Requested, rank};
use crate::core::signal::{Observation, Observations, Signal};
use crate::core::synchronize::{Action, EvictionConfig, State, evict, is_resolved, synchronize};
use crate::core::threshold::{
    self, Threshold, ThresholdError, ThresholdSettings, ThresholdValue, with_container_fs,
};

mod finished_pods;
mod messages;
mod synchronization;

const MI: u64 = 1 << 20;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + second).expect("a time")
}

fn map(entries: &[(&str, &str)]) -> BTreeMap<String, String> {
    let owned = |(k, v): &(&str, &str)| ((*k).to_owned(), (*v).to_owned());
    entries.iter().map(owned).collect()
}

/// Hard and soft thresholds, soft ones with this grace period, and minimum reclaims.
fn parse(
    hard: &[(&str, &str)],
    soft: &[(&str, &str)],
    grace: u64,
    reclaim: &[(&str, &str)],
) -> (Vec<Threshold>, Vec<ThresholdError>) {
    let grace = |(name, _): &(&str, &str)| ((*name).to_owned(), Duration::from_secs(grace));
    threshold::parse(ThresholdSettings {
        hard: &map(hard),
        soft: &map(soft),
        soft_grace: &soft.iter().map(grace).collect(),
        minimum_reclaim: &map(reclaim),
        pods_are_limited: true,
    })
}

fn hard(thresholds: &[(&str, &str)]) -> Vec<Threshold> {
    let (thresholds, errors) = parse(thresholds, &[], 0, &[]);
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

fn requested(bytes: u64, text: &str) -> Requested {
    let text = text.to_owned();
    Requested { bytes, text }
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
            memory,
            memory_request: requested(request, ""),
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
    assert_eq!(
        found[0].value,
        ThresholdValue::Quantity(100 * MI, "100Mi".to_owned())
    );
    assert_eq!(found[1].value.resolve(1000), 100);

    let (found, errors) = parse(
        &[
            ("memory.free", "1Gi"),
            ("pid.available", "110%"),
            ("nodefs.available", "-1Gi"),
        ],
        &[],
        0,
        &[],
    );
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
fn pods_with_unmeasured_files_come_first_for_disks_only() {
    let files = |name: &str, files: Option<u64>| {
        let mut pod = pod(name, 0, 0, Some(MI));
        pod.usage = Some(PodUsage {
            memory: if name == "hung" { 1 } else { MI },
            files: files.map(|local_bytes| FileUsage {
                local_bytes,
                ..FileUsage::default()
            }),
            ..PodUsage::default()
        });
        pod
    };
    let pods = [files("large", Some(1 << 40)), files("hung", None)];
    let first = |signal| rank(&pods, signal, true)[0].name.as_str();
    assert_eq!(first(Signal::NodeFsAvailable), "hung");
    assert_eq!(first(Signal::MemoryAvailable), "large");
}

#[test]
fn thresholds_of_writable_layers_are_those_of_their_file_system() {
    let configured = hard(&[
        ("containerfs.available", "50%"),
        ("imagefs.available", "15%"),
        ("nodefs.available", "10%"),
        ("nodefs.inodesFree", "5%"),
    ]);
    let value = |thresholds: &[Threshold], signal| {
        let mut found = thresholds.iter().filter(|t| t.signal == signal);
        let value = found.next().map(|t| t.value.resolve(1000));
        assert!(found.next().is_none());
        value
    };
    let (one, ignored) = with_container_fs(&configured, true);
    assert!(ignored);
    assert_eq!(value(&one, Signal::ContainerFsAvailable), Some(100));
    assert_eq!(value(&one, Signal::ContainerFsInodesFree), Some(50));
    let (two, _) = with_container_fs(&configured, false);
    assert_eq!(value(&two, Signal::ContainerFsAvailable), Some(150));
    assert_eq!(value(&two, Signal::ContainerFsInodesFree), None);
    assert!(!with_container_fs(&one[1..2], false).1);
}

#[test]
fn allocatable_memory_can_have_a_threshold_of_its_own() {
    let (found, errors) = parse(&[("allocatableMemory.available", "10%")], &[], 0, &[]);
    assert_eq!(errors, []);
    assert_eq!(found[0].signal, Signal::AllocatableMemoryAvailable);
}

#[test]
fn requests_to_remove_containers_grow() {
    let first = ContainerReclaim::next(None, at(10));
    let second = ContainerReclaim::next(Some(first), at(5));
    assert!(second.request > first.request);
    // Of a new process instance.
    assert!(ContainerReclaim::next(None, at(11)).request > first.request);
}

proptest! {
    #[test]
    fn any_threshold_is_parsed_or_rejected(name in ".{0,20}", value in ".{0,20}") {
        let _ = parse(&[(&name, &value)], &[], 0, &[]);
    }

    #[test]
    fn whatever_the_configuration_accepts_is_parsed(
        signal in 0_usize..9, value in "[0-9]{1,3}(\\.[0-9])?(%|Mi|k|)", soft in any::<bool>()
    ) {
        let signals = [
            "memory.available", "allocatableMemory.available", "nodefs.available",
            "nodefs.inodesFree", "imagefs.available", "imagefs.inodesFree",
            "containerfs.available", "containerfs.inodesFree", "pid.available",
        ];
        let entry = [(signals[signal], value.as_str())];
        if polylet_kit::config::parse_threshold(signals[signal], &value).is_ok() {
            let (hard, soft): (&[_], &[_]) = if soft { (&[], &entry) } else { (&entry, &[]) };
            let (_, errors) = parse(hard, soft, 5, &entry);
            prop_assert_eq!(errors, []);
        }
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
