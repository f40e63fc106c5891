//! The reconciler: from desired and actual state to operations, for one pod at a time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use polylet_model::PodUid;

use super::actual_state::{ActualPod, ActualVolume, MountState};
use super::blocked::Blocked;
use super::csi_volume::RequiredUpdate;
use super::desired_state::DesiredVolumes;
use super::layout::{VolumeId, VolumeKey};
use super::mount_plan::MountPlan;
use super::operation::{Operation, OperationState, VolumeUpdate};
use super::resize::Expansion;

/// How often volumes with `requiresRepublish` are published: upstream does it with each pod sync,
/// every 60 to 90 s.
const REPUBLISH_PERIOD: Duration = Duration::from_secs(75);

/// The operations to start now, and when to reconcile again if nothing happens.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Plan {
    /// The operations, independent of each other.
    pub operations: Vec<Operation>,
    /// The next retry or periodic operation.
    pub wake_at: Option<Timestamp>,
}

impl Plan {
    fn wake_no_later_than(&mut self, at: Timestamp) {
        self.wake_at = Some(self.wake_at.map_or(at, |present| present.min(at)));
    }

    fn start_or_wait(
        &mut self,
        state: &OperationState,
        target: Option<&Arc<MountPlan>>,
        now: Timestamp,
        operation: impl FnOnce() -> Operation,
    ) {
        match state.can_start(target, now) {
            Ok(()) => self.operations.push(operation()),
            Err(Some(at)) => self.wake_no_later_than(at),
            Err(None) => {}
        }
    }
}

/// The plan for one pod.
pub fn reconcile(
    uid: &PodUid,
    desired: &DesiredVolumes,
    actual: &ActualPod,
    now: Timestamp,
) -> Plan {
    match desired {
        DesiredVolumes::Unknown => Plan::default(),
        // The directory is being deleted: a new desired state waits for the end of that.
        _ if matches!(actual.operation, OperationState::Running { .. }) => Plan::default(),
        DesiredVolumes::Present(volumes) => reconcile_present(uid, volumes, actual, now),
        DesiredVolumes::Absent => reconcile_absent(uid, actual, now),
    }
}

fn reconcile_present(
    uid: &PodUid,
    volumes: &BTreeMap<VolumeKey, Result<Arc<MountPlan>, Blocked>>,
    actual: &ActualPod,
    now: Timestamp,
) -> Plan {
    let mut plan = Plan::default();
    let none = ActualVolume::default();
    for (key, desired) in volumes {
        let Ok(desired) = desired else { continue };
        let volume = actual.volumes.get(key).unwrap_or(&none);
        let required = match &volume.mount {
            MountState::Mounted(mounted) => match mounted.required_update(desired) {
                RequiredUpdate::Expand if volume.expansion_blocked.is_some() => {
                    RequiredUpdate::None
                }
                required => required,
            },
            // No container has it yet: it is expanded when it is set up.
            _ if desired.expansion() == Expansion::Announced && !volume.mount.is_usable() => {
                continue;
            }
            _ => RequiredUpdate::SetUp,
        };
        let republish_at = match volume.published_at.filter(|_| desired.requires_republish()) {
            Some(last) => last.checked_add(REPUBLISH_PERIOD).ok(),
            None => None,
        };
        let update = match (required, republish_at) {
            (RequiredUpdate::SetUp, _) => None,
            (RequiredUpdate::Expand, _) => Some(VolumeUpdate::Expand),
            (RequiredUpdate::Republish, _) => Some(VolumeUpdate::Republish),
            (RequiredUpdate::None, Some(at)) if at <= now => Some(VolumeUpdate::Republish),
            (RequiredUpdate::None, at) => {
                at.into_iter().for_each(|at| plan.wake_no_later_than(at));
                continue;
            }
        };
        plan.start_or_wait(&volume.operation, Some(desired), now, || {
            let id = VolumeId::new(uid.clone(), &key.0, &key.1);
            match update {
                Some(update) => Operation::Update(id, desired.clone(), update),
                None => Operation::SetUp(id, desired.clone()),
            }
        });
    }
    plan
}

fn reconcile_absent(uid: &PodUid, actual: &ActualPod, now: Timestamp) -> Plan {
    let mut plan = Plan::default();
    for ((plugin, name), volume) in &actual.volumes {
        plan.start_or_wait(&volume.operation, None, now, || {
            Operation::TearDown(VolumeId::new(uid.clone(), plugin, name))
        });
    }
    if actual.volumes.is_empty() {
        plan.start_or_wait(&actual.operation, None, now, || {
            Operation::RemovePodDir(uid.clone())
        });
    }
    plan
}
