use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use proptest::prelude::*;

use super::actual_state::{ActualPod, ActualVolume, MountState};
use super::blocked::Blocked;
use super::builtin::{Medium, PathCheck};
use super::desired_state::DesiredVolumes;
use super::layout::{self, VolumeId, VolumeKey};
use super::mount_plan::MountPlan;
use super::operation::{Operation, OperationState};
use super::reconciler::reconcile;

fn now() -> Timestamp {
    Timestamp::from_second(1_000_000).unwrap()
}

fn mount_plan(n: u8) -> Arc<MountPlan> {
    Arc::new(match n % 3 {
        0 => MountPlan::EmptyDir {
            medium: Medium::Disk,
            gid: None,
        },
        1 => MountPlan::EmptyDir {
            medium: Medium::Memory { size: Some(1) },
            gid: Some(5),
        },
        _ => MountPlan::HostPath {
            path: "/x".into(),
            check: PathCheck::None,
        },
    })
}

fn key(n: u8) -> VolumeKey {
    let plugin = [layout::EMPTY_DIR, layout::CONFIG_MAP][usize::from(n % 2)];
    (plugin.into(), format!("v{n}"))
}

fn mount() -> impl Strategy<Value = MountState> {
    prop_oneof![
        Just(MountState::NotMounted),
        any::<bool>().prop_map(|ready| MountState::Reconstructed { ready }),
        any::<u8>().prop_map(|n| MountState::Mounted(mount_plan(n))),
    ]
}

fn operation() -> impl Strategy<Value = OperationState> {
    prop_oneof![
        3 => Just(OperationState::Idle),
        1 => (0..5u32, any::<Option<u8>>()).prop_map(|(failures, target)| {
            OperationState::Running { failures }.fail("no".into(), target.map(mount_plan), now())
        }),
    ]
}

fn actual() -> impl Strategy<Value = ActualPod> {
    let volume = (mount(), operation()).prop_map(|(mount, operation)| ActualVolume {
        mount,
        operation,
        ..ActualVolume::default()
    });
    let volumes = proptest::collection::btree_map((0..6u8).prop_map(key), volume, 0..5);
    (volumes, operation()).prop_map(|(volumes, operation)| ActualPod { volumes, operation })
}

fn desired() -> impl Strategy<Value = DesiredVolumes> {
    let plan = prop_oneof![
        4 => any::<u8>().prop_map(|n| Ok(mount_plan(n))),
        1 => Just(Err(Blocked::Waiting("x".into()))),
    ];
    let volumes = proptest::collection::btree_map((0..6u8).prop_map(key), plan, 0..5);
    prop_oneof![
        3 => volumes.prop_map(DesiredVolumes::Present),
        2 => Just(DesiredVolumes::Absent),
        1 => Just(DesiredVolumes::Unknown),
    ]
}

/// The effect of an operation that succeeds; `None` if nothing is left of the pod.
fn effect(actual: Option<ActualPod>, operation: &Operation) -> Option<ActualPod> {
    let mut actual = actual?;
    match operation {
        Operation::SetUp(VolumeId { plugin, name, .. }, plan)
        | Operation::Update(VolumeId { plugin, name, .. }, plan, _) => {
            let volume = actual
                .volumes
                .entry((plugin.clone(), name.clone()))
                .or_default();
            *volume = ActualVolume {
                mount: MountState::Mounted(plan.clone()),
                ..ActualVolume::default()
            };
        }
        Operation::TearDown(VolumeId { plugin, name, .. }) => {
            actual.volumes.remove(&(plugin.clone(), name.clone()));
        }
        Operation::RemovePodDir(_) => return None,
    }
    Some(actual)
}

proptest! {
    #[test]
    fn reconciling_converges(desired in desired(), start in actual()) {
        // After every retry.
        let later = Timestamp::from_second(2_000_000).unwrap();
        let mut state = Some(start);
        for _ in 0..2 {
            let Some(actual) = &state else { break };
            for operation in reconcile(&"u".into(), &desired, actual, later).operations {
                state = effect(state, &operation);
            }
        }
        match (&desired, state) {
            (DesiredVolumes::Absent, state) => prop_assert_eq!(state, None),
            (_, None) => prop_assert!(false, "removed though not absent"),
            (_, Some(state)) => {
                let last = reconcile(&"u".into(), &desired, &state, later);
                prop_assert!(last.operations.is_empty() && last.wake_at.is_none());
            }
        }
    }

    #[test]
    fn order_of_operations_does_not_matter(desired in desired(), start in actual()) {
        let operations = reconcile(&"u".into(), &desired, &start, now()).operations;
        let forwards = operations.iter().fold(Some(start.clone()), effect);
        let backwards = operations.iter().rev().fold(Some(start), effect);
        prop_assert_eq!(forwards, backwards);
    }

    #[test]
    fn volumes_are_torn_down_only_if_absent(desired in desired(), start in actual()) {
        let operations = reconcile(&"u".into(), &desired, &start, now()).operations;
        if desired != DesiredVolumes::Absent {
            prop_assert!(operations.iter().all(|operation| matches!(operation, Operation::SetUp(..))));
        } else {
            prop_assert!(!operations.iter().any(|operation| matches!(operation, Operation::SetUp(..))));
        }
    }

    #[test]
    fn no_operation_is_started_twice(desired in desired(), start in actual()) {
        let mut started = start;
        for operation in reconcile(&"u".into(), &desired, &started, now()).operations {
            match operation {
                Operation::SetUp(id, plan) | Operation::Update(id, plan, _) => {
                    let key = (id.plugin, id.name);
                    started.volumes.entry(key).or_default().operation.start(Some(&plan));
                }
                Operation::TearDown(id) => {
                    started.volumes.entry((id.plugin, id.name)).or_default().operation.start(None);
                }
                Operation::RemovePodDir(_) => started.operation.start(None),
            }
        }
        prop_assert!(reconcile(&"u".into(), &desired, &started, now()).operations.is_empty());
    }
}

#[test]
fn retries_back_off_up_to_two_minutes() {
    let mut operation = OperationState::Idle;
    let mut waits = Vec::new();
    for _ in 0..10 {
        operation.start(None);
        operation = operation.fail("no".into(), None, now());
        let OperationState::Failed(failure) = &operation else {
            panic!("not failed")
        };
        waits.push(failure.retry_at.duration_since(now()).as_millis());
    }
    let expected = [
        500, 1000, 2000, 4000, 8000, 16_000, 32_000, 64_000, 122_000, 122_000,
    ];
    assert_eq!(waits, expected);
}

#[test]
fn a_failure_backs_off_but_another_target_does_not() {
    let failed =
        OperationState::Running { failures: 0 }.fail("no".into(), Some(mount_plan(0)), now());
    let volume = ActualVolume {
        operation: failed,
        ..ActualVolume::default()
    };
    let actual = ActualPod {
        volumes: BTreeMap::from([(key(0), volume)]),
        operation: OperationState::Idle,
    };
    let desired = |n| DesiredVolumes::Present(BTreeMap::from([(key(0), Ok(mount_plan(n)))]));
    let same = reconcile(&"u".into(), &desired(0), &actual, now());
    assert!(same.operations.is_empty() && same.wake_at.is_some());
    assert_eq!(
        reconcile(&"u".into(), &desired(1), &actual, now())
            .operations
            .len(),
        1
    );
    assert_eq!(
        reconcile(&"u".into(), &DesiredVolumes::Absent, &actual, now())
            .operations
            .len(),
        1
    );
}
