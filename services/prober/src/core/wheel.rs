//! What is due when: one ordered set, and so one timer for all probes.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use super::types::ProbeId;

/// Probes by the moment they are due, in whole milliseconds.
#[derive(Debug, Default)]
pub(crate) struct Wheel {
    order: BTreeSet<(i64, ProbeId)>,
    due: BTreeMap<ProbeId, i64>,
}

impl Wheel {
    /// Sets when a probe is due, in place of what was set before.
    pub(crate) fn schedule(&mut self, id: &ProbeId, at: Timestamp) {
        self.cancel(id);
        let at = millis_up(at);
        self.order.insert((at, id.clone()));
        self.due.insert(id.clone(), at);
    }

    pub(crate) fn cancel(&mut self, id: &ProbeId) {
        if let Some((id, at)) = self.due.remove_entry(id) {
            self.order.remove(&(at, id));
        }
    }

    /// When the next one is due.
    pub(crate) fn next(&self) -> Option<Timestamp> {
        let (at, _) = self.order.first()?;
        Timestamp::from_millisecond(*at).ok()
    }

    /// Takes one that is due by now.
    pub(crate) fn pop(&mut self, now: Timestamp) -> Option<ProbeId> {
        if self.order.first()?.0 > now.as_millisecond() {
            return None;
        }
        let (_, id) = self.order.pop_first()?;
        self.due.remove(&id);
        Some(id)
    }
}

/// Never early: a fraction of a millisecond counts as a whole one.
fn millis_up(at: Timestamp) -> i64 {
    let nanos = at.as_nanosecond();
    let up = nanos.div_euclid(1_000_000) + i128::from(nanos.rem_euclid(1_000_000) != 0);
    i64::try_from(up).unwrap_or(i64::MAX)
}
