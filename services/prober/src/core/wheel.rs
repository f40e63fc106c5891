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

#[cfg(test)]
mod tests {
    use polylet_model::probe::ProbeKind;
    use proptest::prelude::*;

    use super::*;
    use crate::core::tests::{at, id_of};

    proptest! {
    #[test]
    fn the_wheel_gives_everything_in_order_and_never_early(dues in prop::collection::vec((0u8..20, 0u64..1000), 0..60)) {
        let mut wheel = Wheel::default();
        let mut expected = BTreeMap::new();
        for (id, due) in dues {
            wheel.schedule(&id_of(&format!("c{id}"), ProbeKind::Liveness), at(due));
            expected.insert(id, due);
        }
        let mut expected: Vec<u64> = expected.into_values().collect();
        expected.sort_unstable();
        for due in expected {
            prop_assert_eq!(wheel.next(), Some(at(due)));
            if due > 0 {
                prop_assert!(wheel.pop(at(due - 1)).is_none());
            }
            prop_assert!(wheel.pop(at(due)).is_some());
        }
        prop_assert!(wheel.next().is_none());
    }
    }
}
