//! Attach limits of drivers: a pod that waits for a volume of a driver at its limit is rejected in
//! the end, and the driver's limit is refreshed. As upstream, only for drivers with
//! `nodeAllocatableUpdatePeriodSeconds`.

use jiff::{SignedDuration, Timestamp};

use super::blocked::Blocked;
use super::desired_state::DesiredVolumes;
use super::status::{StatusInput, VolumePhase, VolumeStatus};

/// How long a pod waits for its volumes before it is rejected: upstream's
/// `podAttachAndMountTimeout`.
pub const ATTACH_AND_MOUNT_TIMEOUT: SignedDuration = SignedDuration::from_secs(123);

/// When to refresh the limit of a driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AllocatableUpdate {
    /// The period in seconds.
    pub period_seconds: u64,
    /// A change of this number asks for a refresh at once.
    pub generation: u64,
}

/// The drivers at their limit that a pod waits for.
pub fn drivers_at_limit(desired: &DesiredVolumes) -> Vec<&str> {
    let DesiredVolumes::Present(volumes) = desired else {
        return Vec::new();
    };
    let drivers = volumes.values().filter_map(|volume| match volume {
        Err(Blocked::LimitReached { driver, .. }) => Some(driver.as_str()),
        _ => None,
    });
    drivers.collect()
}

/// When a pod that has waited since `since` is rejected, if a driver is at its limit.
pub fn rejection_time(desired: &DesiredVolumes, since: Option<Timestamp>) -> Option<Timestamp> {
    match drivers_at_limit(desired).is_empty() {
        true => None,
        false => since?.checked_add(ATTACH_AND_MOUNT_TIMEOUT).ok(),
    }
}

/// Rejects the pod, in the status of each volume that it waits for.
pub fn reject(input: &StatusInput<'_>, volumes: &mut [VolumeStatus]) {
    let blocked = |name: &str| {
        let DesiredVolumes::Present(desired) = input.desired else {
            return None;
        };
        desired.get(input.keys.get(name)?)?.as_ref().err()
    };
    let names = |is_listed: &dyn Fn(&VolumeStatus) -> bool| {
        let listed = volumes.iter().filter(|volume| is_listed(volume));
        let mut names: Vec<_> = listed.map(|volume| volume.name.as_str()).collect();
        names.sort_unstable();
        names.join(" ")
    };
    let is_not_attached = |volume: &VolumeStatus| {
        matches!(
            blocked(&volume.name),
            Some(Blocked::NotAttached(_) | Blocked::LimitReached { .. })
        )
    };
    let is_unresolved =
        |volume: &VolumeStatus| matches!(blocked(&volume.name), Some(Blocked::Unresolved(_)));
    let message = format!(
        "Node has reached its volume attachment limit, rejecting pod. unmounted volumes=[{}], \
         unattached volumes=[{}], failed to process volumes=[{}]: context deadline exceeded",
        names(&|volume| volume.phase != VolumePhase::Mounted),
        names(&is_not_attached),
        names(&is_unresolved),
    );
    let not_mounted = |volume: &&mut VolumeStatus| volume.phase != VolumePhase::Mounted;
    for volume in volumes.iter_mut().filter(not_mounted) {
        volume.rejected = true;
        volume.message.clone_from(&message);
    }
}
