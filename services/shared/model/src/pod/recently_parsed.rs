//! Which pods may have parsed manifests.

use std::collections::VecDeque;

use crate::ids::PodUid;

/// Parsed manifests at a time. More than start at once on most nodes: one that is dropped during a start
/// is parsed again with the pod's next change.
const MAX_PARSED: usize = 16;

/// The pods whose manifests were read last, so that those of all others are kept as JSON alone.
#[derive(Debug, Default)]
pub struct RecentlyParsed {
    /// The one that was not read for the longest time first.
    order: VecDeque<PodUid>,
}

impl RecentlyParsed {
    /// A manifest is about to be read. Returns a pod whose manifest has to be dropped in exchange.
    #[must_use]
    pub fn insert(&mut self, uid: &PodUid) -> Option<PodUid> {
        let known = self.order.iter().position(|other| other == uid);
        let again = known.and_then(|at| self.order.remove(at));
        self.order.push_back(again.unwrap_or_else(|| uid.clone()));
        (self.order.len() > MAX_PARSED).then(|| self.order.pop_front())?
    }

    /// Takes all, because nothing happens any more.
    pub fn take(&mut self) -> impl Iterator<Item = PodUid> + use<> {
        std::mem::take(&mut self.order).into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_one_that_was_not_read_for_the_longest_time_makes_room() {
        let mut recent = RecentlyParsed::default();
        for number in 0..MAX_PARSED {
            assert_eq!(recent.insert(&number.to_string().into()), None);
            assert_eq!(recent.insert(&"0".into()), None);
        }
        assert_eq!(recent.insert(&"a".into()), Some("1".into()));
        assert_eq!(recent.insert(&"a".into()), None);
        assert_eq!(recent.insert(&"0".into()), None);
        assert_eq!(recent.insert(&"1".into()), Some("2".into()));
        let all: Vec<PodUid> = recent.take().collect();
        assert_eq!((all.len(), all[0].as_str()), (MAX_PARSED, "3"));
        assert_eq!(recent.take().count(), 0);
    }
}
