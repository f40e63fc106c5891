//! What a server remembers: the state, the order of its last changes, and the latest removals.
//! Pure: the store around it adds the lock and the wake-ups.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::Position;

/// How many removals are remembered for watchers that resume.
pub(crate) const REMOVALS: usize = 1024;

/// The state of a store.
pub(crate) struct Log<K, V> {
    incarnation: String,
    revision: u64,
    live: BTreeMap<K, (u64, Arc<V>)>,
    /// Each live key by the revision of its last change.
    order: BTreeMap<u64, K>,
    removed: BTreeMap<K, u64>,
    removals: BTreeMap<u64, K>,
    max_removals: usize,
    /// Removals up to this revision may have been forgotten.
    floor: u64,
    whole: bool,
    #[cfg(test)]
    pub(crate) ignore_incarnations: bool,
}

/// What one watcher has to be sent next.
pub(crate) enum Batch<K, V> {
    /// Not whole yet, or nothing new.
    Nothing,
    /// `Reset`, all of it, `Synced`.
    Snapshot(Vec<(u64, Arc<V>)>, Position),
    /// The latest state of each key that changed, `Synced`.
    Changes(Vec<(u64, Step<K, V>)>, Position),
}

/// One changed key.
pub(crate) enum Step<K, V> {
    Upsert(Arc<V>),
    Remove(K),
}

impl<K: Ord + Clone, V: Clone + PartialEq> Log<K, V> {
    pub(crate) fn new(incarnation: &str, max_removals: usize) -> Self {
        Log {
            incarnation: incarnation.to_owned(),
            revision: 0,
            live: BTreeMap::new(),
            order: BTreeMap::new(),
            removed: BTreeMap::new(),
            removals: BTreeMap::new(),
            max_removals,
            floor: 0,
            whole: false,
            #[cfg(test)]
            ignore_incarnations: false,
        }
    }

    pub(crate) fn upsert(&mut self, key: K, value: V) -> bool {
        if let Some((revision, held)) = self.live.get(&key) {
            if **held == value {
                return false;
            }
            self.order.remove(revision);
        }
        if let Some(revision) = self.removed.remove(&key) {
            self.removals.remove(&revision);
        }
        self.revision += 1;
        self.order.insert(self.revision, key.clone());
        self.live.insert(key, (self.revision, Arc::new(value)));
        true
    }

    pub(crate) fn remove(&mut self, key: &K) -> bool {
        let Some((revision, _)) = self.live.remove(key) else {
            return false;
        };
        self.order.remove(&revision);
        self.revision += 1;
        self.removals.insert(self.revision, key.clone());
        self.removed.insert(key.clone(), self.revision);
        while self.removals.len() > self.max_removals {
            let Some((revision, key)) = self.removals.pop_first() else {
                break;
            };
            self.removed.remove(&key);
            self.floor = revision;
        }
        true
    }

    /// Makes the state equal to `all`, whose order is the order of the changes; true when that
    /// changed anything.
    pub(crate) fn replace(&mut self, all: impl IntoIterator<Item = (K, V)>) -> bool {
        let all: Vec<(K, V)> = all.into_iter().collect();
        let keys: BTreeSet<&K> = all.iter().map(|(key, _)| key).collect();
        let gone: Vec<K> = self
            .live
            .keys()
            .filter(|key| !keys.contains(key))
            .cloned()
            .collect();
        let mut changed = !gone.is_empty();
        for key in gone {
            self.remove(&key);
        }
        for (key, value) in all {
            changed |= self.upsert(key, value);
        }
        changed
    }

    pub(crate) fn get(&self, key: &K) -> Option<V> {
        self.live.get(key).map(|(_, value)| (**value).clone())
    }

    pub(crate) fn contains(&self, key: &K) -> bool {
        self.live.contains_key(key)
    }

    pub(crate) fn keys(&self) -> Vec<K> {
        self.live.keys().cloned().collect()
    }

    pub(crate) fn snapshot(&self) -> BTreeMap<K, V> {
        self.live
            .iter()
            .map(|(key, (_, value))| (key.clone(), (**value).clone()))
            .collect()
    }

    /// True when this is the call that made it whole.
    pub(crate) fn mark_whole(&mut self) -> bool {
        !std::mem::replace(&mut self.whole, true)
    }

    pub(crate) fn is_whole(&self) -> bool {
        self.whole
    }

    pub(crate) fn position(&self) -> Position {
        Position {
            incarnation: self.incarnation.clone(),
            revision: self.revision,
        }
    }

    /// What a watcher that stands at `from` has to be sent.
    ///
    /// Taken in one step: a key that changed while a snapshot was being sent in pieces would be
    /// missing from it, and a client would believe that it was gone.
    pub(crate) fn next(&self, from: Option<&Position>) -> Batch<K, V> {
        if !self.whole {
            return Batch::Nothing;
        }
        let Some(after) = from
            .filter(|from| self.holds(from))
            .map(|from| from.revision)
        else {
            let all = self.order.iter().filter_map(|(revision, key)| {
                self.live
                    .get(key)
                    .map(|(_, value)| (*revision, Arc::clone(value)))
            });
            return Batch::Snapshot(all.collect(), self.position());
        };
        if after == self.revision {
            return Batch::Nothing;
        }
        let mut steps: Vec<(u64, Step<K, V>)> = Vec::new();
        for (revision, key) in self.order.range(after + 1..) {
            if let Some((_, value)) = self.live.get(key) {
                steps.push((*revision, Step::Upsert(Arc::clone(value))));
            }
        }
        for (revision, key) in self.removals.range(after + 1..) {
            steps.push((*revision, Step::Remove(key.clone())));
        }
        steps.sort_by_key(|(revision, _)| *revision);
        Batch::Changes(steps, self.position())
    }

    /// Whether every change since this position is still known.
    fn holds(&self, position: &Position) -> bool {
        let ours = position.incarnation == self.incarnation;
        #[cfg(test)]
        let ours = ours || self.ignore_incarnations;
        ours && position.revision >= self.floor && position.revision <= self.revision
    }
}
