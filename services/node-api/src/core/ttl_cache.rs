//! A bounded cache whose entries expire.

use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;
use std::time::Duration;

/// Values by key, each with its expiration time on a monotonic clock. When it is full, the entry that
/// expires first makes room.
#[derive(Debug)]
pub(crate) struct TtlCache<K, V> {
    max_entries: usize,
    entries: HashMap<K, (Duration, V)>,
    expirations: BTreeSet<(Duration, K)>,
}

impl<K: Hash + Ord + Clone, V: Clone> TtlCache<K, V> {
    pub(crate) fn new(max_entries: usize) -> Self {
        Self {
            max_entries,
            entries: HashMap::new(),
            expirations: BTreeSet::new(),
        }
    }

    pub(crate) fn get(&self, key: &K, now: Duration) -> Option<V> {
        let (expires, value) = self.entries.get(key)?;
        (*expires > now).then(|| value.clone())
    }

    /// Without a time to live, nothing is stored.
    pub(crate) fn put(&mut self, key: K, value: V, ttl: Duration, now: Duration) {
        if let Some((expires, _)) = self.entries.remove(&key) {
            self.expirations.remove(&(expires, key.clone()));
        }
        if ttl.is_zero() || self.max_entries == 0 {
            return;
        }
        while let Some((expires, _)) = self.expirations.first()
            && (*expires <= now || self.entries.len() >= self.max_entries)
        {
            if let Some((_, oldest)) = self.expirations.pop_first() {
                self.entries.remove(&oldest);
            }
        }
        let expires = now.saturating_add(ttl);
        self.expirations.insert((expires, key.clone()));
        self.entries.insert(key, (expires, value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: Duration = Duration::from_secs(30);

    fn at(second: u64) -> Duration {
        Duration::from_secs(second)
    }

    #[test]
    fn entries_expire() {
        let mut cache = TtlCache::new(4);
        cache.put("a", true, TTL, at(0));
        assert_eq!(cache.get(&"a", at(29)), Some(true));
        assert_eq!(cache.get(&"a", at(30)), None);
        assert_eq!(cache.get(&"b", at(0)), None);
        cache.put("c", true, Duration::ZERO, at(0));
        assert_eq!(cache.get(&"c", at(0)), None);
        // A new value replaces the one before, with its expiration.
        cache.put("a", false, TTL, at(20));
        assert_eq!(cache.get(&"a", at(40)), Some(false));
        assert_eq!(cache.expirations.len(), 1);
    }

    #[test]
    fn the_entry_that_expires_first_makes_room() {
        let mut cache = TtlCache::new(8);
        cache.put(1000, true, 10 * TTL, at(0));
        for n in 0..100 {
            cache.put(n, false, TTL, at(n));
            assert!(cache.entries.len() <= 8 && cache.expirations.len() == cache.entries.len());
        }
        assert_eq!(cache.get(&1000, at(100)), Some(true));
        assert_eq!(cache.get(&99, at(100)), Some(false));
        assert_eq!(cache.get(&92, at(100)), None);
    }
}
