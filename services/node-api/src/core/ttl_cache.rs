//! A bounded cache whose entries expire.

use std::collections::HashMap;
use std::hash::Hash;

use jiff::{SignedDuration, Timestamp};

/// Entries at most; a node has few callers.
const MAX_ENTRIES: usize = 4096;

/// Values by key, each with its expiration time.
#[derive(Debug)]
pub(crate) struct TtlCache<K, V> {
    entries: HashMap<K, (Timestamp, V)>,
}

impl<K, V> Default for TtlCache<K, V> {
    fn default() -> Self {
        Self {
            entries: HashMap::new(),
        }
    }
}

impl<K: Hash + Eq, V: Clone> TtlCache<K, V> {
    pub(crate) fn get(&self, key: &K, now: Timestamp) -> Option<V> {
        let (expires, value) = self.entries.get(key)?;
        (*expires > now).then(|| value.clone())
    }

    pub(crate) fn put(&mut self, key: K, value: V, ttl: SignedDuration, now: Timestamp) {
        if self.entries.len() >= MAX_ENTRIES {
            self.entries.retain(|_, (expires, _)| *expires > now);
            // Someone sends ever new tokens: cached ones are reviewed again.
            if self.entries.len() >= MAX_ENTRIES {
                self.entries.clear();
            }
        }
        let expires = now.saturating_add(ttl).unwrap_or(Timestamp::MAX);
        self.entries.insert(key, (expires, value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_expire_and_are_bounded() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let mut cache = TtlCache::default();
        cache.put("a".to_owned(), true, SignedDuration::from_secs(30), at(0));
        assert_eq!(cache.get(&"a".to_owned(), at(29)), Some(true));
        assert_eq!(cache.get(&"a".to_owned(), at(30)), None);
        assert_eq!(cache.get(&"b".to_owned(), at(0)), None);
        for n in 0..2 * MAX_ENTRIES {
            cache.put(n.to_string(), false, SignedDuration::from_secs(30), at(0));
            assert!(cache.entries.len() <= MAX_ENTRIES);
        }
    }
}
