//! Status messages and event reasons, in upstream's wording.

use super::layout::{self, VolumeKey};

const SET_UP_FAILED: &str = "MountVolume.SetUp failed for volume";
const MAP_FAILED: &str = "MapVolume.SetUpDevice failed for volume";
const RESIZE_FAILED: &str = "NodeExpandVolume.NodeExpandVolume failed for volume";
const NOT_MOUNTED: &str = "Unable to attach or mount volumes:";

/// A volume that cannot be set up. A volume by claim is named as the persistent volume.
pub(super) fn set_up_failed((plugin, name): &VolumeKey, error: &str) -> String {
    let what = match layout::device_plugin(plugin) {
        Some(_) => MAP_FAILED,
        None => SET_UP_FAILED,
    };
    format!("{what} \"{name}\" : {error}")
}

/// A volume whose setting up fails in one step.
pub(super) fn step_failed((_, name): &VolumeKey, step: &str, error: &str) -> String {
    format!("{step} for volume \"{name}\" : {error}")
}

/// A mounted volume that cannot be expanded.
pub(super) fn resize_failed((_, name): &VolumeKey, error: &str) -> String {
    format!("{RESIZE_FAILED} \"{name}\" : {error}")
}

/// A volume that is not attached.
pub(super) fn not_attached(name: &str, error: &str) -> String {
    format!(
        "{NOT_MOUNTED} unmounted volumes=[{name}], unattached volumes=[{name}], failed to process volumes=[]: {error}"
    )
}

/// A volume whose claim cannot be resolved.
pub(super) fn unresolved(name: &str, error: &str) -> String {
    format!(
        "{NOT_MOUNTED} unmounted volumes=[{name}], unattached volumes=[], failed to process volumes=[{name}]: {error}"
    )
}

/// The reason of the event for a status message; `None` for messages without an event.
pub fn event_reason(message: &str) -> Option<&'static str> {
    let starts_with = |prefix| message.starts_with(prefix);
    if starts_with("MapVolume.") {
        Some("FailedMapVolume")
    } else if starts_with(RESIZE_FAILED) {
        Some("VolumeResizeFailed")
    } else if starts_with("MountVolume.") || starts_with(NOT_MOUNTED) {
        Some("FailedMount")
    } else {
        None
    }
}
