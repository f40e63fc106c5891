//! Answers of the API server that are good for a while.

use std::collections::HashMap;
use std::hash::Hash;

use jiff::{SignedDuration, Timestamp};

/// As many as are kept; callers of a node are few.
const MOST: usize = 4096;

/// Answers by question, each until its own end.
#[derive(Debug)]
pub(crate) struct Cache<K, V> {
    kept: HashMap<K, (Timestamp, V)>,
}

impl<K, V> Default for Cache<K, V> {
    fn default() -> Self {
        Self {
            kept: HashMap::new(),
        }
    }
}

impl<K: Hash + Eq, V: Clone> Cache<K, V> {
    pub(crate) fn get(&self, question: &K, now: Timestamp) -> Option<V> {
        let (until, answer) = self.kept.get(question)?;
        (*until > now).then(|| answer.clone())
    }

    pub(crate) fn put(&mut self, question: K, answer: V, good_for: SignedDuration, now: Timestamp) {
        if self.kept.len() >= MOST {
            self.kept.retain(|_, (until, _)| *until > now);
            // Somebody asks with ever new tokens: they are asked for again.
            if self.kept.len() >= MOST {
                self.kept.clear();
            }
        }
        let until = now.saturating_add(good_for).unwrap_or(Timestamp::MAX);
        self.kept.insert(question, (until, answer));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_good_for_a_while_and_never_too_many() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let mut cache = Cache::default();
        cache.put("a".to_owned(), true, SignedDuration::from_secs(30), at(0));
        assert_eq!(cache.get(&"a".to_owned(), at(29)), Some(true));
        assert_eq!(cache.get(&"a".to_owned(), at(30)), None);
        assert_eq!(cache.get(&"b".to_owned(), at(0)), None);
        for n in 0..2 * MOST {
            cache.put(n.to_string(), false, SignedDuration::from_secs(30), at(0));
            assert!(cache.kept.len() <= MOST);
        }
    }
}
