//! A map that forgets what was not looked at for longest.

use std::collections::BTreeMap;

/// At most so many entries.
pub(crate) struct Lru<K, V> {
    most: usize,
    clock: u64,
    held: BTreeMap<K, (u64, V)>,
    by_use: BTreeMap<u64, K>,
}

impl<K: Ord + Clone, V> Lru<K, V> {
    pub(crate) fn new(most: usize) -> Self {
        Self {
            most,
            clock: 0,
            held: BTreeMap::new(),
            by_use: BTreeMap::new(),
        }
    }

    pub(crate) fn get(&mut self, key: &K) -> Option<&V> {
        let (used, value) = self.held.get_mut(key)?;
        self.clock += 1;
        self.by_use.remove(used);
        self.by_use.insert(self.clock, key.clone());
        *used = self.clock;
        Some(value)
    }

    pub(crate) fn put(&mut self, key: K, value: V) {
        self.clock += 1;
        self.by_use.insert(self.clock, key.clone());
        if let Some((used, _)) = self.held.insert(key, (self.clock, value)) {
            self.by_use.remove(&used);
        }
        while self.held.len() > self.most {
            let Some((_, oldest)) = self.by_use.pop_first() else {
                return;
            };
            self.held.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_unused_goes() {
        let mut lru = Lru::new(2);
        lru.put("a", 1);
        lru.put("b", 2);
        assert_eq!(lru.get(&"a"), Some(&1));
        lru.put("c", 3);
        assert_eq!(lru.get(&"a"), Some(&1));
        assert_eq!(lru.get(&"c"), Some(&3));
        assert_eq!(lru.get(&"b"), None);
        lru.put("c", 4);
        assert_eq!(lru.get(&"c"), Some(&4));
        assert_eq!((lru.held.len(), lru.by_use.len()), (2, 2));
    }
}
