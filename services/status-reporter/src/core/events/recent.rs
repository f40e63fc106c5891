//! A cache without an allocation for each entry.

use std::collections::HashMap;
use std::hash::Hash;

/// Values by key, the most recently used ones. All are in one allocation: entries that come with a burst and
/// stay would each keep a page of the heap.
pub(super) struct RecentlyUsed<K, V> {
    max_entries: usize,
    entries: HashMap<K, CachedValue<V>>,
    uses: u64,
}

struct CachedValue<V> {
    /// The number of its last use.
    used: u64,
    value: V,
}

impl<K: Copy + Eq + Hash, V> RecentlyUsed<K, V> {
    /// Empty; keeps at most `max_entries`.
    pub(super) fn new(max_entries: usize) -> Self {
        RecentlyUsed {
            max_entries,
            entries: HashMap::new(),
            uses: 0,
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The value of a key, which is then the most recently used one.
    pub(super) fn get(&mut self, key: &K) -> Option<&V> {
        self.uses += 1;
        let entry = self.entries.get_mut(key)?;
        entry.used = self.uses;
        Some(&entry.value)
    }

    /// The value of a key, inserted if it is not there. It is then the most recently used one.
    pub(super) fn get_or_insert_mut(&mut self, key: K, value: impl FnOnce() -> V) -> &mut V {
        self.uses += 1;
        self.make_room(&key);
        let entry = self.entries.entry(key).or_insert_with(|| CachedValue {
            used: 0,
            value: value(),
        });
        entry.used = self.uses;
        &mut entry.value
    }

    /// Sets the value of a key, which is then the most recently used one.
    pub(super) fn put(&mut self, key: K, value: V) {
        self.uses += 1;
        self.make_room(&key);
        let used = self.uses;
        self.entries.insert(key, CachedValue { used, value });
    }

    /// Drops the least recently used value if there is no room for this key. That looks at all of them: some
    /// ten microseconds for each event that is new when thousands are known.
    fn make_room(&mut self, key: &K) {
        if self.entries.len() < self.max_entries || self.entries.contains_key(key) {
            return;
        }
        let oldest = self.entries.iter().min_by_key(|(_, entry)| entry.used);
        if let Some(oldest) = oldest.map(|(key, _)| *key) {
            self.entries.remove(&oldest);
        }
    }

    /// Drops the values that are not to be kept, and the memory that they took.
    pub(super) fn retain(&mut self, keep: impl Fn(&V) -> bool) {
        self.entries.retain(|_, entry| keep(&entry.value));
        self.entries.shrink_to_fit();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// The keys are those of a list in the order of use that is cut off.
        #[test]
        fn the_least_recently_used_is_dropped(uses in prop::collection::vec((0..12u8, 0..4u8), 0..80)) {
            let mut recent = RecentlyUsed::new(5);
            let mut list: Vec<u8> = Vec::new();
            for (key, kind) in uses {
                let known = list.contains(&key);
                match kind {
                    0 => prop_assert_eq!(recent.get(&key).copied(), known.then_some(key)),
                    1 => prop_assert_eq!(*recent.get_or_insert_mut(key, || key), key),
                    2 => recent.put(key, key),
                    _ => recent.retain(|value| *value != key),
                }
                list.retain(|listed| *listed != key);
                if kind == 1 || kind == 2 || (kind == 0 && known) {
                    list.push(key);
                    let excess = list.len().saturating_sub(5);
                    list.drain(..excess);
                }
                let mut keys: Vec<u8> = recent.entries.keys().copied().collect();
                keys.sort_unstable();
                let mut expected = list.clone();
                expected.sort_unstable();
                prop_assert_eq!(keys, expected);
            }
        }
    }
}
