use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use proptest::prelude::*;

use super::layout::{self, VolumeId};
use super::payload::Blocked;
use super::plan::{ActualPod, ActualVolume, Desired, Holds, Slot, Step, Work, plan};
use super::spec::{Medium, PathCheck, SetUp};

fn now() -> Timestamp {
    Timestamp::from_second(1_000_000).unwrap()
}

fn set_up(n: u8) -> Arc<SetUp> {
    Arc::new(match n % 3 {
        0 => SetUp::EmptyDir {
            medium: Medium::Disk,
            gid: None,
        },
        1 => SetUp::EmptyDir {
            medium: Medium::Memory { size: Some(1) },
            gid: Some(5),
        },
        _ => SetUp::HostPath {
            path: "/x".into(),
            check: PathCheck::None,
        },
    })
}

fn slot(n: u8) -> Slot {
    let plugin = [layout::EMPTY_DIR, layout::CONFIG_MAP][usize::from(n % 2)];
    (plugin.into(), format!("v{n}"))
}

fn holds() -> impl Strategy<Value = Holds> {
    prop_oneof![
        Just(Holds::Nothing),
        any::<bool>().prop_map(|ready| Holds::Found { ready }),
        any::<u8>().prop_map(|n| Holds::Exactly(set_up(n))),
    ]
}

fn work() -> impl Strategy<Value = Work> {
    prop_oneof![
        3 => Just(Work::Idle),
        1 => (0..5u32, any::<Option<u8>>()).prop_map(|(failed, what)| {
            Work::Busy { failed }.failed("no".into(), what.map(set_up), now())
        }),
    ]
}

fn actual() -> impl Strategy<Value = ActualPod> {
    let volume = (holds(), work()).prop_map(|(holds, work)| ActualVolume {
        holds,
        work,
        ..ActualVolume::default()
    });
    let volumes = proptest::collection::btree_map((0..6u8).prop_map(slot), volume, 0..5);
    (volumes, work()).prop_map(|(volumes, work)| ActualPod { volumes, work })
}

fn desired() -> impl Strategy<Value = Desired> {
    let want = prop_oneof![
        4 => any::<u8>().prop_map(|n| Ok(set_up(n))),
        1 => Just(Err(Blocked::Waiting("x".into()))),
    ];
    let volumes = proptest::collection::btree_map((0..6u8).prop_map(slot), want, 0..5);
    prop_oneof![
        3 => volumes.prop_map(Desired::Keep),
        2 => Just(Desired::Gone),
        1 => Just(Desired::Unsaid),
    ]
}

/// What a step that succeeds does. `None` when nothing is left of the pod.
fn effect(actual: Option<ActualPod>, step: &Step) -> Option<ActualPod> {
    let mut actual = actual?;
    match step {
        Step::SetUp(VolumeId { plugin, name, .. }, what)
        | Step::Ask(VolumeId { plugin, name, .. }, what, _) => {
            let volume = actual
                .volumes
                .entry((plugin.clone(), name.clone()))
                .or_default();
            *volume = ActualVolume {
                holds: Holds::Exactly(what.clone()),
                ..ActualVolume::default()
            };
        }
        Step::TearDown(VolumeId { plugin, name, .. }) => {
            actual.volumes.remove(&(plugin.clone(), name.clone()));
        }
        Step::RemovePod(_) => return None,
    }
    Some(actual)
}

proptest! {
    #[test]
    fn effects_of_plans_leave_nothing_to_plan(desired in desired(), start in actual()) {
        // Late enough for every retry.
        let later = Timestamp::from_second(2_000_000).unwrap();
        let mut there = Some(start);
        for _ in 0..2 {
            let Some(actual) = &there else { break };
            for step in plan("u", &desired, actual, later).steps {
                there = effect(there, &step);
            }
        }
        match (&desired, there) {
            (Desired::Gone, there) => prop_assert_eq!(there, None),
            (_, None) => prop_assert!(false, "removed without being told"),
            (_, Some(there)) => {
                let last = plan("u", &desired, &there, later);
                prop_assert!(last.steps.is_empty() && last.wake_at.is_none());
            }
        }
    }

    #[test]
    fn order_of_effects_does_not_matter(desired in desired(), start in actual()) {
        let steps = plan("u", &desired, &start, now()).steps;
        let forwards = steps.iter().fold(Some(start.clone()), effect);
        let backwards = steps.iter().rev().fold(Some(start), effect);
        prop_assert_eq!(forwards, backwards);
    }

    #[test]
    fn nothing_is_taken_away_unless_gone(desired in desired(), start in actual()) {
        let steps = plan("u", &desired, &start, now()).steps;
        if desired != Desired::Gone {
            prop_assert!(steps.iter().all(|step| matches!(step, Step::SetUp(..))));
        } else {
            prop_assert!(!steps.iter().any(|step| matches!(step, Step::SetUp(..))));
        }
    }

    #[test]
    fn nothing_is_begun_twice(desired in desired(), start in actual()) {
        let mut begun = start;
        for step in plan("u", &desired, &begun, now()).steps {
            match step {
                Step::SetUp(id, what) | Step::Ask(id, what, _) => {
                    let slot = (id.plugin, id.name);
                    begun.volumes.entry(slot).or_default().work.begin(Some(&what));
                }
                Step::TearDown(id) => {
                    begun.volumes.entry((id.plugin, id.name)).or_default().work.begin(None);
                }
                Step::RemovePod(_) => begun.work.begin(None),
            }
        }
        prop_assert!(plan("u", &desired, &begun, now()).steps.is_empty());
    }
}

#[test]
fn waits_double_up_to_two_minutes() {
    let mut work = Work::Idle;
    let mut waits = Vec::new();
    for _ in 0..10 {
        work.begin(None);
        work = work.failed("no".into(), None, now());
        let Work::Failed(failure) = &work else {
            panic!("not failed")
        };
        waits.push(failure.retry_at.duration_since(now()).as_millis());
    }
    let wanted = [
        500, 1000, 2000, 4000, 8000, 16_000, 32_000, 64_000, 120_000, 120_000,
    ];
    assert_eq!(waits, wanted);
}

#[test]
fn a_failure_waits_but_something_new_does_not() {
    let failed = Work::Busy { failed: 0 }.failed("no".into(), Some(set_up(0)), now());
    let volume = ActualVolume {
        work: failed,
        ..ActualVolume::default()
    };
    let actual = ActualPod {
        volumes: BTreeMap::from([(slot(0), volume)]),
        work: Work::Idle,
    };
    let want = |n| Desired::Keep(BTreeMap::from([(slot(0), Ok(set_up(n)))]));
    let same = plan("u", &want(0), &actual, now());
    assert!(same.steps.is_empty() && same.wake_at.is_some());
    assert_eq!(plan("u", &want(1), &actual, now()).steps.len(), 1);
    assert_eq!(plan("u", &Desired::Gone, &actual, now()).steps.len(), 1);
}
