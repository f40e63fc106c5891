//! The published results.

use polylet_watch::{ProbeItemKey, Store};
use polylet_wire::prober::v1::ProbeStatus;

use crate::convert;
use crate::manager::Results;

/// The store behind `WatchProbeStatuses`.
pub type ProbeStatusStore = Store<ProbeItemKey, ProbeStatus>;

/// Publishes results as a state stream.
pub struct Publisher(ProbeStatusStore);

impl Publisher {
    /// Publishes the results of a previous process instance, before the initial sync.
    pub fn new(store: ProbeStatusStore, results: &Results) -> Self {
        let publisher = Publisher(store);
        publisher.publish(results);
        publisher
    }

    /// Replaces the published results.
    pub fn publish(&self, results: &Results) {
        self.0.replace(results.iter().map(convert::probe_status));
    }

    /// Replaces the published results and completes the initial sync.
    pub fn publish_synced(&self, results: &Results) {
        self.publish(results);
        self.0.mark_synced();
    }
}
