//! CPU usage in cores, out of counters.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use jiff::Timestamp;

use crate::core::summary::CpuStats;

/// The shortest time that a rate is about. Callers that sample in between get the last rate: one over
/// the milliseconds between two of them would be noise.
const SHORTEST_MILLISECONDS: i128 = 5_000;

/// The counters of earlier samples. Clones share them.
#[derive(Clone, Default)]
pub(super) struct CpuRates(Arc<Mutex<HashMap<String, Counter>>>);

#[derive(Clone, Copy)]
struct Counter {
    /// The sample that the next rate begins with.
    since: (Timestamp, u64),
    rate: Option<u64>,
    seen_at: Timestamp,
}

impl CpuRates {
    /// The counter in nanoseconds with its rate.
    pub(super) fn update(&self, counter: &str, at: Timestamp, nanoseconds: u64) -> CpuStats {
        let mut counters = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let first = Counter {
            since: (at, nanoseconds),
            rate: None,
            seen_at: at,
        };
        let known = counters.entry(counter.to_owned()).or_insert(first);
        known.seen_at = known.seen_at.max(at);
        let elapsed = at.duration_since(known.since.0).as_millis();
        let may_update = match known.rate {
            Some(_) => elapsed >= SHORTEST_MILLISECONDS,
            None => elapsed > 0,
        };
        if let (true, Ok(elapsed)) = (may_update, u64::try_from(elapsed)) {
            let used = nanoseconds.saturating_sub(known.since.1);
            known.rate = Some(used.saturating_mul(1000) / elapsed);
            known.since = (at, nanoseconds);
        }
        CpuStats {
            nanoseconds,
            nanocores: known.rate,
        }
    }

    /// Drops counters that were not updated at `at`: their cgroups are gone.
    pub(super) fn retain_updated(&self, at: Timestamp) {
        let mut counters = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        counters.retain(|_, counter| counter.seen_at >= at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_over_some_seconds() {
        let rates = CpuRates::default();
        let rate = |millisecond, nanoseconds| {
            let at = Timestamp::from_millisecond(millisecond).unwrap();
            rates.update("pod", at, nanoseconds).nanocores
        };
        assert_eq!(rate(0, 0), None);
        assert_eq!(rate(10_000, 1_000_000_000), Some(100_000_000));
        // Another caller, soon after.
        assert_eq!(rate(10_010, 1_010_000_000), Some(100_000_000));
        assert_eq!(rate(20_000, 3_000_000_000), Some(200_000_000));
        rates.retain_updated(Timestamp::from_millisecond(20_001).unwrap());
        assert_eq!(rate(30_000, 0), None);
    }
}
