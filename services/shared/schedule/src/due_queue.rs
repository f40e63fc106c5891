use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};

/// Keys with one due time each, ordered by it. Keys due at the same time come in the order of the
/// keys. All operations take logarithmic time.
#[derive(Clone, Debug)]
pub struct DueQueue<K, T> {
    order: BTreeSet<(T, K)>,
    due: BTreeMap<K, T>,
}

impl<K, T> Default for DueQueue<K, T> {
    fn default() -> Self {
        DueQueue {
            order: BTreeSet::new(),
            due: BTreeMap::new(),
        }
    }
}

impl<K: Ord + Clone, T: Ord + Copy> DueQueue<K, T> {
    /// An empty queue.
    pub fn new() -> Self {
        DueQueue::default()
    }

    /// Sets the due time of a key and returns the previous one.
    pub fn set(&mut self, key: K, due: T) -> Option<T> {
        let previous = self.due.insert(key.clone(), due);
        if previous == Some(due) {
            return previous;
        }
        let entry = match previous {
            Some(previous) => {
                let mut entry = (previous, key);
                self.order.remove(&entry);
                entry.0 = due;
                entry
            }
            None => (due, key),
        };
        self.order.insert(entry);
        previous
    }

    /// Sets the due time, or removes the key when there is none.
    pub fn set_opt(&mut self, key: K, due: Option<T>) -> Option<T> {
        match due {
            Some(due) => self.set(key, due),
            None => self.cancel(&key),
        }
    }

    /// Sets the due time unless the key is due earlier already.
    pub fn set_no_later(&mut self, key: K, due: T) {
        if self.due.get(&key).is_none_or(|present| due < *present) {
            self.set(key, due);
        }
    }

    /// Removes a key and returns its due time.
    pub fn cancel<Q>(&mut self, key: &Q) -> Option<T>
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        let (key, due) = self.due.remove_entry(key)?;
        self.order.remove(&(due, key));
        Some(due)
    }

    /// The due time of a key.
    pub fn due<Q>(&self, key: &Q) -> Option<T>
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        self.due.get(key).copied()
    }

    /// The earliest due time: when to wake up.
    pub fn next_due(&self) -> Option<T> {
        self.order.first().map(|(due, _)| *due)
    }

    /// The keys that are due at `now`, the earliest first.
    pub fn all_due(&self, now: T) -> impl Iterator<Item = &K> {
        let due = self.order.iter().take_while(move |(due, _)| *due <= now);
        due.map(|(_, key)| key)
    }

    /// Removes and returns the earliest key that is due at `now`. Call it until it returns `None`.
    pub fn pop_due(&mut self, now: T) -> Option<K> {
        if self.next_due()? > now {
            return None;
        }
        let (_, key) = self.order.pop_first()?;
        self.due.remove(&key);
        Some(key)
    }

    /// Removes all keys.
    pub fn clear(&mut self) {
        self.order.clear();
        self.due.clear();
    }

    /// The number of keys.
    pub fn len(&self) -> usize {
        self.due.len()
    }

    /// Whether no key has a due time.
    pub fn is_empty(&self) -> bool {
        self.due.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn keys_come_in_order_of_their_due_times() {
        let mut queue = DueQueue::new();
        queue.set("a", 9);
        queue.set("b", 5);
        queue.set("c", 7);
        assert_eq!(queue.set("a", 3), Some(9));
        assert_eq!(queue.cancel(&"c"), Some(7));
        assert_eq!(queue.next_due(), Some(3));
        assert_eq!(queue.all_due(2).count(), 0);
        assert_eq!(queue.all_due(5).collect::<Vec<_>>(), [&"a", &"b"]);
        assert_eq!(queue.pop_due(2), None);
        assert_eq!(queue.pop_due(5), Some("a"));
        assert_eq!(queue.pop_due(5), Some("b"));
        assert_eq!(queue.pop_due(99), None);
        assert!(queue.is_empty());
    }

    #[test]
    fn a_key_has_one_due_time() {
        let mut queue = DueQueue::new();
        queue.set_no_later("a", 5);
        queue.set_no_later("a", 9);
        assert_eq!((queue.due(&"a"), queue.len()), (Some(5), 1));
        queue.set_no_later("a", 2);
        assert_eq!(queue.set_opt("a", None), Some(2));
        assert_eq!(queue.set_opt("a", Some(4)), None);
        assert_eq!(queue.next_due(), Some(4));
        queue.clear();
        assert_eq!(queue.next_due(), None);
    }

    proptest! {
        #[test]
        fn agrees_with_a_map(steps in prop::collection::vec((0u8..20, prop::option::of(0u32..1000)), 0..80)) {
            let mut queue = DueQueue::new();
            let mut model = BTreeMap::new();
            for (key, due) in steps {
                let previous = match due {
                    Some(due) => model.insert(key, due),
                    None => model.remove(&key),
                };
                prop_assert_eq!(queue.set_opt(key, due), previous);
                prop_assert_eq!(queue.next_due(), model.values().min().copied());
                prop_assert_eq!(queue.len(), model.len());
            }
            let mut expected: Vec<(u32, u8)> = model.into_iter().map(|(key, due)| (due, key)).collect();
            expected.sort_unstable();
            for (due, key) in expected {
                prop_assert_eq!(queue.next_due(), Some(due));
                if let Some(before) = due.checked_sub(1) {
                    prop_assert!(queue.pop_due(before).is_none(), "early");
                }
                prop_assert_eq!(queue.pop_due(due), Some(key));
            }
            prop_assert!(queue.is_empty() && queue.next_due().is_none());
        }
    }
}
