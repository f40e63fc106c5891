//! The state of a server, the order of the latest changes, and the latest removals. Pure: the store
//! around it adds the lock and the notifications.

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::Position;

/// Removals that are kept for watchers that resume: those of the time that a process needs to start, and no more,
/// as they stay for good. A watcher that has missed more gets everything.
pub(crate) const REMOVALS: usize = 32;

/// The state of a store.
pub(crate) struct ChangeLog<K, V> {
    incarnation: String,
    revision: u64,
    live: BTreeMap<K, (u64, V)>,
    /// Each key by the revision of its last change.
    order: BTreeMap<u64, K>,
    /// The latest removals, the oldest first, of keys that are not back. Few: a key is searched among them.
    removals: VecDeque<(u64, K)>,
    max_removals: usize,
    /// Removals up to this revision may have been dropped.
    oldest_resumable: u64,
    synced: bool,
    #[cfg(test)]
    pub(crate) ignore_incarnations: bool,
}

/// The next messages for a watcher.
pub(crate) enum Batch<K, V> {
    /// Not synced yet, or no changes.
    Nothing,
    /// `Reset`, all items, `Synced`.
    Snapshot(Vec<(u64, V)>, Position),
    /// The latest state of each changed key, `Synced`.
    Changes(Vec<(u64, KeyChange<K, V>)>, Position),
}

/// The latest state of a changed key.
pub(crate) enum KeyChange<K, V> {
    Upsert(V),
    Remove(K),
}

impl<K: Ord + Clone, V: Clone + PartialEq> ChangeLog<K, V> {
    pub(crate) fn new(incarnation: &str, max_removals: usize) -> Self {
        ChangeLog {
            incarnation: incarnation.to_owned(),
            revision: 0,
            live: BTreeMap::new(),
            order: BTreeMap::new(),
            removals: VecDeque::new(),
            max_removals,
            oldest_resumable: 0,
            synced: false,
            #[cfg(test)]
            ignore_incarnations: false,
        }
    }

    pub(crate) fn upsert(&mut self, key: K, value: V) -> bool {
        let key = match self.live.get(&key) {
            Some((_, current)) if *current == value => return false,
            // The key that `live` has, too: clones of it may share their content.
            Some((revision, _)) => self.order.remove(revision).unwrap_or(key),
            None => {
                self.removals.retain(|(_, removed)| *removed != key);
                key
            }
        };
        self.revision += 1;
        self.order.insert(self.revision, key.clone());
        self.live.insert(key, (self.revision, value));
        true
    }

    pub(crate) fn remove<Q>(&mut self, key: &Q) -> bool
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        let Some((key, (revision, _))) = self.live.remove_entry(key) else {
            return false;
        };
        self.order.remove(&revision);
        self.revision += 1;
        self.removals.push_back((self.revision, key));
        while self.removals.len() > self.max_removals {
            let Some((revision, _)) = self.removals.pop_front() else {
                break;
            };
            self.oldest_resumable = revision;
        }
        true
    }

    /// Replaces the whole state; changes have the order of `all`. Returns whether anything changed.
    pub(crate) fn replace(&mut self, all: impl IntoIterator<Item = (K, V)>) -> bool {
        let all: Vec<(K, V)> = all.into_iter().collect();
        let keys: BTreeSet<&K> = all.iter().map(|(key, _)| key).collect();
        let removed: Vec<K> = self
            .live
            .keys()
            .filter(|key| !keys.contains(key))
            .cloned()
            .collect();
        let mut changed = !removed.is_empty();
        for key in removed {
            self.remove(&key);
        }
        for (key, value) in all {
            changed |= self.upsert(key, value);
        }
        changed
    }

    pub(crate) fn get<Q>(&self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        self.live.get(key).map(|(_, value)| value.clone())
    }

    pub(crate) fn contains<Q>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        self.live.contains_key(key)
    }

    pub(crate) fn keys(&self) -> Vec<K> {
        self.live.keys().cloned().collect()
    }

    pub(crate) fn snapshot(&self) -> BTreeMap<K, V> {
        self.live
            .iter()
            .map(|(key, (_, value))| (key.clone(), value.clone()))
            .collect()
    }

    /// Returns whether this was the first call.
    pub(crate) fn mark_synced(&mut self) -> bool {
        !std::mem::replace(&mut self.synced, true)
    }

    pub(crate) fn has_synced(&self) -> bool {
        self.synced
    }

    pub(crate) fn position(&self) -> Position {
        Position {
            incarnation: self.incarnation.clone(),
            revision: self.revision,
        }
    }

    /// The next messages for a watcher at the position `from`, of all keys or of one.
    ///
    /// Taken in one step: a key that changed while a snapshot was sent in pieces would be missing
    /// from it, and a client would consider it removed.
    pub(crate) fn next(&self, from: Option<&Position>, only: Option<&K>) -> Batch<K, V> {
        if !self.synced {
            return Batch::Nothing;
        }
        let after = from
            .filter(|from| self.can_resume(from))
            .map(|from| from.revision);
        match only {
            Some(key) => self.next_of_key(after, key),
            None => self.next_of_all(after),
        }
    }

    fn next_of_key(&self, after: Option<u64>, key: &K) -> Batch<K, V> {
        let live = self.live.get(key);
        let Some(after) = after else {
            let all = live.map(|(revision, value)| (*revision, value.clone()));
            return Batch::Snapshot(all.into_iter().collect(), self.position());
        };
        let step = match live {
            Some((revision, value)) => (*revision, KeyChange::Upsert(value.clone())),
            None => match self.removals.iter().find(|(_, removed)| removed == key) {
                Some((revision, removed)) => (*revision, KeyChange::Remove(removed.clone())),
                None => return Batch::Nothing,
            },
        };
        if step.0 <= after {
            return Batch::Nothing;
        }
        Batch::Changes(vec![step], self.position())
    }

    fn next_of_all(&self, after: Option<u64>) -> Batch<K, V> {
        let Some(after) = after else {
            let all = self.order.iter().filter_map(|(revision, key)| {
                self.live
                    .get(key)
                    .map(|(_, value)| (*revision, value.clone()))
            });
            return Batch::Snapshot(all.collect(), self.position());
        };
        if after == self.revision {
            return Batch::Nothing;
        }
        let mut steps: Vec<(u64, KeyChange<K, V>)> = Vec::new();
        for (revision, key) in self.order.range(after + 1..) {
            if let Some((_, value)) = self.live.get(key) {
                steps.push((*revision, KeyChange::Upsert(value.clone())));
            }
        }
        let seen = self
            .removals
            .partition_point(|(revision, _)| *revision <= after);
        for (revision, key) in self.removals.range(seen..) {
            steps.push((*revision, KeyChange::Remove(key.clone())));
        }
        steps.sort_by_key(|(revision, _)| *revision);
        Batch::Changes(steps, self.position())
    }

    /// Whether all changes since this position are still available.
    fn can_resume(&self, position: &Position) -> bool {
        let is_current = position.incarnation == self.incarnation;
        #[cfg(test)]
        let is_current = is_current || self.ignore_incarnations;
        is_current
            && position.revision >= self.oldest_resumable
            && position.revision <= self.revision
    }
}
