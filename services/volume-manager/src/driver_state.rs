//! What is published of CSI drivers and their volumes, for the status reporter.

use polylet_wire::volume::v1::{
    WatchClaimSizesResponse, WatchDriversResponse, WatchVolumesInUseResponse,
};
use tokio::sync::watch;

use crate::convert;
use crate::core::state_of_world::StateOfWorld;

/// The published state of drivers and their volumes.
#[derive(Clone, Default)]
pub struct DriverState {
    /// The registered drivers.
    pub drivers: watch::Sender<WatchDriversResponse>,
    /// The attached volumes.
    pub in_use: watch::Sender<WatchVolumesInUseResponse>,
    /// The claims whose volumes are expanded.
    pub sizes: watch::Sender<WatchClaimSizesResponse>,
}

impl DriverState {
    /// Publishes what has changed.
    pub fn publish(&self, state: &mut StateOfWorld) {
        let drivers = convert::drivers(state);
        self.drivers.send_if_modified(|old| replace(old, drivers));
        if state.refresh_claims() {
            let (sizes, in_use) = (convert::claim_sizes(state), convert::volumes_in_use(state));
            self.sizes.send_if_modified(|old| replace(old, sizes));
            self.in_use.send_if_modified(|old| replace(old, in_use));
        }
    }
}

/// Replaces a value; returns whether it has changed.
pub fn replace<T: PartialEq>(old: &mut T, new: T) -> bool {
    let changed = *old != new;
    *old = new;
    changed
}
