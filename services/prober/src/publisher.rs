//! The published results.

use polylet_watch::{ProbeItemKey, Store};
use polylet_wire::prober::v1::ProbeStatus;

use crate::convert;
use crate::manager::{ResultChanges, Results};

/// The store behind `WatchProbeStatuses`.
pub type ProbeStatusStore = Store<ProbeItemKey, ProbeStatus>;

/// Publishes results as a state stream.
pub struct Publisher(ProbeStatusStore);

impl Publisher {
    /// Publishes the results of a previous process instance, before the initial sync.
    pub fn new(store: ProbeStatusStore, results: &Results) -> Self {
        store.replace(results.iter().map(convert::probe_status));
        Publisher(store)
    }

    /// Publishes changes of results, which have been saved.
    pub fn publish(&self, changes: &ResultChanges) {
        for (id, result) in changes.iter() {
            match result {
                Some(result) => {
                    let (key, status) = convert::probe_status((id, result));
                    self.0.upsert(key, status);
                }
                None => {
                    self.0.remove(&convert::probe_item_key(id));
                }
            }
        }
    }

    /// Completes the initial sync. Of the changes that are still to be saved, removals are published
    /// before it: the containers are gone, and a restart would not bring their results back.
    pub fn publish_synced(&self, unsaved: &ResultChanges) {
        for (id, _) in unsaved.iter().filter(|(_, result)| result.is_none()) {
            self.0.remove(&convert::probe_item_key(id));
        }
        self.0.mark_synced();
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use polylet_model::probe::ProbeKind;
    use proptest::prelude::*;

    use super::*;
    use crate::core::test_support::{probe_id, result};

    fn published(results: &Results) -> BTreeMap<ProbeItemKey, ProbeStatus> {
        results.iter().map(convert::probe_status).collect()
    }

    #[test]
    fn the_sync_publishes_no_unsaved_result() {
        let id = |container| probe_id(container, ProbeKind::Readiness);
        let results = Results::from([(id("gone"), result(1)), (id("changed"), result(2))]);
        let store = ProbeStatusStore::new("1");
        let publisher = Publisher::new(store.clone(), &results);
        assert!(!store.has_synced());
        let mut unsaved = ResultChanges::default();
        unsaved.add(id("gone"), None);
        unsaved.add(id("changed"), Some(result(3)));
        unsaved.add(id("new"), Some(result(1)));
        publisher.publish_synced(&unsaved);
        assert!(store.has_synced());
        let saved = Results::from([(id("changed"), result(2))]);
        assert_eq!(store.snapshot(), published(&saved));
    }

    proptest! {
        /// After each step all saved results are published, and nothing else: at the cost of its changes.
        #[test]
        fn published_results_are_the_saved_ones(
            steps in prop::collection::vec(prop::collection::vec((0..6u8, prop::option::of(0..3u32)), 0..4), 0..12),
        ) {
            let mut saved = Results::from([(probe_id("0", ProbeKind::Liveness), result(1))]);
            let store = ProbeStatusStore::new("1");
            let publisher = Publisher::new(store.clone(), &saved);
            for step in steps {
                let mut changes = ResultChanges::default();
                for (container, run_length) in &step {
                    let id = probe_id(&container.to_string(), ProbeKind::Liveness);
                    changes.add(id, run_length.map(result));
                }
                let before = store.position().revision;
                changes.apply_to(&mut saved);
                publisher.publish(&changes);
                prop_assert_eq!(store.snapshot(), published(&saved));
                prop_assert!(store.position().revision <= before + step.len() as u64);
            }
        }
    }
}
