//! Measures pods with local storage limits.
//!
//! Measuring walks the files, so only pods with such limits are measured, in the background and one
//! batch at a time; a pod with many files is measured less often.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use polylet_kit::Ctx;
use tokio::sync::oneshot;

use crate::core::limits::recheck_delay;
use crate::manager::EvictionManager;
use crate::usage::{LocalStorageSample, Sampler, sampled_pod};

/// The measurement in flight, and when pods may be measured again.
#[derive(Default)]
pub(crate) struct LocalStorageMonitor {
    in_flight: Option<oneshot::Receiver<Vec<LocalStorageSample>>>,
    not_before: BTreeMap<String, Timestamp>,
}

impl LocalStorageMonitor {
    /// The result of the measurement in flight. Pending while there is none.
    pub(crate) async fn next(&mut self) -> Vec<LocalStorageSample> {
        let Some(in_flight) = &mut self.in_flight else {
            return std::future::pending().await;
        };
        // A measurement that panicked has no result.
        let samples = in_flight.await.unwrap_or_default();
        self.in_flight = None;
        samples
    }

    /// Starts to measure the pods that are due, unless a measurement is in flight.
    pub(crate) fn start(&mut self, ctx: &Ctx, manager: &EvictionManager, sampler: &Sampler) {
        if self.in_flight.is_some() {
            return;
        }
        let now = Timestamp::now();
        let pods = manager.pods();
        self.not_before
            .retain(|uid, at| *at > now && pods.runtime.contains_key(uid.as_str()));
        let due: Vec<_> = manager
            .pods_with_storage_limits()
            .filter(|(uid, ..)| !self.not_before.contains_key(uid.as_str()))
            .map(sampled_pod)
            .collect();
        if due.is_empty() {
            return;
        }
        let (sender, receiver) = oneshot::channel();
        let sampler = sampler.clone();
        ctx.background("measure local storage", async move {
            // The receiver is dropped only when the process ends.
            let _ = sender.send(sampler.measure_local_storage(due).await);
        });
        self.in_flight = Some(receiver);
    }

    /// Delays the next measurement of a pod that took long. `period` is the time between two starts.
    pub(crate) fn delay_next(&mut self, sample: &LocalStorageSample, period: Duration) {
        let delay = recheck_delay(sample.took, period);
        if !delay.is_zero() {
            let now = Timestamp::now();
            let at = now.checked_add(delay).unwrap_or(now);
            self.not_before.insert(sample.uid.clone(), at);
        }
    }
}
