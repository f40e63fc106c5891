//! Computes the status of a pod's volumes from its desired and actual volumes.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use jiff::Timestamp;

use super::actual_state::ActualVolume;
use super::attach_limits;
use super::blocked::Blocked;
use super::desired_state::DesiredVolumes;
use super::layout::{self, Layout, VolumeId, VolumeKey};
use super::mount_plan::MountPlan;
use super::operation::OperationState;
use super::spec::{VolumeSource, VolumeSpec};
use super::status::{PodVolumeStatus, StatusInput, VolumePhase, VolumeStatus};
use super::status_messages::{not_attached, resize_failed, set_up_failed, step_failed, unresolved};

const BEING_SET_UP: &str = "being set up";

type DesiredPlans = BTreeMap<VolumeKey, Result<Arc<MountPlan>, Blocked>>;

/// The status of a pod; `before` is the last one, for the times.
pub fn compute(
    input: &StatusInput<'_>,
    layout: &Layout,
    before: Option<&PodVolumeStatus>,
    now: Timestamp,
) -> PodVolumeStatus {
    let mut volumes = match input.desired {
        DesiredVolumes::Present(desired) => present(input, desired, layout),
        DesiredVolumes::Absent => absent(input),
        DesiredVolumes::Unknown => reconstructed(input, layout),
    };
    let waits = matches!(input.desired, DesiredVolumes::Present(_))
        && volumes
            .iter()
            .any(|volume| volume.phase != VolumePhase::Mounted);
    let waited_since = before.and_then(|before| before.waiting_since);
    let waiting_since = waits.then(|| waited_since.unwrap_or(now));
    let reject_at = attach_limits::rejection_time(input.desired, waiting_since);
    if reject_at.is_some_and(|at| at <= now) {
        attach_limits::reject(input, &mut volumes);
    }
    for volume in &mut volumes {
        let unchanged = |old: &&VolumeStatus| {
            old.name == volume.name && old.phase == volume.phase && old.message == volume.message
        };
        let old = before.and_then(|before| before.volumes.iter().find(unchanged));
        volume.since = old.map_or(now, |old| old.since);
    }
    PodVolumeStatus {
        pod: input.pod.clone(),
        sequence: input.sequence,
        volumes,
        waiting_since,
        reject_at,
    }
}

/// Volumes that are desired.
fn present(input: &StatusInput<'_>, desired: &DesiredPlans, layout: &Layout) -> Vec<VolumeStatus> {
    let volumes = input
        .spec
        .map(|spec| spec.volumes.as_slice())
        .unwrap_or_default();
    volumes
        .iter()
        .map(|volume| present_volume(volume, input, desired, layout))
        .collect()
}

fn present_volume(
    volume: &VolumeSpec,
    input: &StatusInput<'_>,
    desired: &DesiredPlans,
    layout: &Layout,
) -> VolumeStatus {
    let name = &volume.name;
    if let VolumeSource::Unsupported(blocked) = &volume.source {
        let key = (layout::UNRESOLVED.to_owned(), name.clone());
        let (_, message) = blocked_status(name, &key, blocked);
        return VolumeStatus::new(name, VolumePhase::Failed, message).repeated(blocked);
    }
    let Some(plugin) = volume.plugin() else {
        return VolumeStatus::new(name, VolumePhase::Failed, "not a volume of this node");
    };
    let unresolved_key = || (plugin.to_owned(), name.clone());
    let key = input.keys.get(name).cloned().unwrap_or_else(unresolved_key);
    let none = ActualVolume::default();
    let actual = input.actual.volumes.get(&key).unwrap_or(&none);
    let problem = match desired.get(&key) {
        Some(Err(blocked)) => Some(blocked_status(name, &key, blocked)),
        _ => failure(&key, actual).map(|message| (VolumePhase::Failed, message)),
    };
    // A volume that was usable stays so: a failing update disturbs no container.
    let stored = input
        .host_paths
        .get(name)
        .filter(|path| match volume.source {
            VolumeSource::Builtin(_) => true,
            VolumeSource::Claim(_) | VolumeSource::Migrated(_) => {
                is_still_mounted(input, path, layout)
            }
            _ => false,
        });
    if actual.mount.is_usable() || stored.is_some() {
        let message = problem.map_or_else(String::new, |(_, message)| message);
        let mut status = VolumeStatus::new(name, VolumePhase::Mounted, message);
        status.host_path = match (desired.get(&key), stored) {
            (Some(Ok(plan)), _) => host_path(plan, &input.pod.uid, &key, layout),
            (_, Some(path)) => path.clone(),
            _ => mount_path(&input.pod.uid, &key, layout),
        };
        return status;
    }
    match (problem, desired.get(&key)) {
        (Some((phase, message)), Some(Err(blocked))) => {
            VolumeStatus::new(name, phase, message).repeated(blocked)
        }
        (Some((phase, message)), _) => VolumeStatus::new(name, phase, message),
        (None, Some(Ok(plan))) if plan.is_self_contained() => {
            VolumeStatus::new(name, VolumePhase::Imminent, BEING_SET_UP)
        }
        (None, _) => VolumeStatus::new(name, VolumePhase::Waiting, BEING_SET_UP),
    }
}

