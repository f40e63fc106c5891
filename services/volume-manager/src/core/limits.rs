//! Drivers that can attach no more volumes to this node: the pods that wait for one are refused in
//! the end, and the drivers are asked anew how many they can have. Upstream's rules, which count
//! for drivers whose object says how often they are to be asked.

use jiff::{SignedDuration, Timestamp};

use super::payload::Blocked;
use super::plan::Desired;
use super::view::{Known, Phase, VolumeView};

/// How long a pod waits for its volumes before it is refused: as upstream's look at them takes.
pub const PATIENCE: SignedDuration = SignedDuration::from_secs(123);

/// When a driver is asked anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Recount {
    /// Every so many seconds.
    pub every: u64,
    /// And each time that this is another number.
    pub asked: u64,
}

/// Who has reached its limit of those that a pod waits for: the drivers.
pub fn exhausted(desired: &Desired) -> Vec<&str> {
    let Desired::Keep(volumes) = desired else {
        return Vec::new();
    };
    let drivers = volumes.values().filter_map(|wanted| match wanted {
        Err(Blocked::Exhausted { driver, .. }) => Some(driver.as_str()),
        _ => None,
    });
    drivers.collect()
}

/// When a pod that has waited since then is refused, if that is to be.
pub fn due(desired: &Desired, since: Option<Timestamp>) -> Option<Timestamp> {
    match exhausted(desired).is_empty() {
        true => None,
        false => since?.checked_add(PATIENCE).ok(),
    }
}

/// Refuses the pod: what is told of each volume that it waits for.
pub fn refuse(known: &Known<'_>, volumes: &mut [VolumeView]) {
    let blocked = |name: &str| {
        let Desired::Keep(wanted) = known.desired else {
            return None;
        };
        wanted.get(known.slots.get(name)?)?.as_ref().err()
    };
    let listed = |of: &dyn Fn(&VolumeView) -> bool| {
        let mut names: Vec<_> = volumes.iter().filter(|volume| of(volume)).collect();
        names.sort_by(|a, b| a.name.cmp(&b.name));
        let names: Vec<_> = names.iter().map(|volume| volume.name.as_str()).collect();
        names.join(" ")
    };
    let is_away = |volume: &VolumeView| {
        let why = blocked(&volume.name);
        matches!(
            why,
            Some(Blocked::Unattached(_) | Blocked::Exhausted { .. })
        )
    };
    let is_unknown =
        |volume: &VolumeView| matches!(blocked(&volume.name), Some(Blocked::Unresolved(_)));
    let message = format!(
        "Node has reached its volume attachment limit, rejecting pod. unmounted volumes=[{}], \
         unattached volumes=[{}], failed to process volumes=[{}]: context deadline exceeded",
        listed(&|volume| volume.phase != Phase::Mounted),
        listed(&is_away),
        listed(&is_unknown),
    );
    for volume in volumes.iter_mut().filter(|v| v.phase != Phase::Mounted) {
        volume.refused = true;
        volume.message.clone_from(&message);
    }
}
