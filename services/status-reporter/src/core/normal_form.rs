//! The one form of a pod's status in memory: that in which statuses are computed.
//!
//! The API server returns what it was sent in another form. With both in one form they are equal, so that a
//! pod's status, which takes kilobytes, is in memory once.

use k8s_openapi::api::core::v1::{ContainerState, PodStatus};

use super::previous_status::is_owned;
use super::shared_status::SharedStatus;

/// A status in normal form.
///
/// - `lastState` is never absent at the API server; an empty one is none.
/// - Conditions of other writers come first, each kind in its order: computed statuses have them in front,
///   while others append theirs.
///
/// Everything else is computed as the API server stores it: times in whole seconds, no empty texts and lists,
/// and quantities in canonical form.
pub(crate) fn normalized(mut status: PodStatus) -> SharedStatus {
    let empty = ContainerState::default();
    for containers in [
        &mut status.init_container_statuses,
        &mut status.container_statuses,
        &mut status.ephemeral_container_statuses,
    ] {
        for container in containers.iter_mut().flatten() {
            container.last_state.take_if(|state| *state == empty);
        }
    }
    if let Some(conditions) = &mut status.conditions {
        conditions.sort_by_key(is_owned);
    }
    status.into()
}

/// The same of a status that may be in normal form already, which is kept then.
pub(crate) fn renormalized(status: SharedStatus) -> SharedStatus {
    normalized(PodStatus::clone(&status)).shared_with([&status])
}