fn blocked_status(name: &str, key: &VolumeKey, blocked: &Blocked) -> (VolumePhase, String) {
    let waiting = VolumePhase::Waiting;
    match blocked {
        Blocked::Waiting(message) => (waiting, message.clone()),
        Blocked::Imminent(message) => (VolumePhase::Imminent, message.clone()),
        Blocked::NotAttached(message) | Blocked::LimitReached { message, .. } => {
            (waiting, not_attached(name, message))
        }
        Blocked::Unresolved(message) => (waiting, unresolved(name, message)),
        Blocked::Missing(message) => (waiting, set_up_failed(key, message)),
        Blocked::MissingFor(step, message) => (waiting, step_failed(key, step, message)),
        Blocked::Failed(message) => (VolumePhase::Failed, set_up_failed(key, message)),
        Blocked::FailedIn(step, message) => (VolumePhase::Failed, step_failed(key, step, message)),
    }
}

/// The message of a failed operation.
fn failure(key: &VolumeKey, actual: &ActualVolume) -> Option<String> {
    let OperationState::Failed(failure) = &actual.operation else {
        return None;
    };
    let message = &failure.error.message;
    if actual.mount.is_usable() && failure.is_expansion(true) {
        return Some(resize_failed(key, message));
    }
    Some(match failure.error.step {
        Some(step) => step_failed(key, step, message),
        None => set_up_failed(key, message),
    })
}

/// Whether a volume, whose claim may not have been received yet, is mounted at the stored path.
fn is_still_mounted(input: &StatusInput<'_>, path: &str, layout: &Layout) -> bool {
    let uid = &input.pod.uid;
    let mut volumes = input.actual.volumes.iter();
    !Path::new(path).starts_with(layout.pod(uid))
        || volumes
            .any(|(key, volume)| volume.mount.is_usable() && mount_path(uid, key, layout) == path)
}

fn host_path(plan: &MountPlan, uid: &str, key: &VolumeKey, layout: &Layout) -> String {
    match plan {
        MountPlan::HostPath { path, .. } => path.clone(),
        _ => mount_path(uid, key, layout),
    }
}

fn mount_path(uid: &str, (plugin, name): &VolumeKey, layout: &Layout) -> String {
    let path = layout.mounted(&VolumeId::new(uid, plugin, name));
    path.to_string_lossy().into_owned()
}

/// Volumes of a pod that is torn down.
fn absent(input: &StatusInput<'_>) -> Vec<VolumeStatus> {
    let declared = input.spec.iter().flat_map(|spec| &spec.volumes);
    let mut names: Vec<&str> = declared.map(|volume| volume.name.as_str()).collect();
    for (_, name) in input.actual.volumes.keys() {
        if !names.contains(&name.as_str()) {
            names.push(name);
        }
    }
    let status = |name: &&str| {
        let mut volumes = input.actual.volumes.iter();
        let Some((_, volume)) = volumes.find(|((_, actual), _)| actual == name) else {
            return VolumeStatus::new(name, VolumePhase::Unmounted, "");
        };
        let message = match &volume.operation {
            OperationState::Failed(failure) if failure.target.is_none() => {
                failure.error.message.as_str()
            }
            _ => "",
        };
        VolumeStatus::new(name, VolumePhase::Releasing, message)
    };
    names.iter().map(status).collect()
}

/// Volumes found on disk, of a pod that has not been declared.
fn reconstructed(input: &StatusInput<'_>, layout: &Layout) -> Vec<VolumeStatus> {
    let on_disk = input.actual.volumes.iter().map(|(key, volume)| {
        let (plugin, name) = key;
        if !volume.mount.is_usable() {
            let message = "found on disk, not declared yet";
            return VolumeStatus::new(name, VolumePhase::Waiting, message);
        }
        let mut status = VolumeStatus::new(name, VolumePhase::Mounted, "");
        status.host_path = match input.host_paths.get(name) {
            Some(path) if plugin == layout::HOST_PATH => path.clone(),
            _ => mount_path(&input.pod.uid, key, layout),
        };
        status
    });
    let is_on_disk = |name: &String| {
        input
            .actual
            .volumes
            .keys()
            .any(|(_, actual)| actual == name)
    };
    let stored = input
        .host_paths
        .iter()
        .filter(|(name, path)| !is_on_disk(name) && is_still_mounted(input, path, layout))
        .map(|(name, path)| {
            let mut status = VolumeStatus::new(name, VolumePhase::Mounted, "");
            status.host_path.clone_from(path);
            status
        });
    on_disk.chain(stored).collect()
}
