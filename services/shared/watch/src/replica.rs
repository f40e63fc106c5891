//! A client's copy of a server's keys, with digests of the values. Pure.

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::RandomState;

use crate::{Change, Digest, Position, StoreItem};

/// A real difference against the previous state, or a change of the stream.
#[derive(Clone, Debug, PartialEq)]
pub enum Update<K, V> {
    /// A new key, or a new value of a key.
    Upsert(K, V),
    /// The key was removed.
    Remove(K),
    /// The consumer has everything that the server has. Comes once after each (re)connection.
    Synced,
    /// The stream was lost, with the reason; the state is the last known one. Comes once.
    Stale(String),
}

impl<K, V> Update<K, V> {
    /// The update with another value.
    pub fn map<T>(self, value: impl FnOnce(V) -> T) -> Update<K, T> {
        match self {
            Update::Upsert(key, item) => Update::Upsert(key, value(item)),
            Update::Remove(key) => Update::Remove(key),
            Update::Synced => Update::Synced,
            Update::Stale(reason) => Update::Stale(reason),
        }
    }
}

/// A received value. Those of a snapshot, which are all there at the same time, are in the form in which stores
/// keep them.
pub enum ReceivedValue<V: StoreItem> {
    /// The value of a change.
    Changed(V),
    /// A value of a snapshot.
    Kept(V::Kept),
}

impl<V: StoreItem> ReceivedValue<V> {
    /// The value.
    pub fn into_value(self) -> V {
        match self {
            ReceivedValue::Changed(value) => value,
            ReceivedValue::Kept(kept) => V::restore(kept),
        }
    }
}

/// Applies the messages of one stream after another.
pub struct Replica<K, V: StoreItem> {
    /// Digest of each item.
    items: BTreeMap<K, u64>,
    keys: RandomState,
    /// A snapshot in progress: it has no effect before `Synced`.
    staged: Option<BTreeMap<K, Staged<V>>>,
    /// Keys whose present value this build does not know; `None` for a message without a known key.
    unknown: BTreeSet<Option<K>>,
    /// The same of the snapshot in progress.
    staged_unknown: BTreeSet<Option<K>>,
    /// Values received in snapshots.
    received: u64,
    position: Option<Position>,
    synced: bool,
    #[cfg(test)]
    pub(crate) apply_in_place: bool,
}

/// A value of a snapshot in progress.
struct Staged<V: StoreItem> {
    /// Position in the snapshot: updates keep the server's order.
    sequence: u64,
    /// Computed on receipt: a snapshot is applied at once, which must not take long.
    digest: u64,
    /// `None` if it is unchanged, as most values are after a reconnect.
    value: Option<V::Kept>,
}

impl<K: Ord + Clone, V: StoreItem + Digest> Default for Replica<K, V> {
    fn default() -> Self {
        Replica::new()
    }
}

impl<K: Ord + Clone, V: StoreItem + Digest> Replica<K, V> {
    /// Empty and without a position.
    pub fn new() -> Self {
        Replica {
            items: BTreeMap::new(),
            keys: RandomState::new(),
            staged: None,
            unknown: BTreeSet::new(),
            staged_unknown: BTreeSet::new(),
            received: 0,
            position: None,
            synced: false,
            #[cfg(test)]
            apply_in_place: false,
        }
    }

    /// Whether the server has this key.
    pub fn contains<Q>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        self.items.contains_key(key)
    }

    /// Whether it has exactly these items.
    #[cfg(test)]
    pub(crate) fn is_equal_to(&self, all: &BTreeMap<K, V>) -> bool {
        let digest = |value: &V| value.digest(&self.keys);
        self.items
            .iter()
            .map(|(key, held)| (key, *held))
            .eq(all.iter().map(|(key, value)| (key, digest(value))))
    }

    /// The position to resume after. None after a message without a known key, which the next snapshot
    /// may explain.
    pub fn position(&self) -> Option<&Position> {
        let position = self.position.as_ref();
        position.filter(|_| !self.unknown.contains(&None))
    }

    /// Whether the server has something that this build does not know.
    pub fn has_unknown(&self) -> bool {
        !self.unknown.is_empty() || !self.staged_unknown.is_empty()
    }

    /// Whether the stream is connected and has reached `Synced`, and nothing in it is unknown.
    pub fn is_synced(&self) -> bool {
        self.synced
    }

    /// Applies one message; the differences go to `out`.
    pub fn apply(
        &mut self,
        change: Change<K, V>,
        key: impl Fn(&V) -> K,
        out: &mut impl Extend<Update<K, ReceivedValue<V>>>,
    ) {
        match change {
            Change::Reset => self.reset(out),
            Change::Upsert(value) => {
                let (key, digest) = (key(&value), value.digest(&self.keys));
                match &mut self.staged {
                    Some(staged) => {
                        self.received += 1;
                        let is_new = self.items.get(&key) != Some(&digest);
                        let value = Staged {
                            sequence: self.received,
                            digest,
                            value: is_new.then(|| value.keep()),
                        };
                        let key = Some(key);
                        self.staged_unknown.remove(&key);
                        staged.extend(key.map(|key| (key, value)));
                    }
                    None => self.upsert(key, digest, ReceivedValue::Changed(value), out),
                }
            }
            Change::Remove(key) => match &mut self.staged {
                Some(staged) => {
                    staged.remove(&key);
                    self.staged_unknown.remove(&Some(key));
                }
                None => self.remove(key, out),
            },
            Change::Synced(position) => {
                if let Some(snapshot) = self.staged.take() {
                    self.swap(snapshot, out);
                }
                self.position = Some(position);
                // Without unknown items; with one, `Stale` came with it.
                let synced = self.unknown.is_empty();
                if synced && !std::mem::replace(&mut self.synced, true) {
                    out.extend([Update::Synced]);
                }
            }
        }
    }

    /// Applies a message that this build does not fully know: of an item with this key, or of anything.
    /// The last known state stays, and nothing counts as removed because of it. `Stale` comes now, and
    /// `Synced` only when nothing is unknown any more.
    pub fn apply_unknown(
        &mut self,
        key: Option<K>,
        reason: impl FnOnce() -> String,
    ) -> Option<Update<K, ReceivedValue<V>>> {
        match &mut self.staged {
            Some(staged) => {
                if let Some(key) = &key {
                    staged.remove(key);
                }
                self.staged_unknown.insert(key);
            }
            None => {
                self.unknown.insert(key);
            }
        }
        std::mem::take(&mut self.synced).then(|| Update::Stale(reason()))
    }

    /// The stream was lost: discards a snapshot in progress.
    pub fn disconnect(
        &mut self,
        reason: impl FnOnce() -> String,
    ) -> Option<Update<K, ReceivedValue<V>>> {
        self.staged = None;
        self.staged_unknown.clear();
        std::mem::take(&mut self.synced).then(|| Update::Stale(reason()))
    }

    fn reset(&mut self, out: &mut impl Extend<Update<K, ReceivedValue<V>>>) {
        #[cfg(test)]
        if self.apply_in_place {
            return self.swap(BTreeMap::new(), out);
        }
        // A server may reset in the middle of a stream, too; the state stays until `Synced`.
        let _ = out;
        self.staged = Some(BTreeMap::new());
        self.staged_unknown.clear();
    }

    fn upsert(
        &mut self,
        key: K,
        digest: u64,
        value: ReceivedValue<V>,
        out: &mut impl Extend<Update<K, ReceivedValue<V>>>,
    ) {
        let unknown = Some(key);
        self.unknown.remove(&unknown);
        let Some(key) = unknown else { return };
        if self.items.get(&key) == Some(&digest) {
            return;
        }
        self.items.insert(key.clone(), digest);
        out.extend([Update::Upsert(key, value)]);
    }

    fn remove(&mut self, key: K, out: &mut impl Extend<Update<K, ReceivedValue<V>>>) {
        if let Some((key, _)) = self.items.remove_entry(&key) {
            out.extend([Update::Remove(key)]);
        }
        self.unknown.remove(&Some(key));
    }

    fn swap(
        &mut self,
        snapshot: BTreeMap<K, Staged<V>>,
        out: &mut impl Extend<Update<K, ReceivedValue<V>>>,
    ) {
        let unknown = std::mem::take(&mut self.staged_unknown);
        // An unknown message may concern any key.
        let is_complete = !unknown.contains(&None);
        let keys = self.items.keys().filter(|_| is_complete);
        let gone = keys.filter(|key| !snapshot.contains_key(key));
        let gone = gone.cloned().map(Some);
        let gone: Vec<Option<K>> = gone.filter(|key| !unknown.contains(key)).collect();
        for key in gone.into_iter().flatten() {
            self.remove(key, out);
        }
        self.unknown = unknown;
        let mut snapshot: Vec<(K, Staged<V>)> = snapshot.into_iter().collect();
        snapshot.sort_by_key(|(_, staged)| staged.sequence);
        for (key, staged) in snapshot {
            if let Some(value) = staged.value {
                self.upsert(key, staged.digest, ReceivedValue::Kept(value), out);
            }
        }
    }

    #[cfg(test)]
    pub(crate) fn store_position(&mut self, position: Position) {
        self.position = Some(position);
    }
}

#[cfg(test)]
mod tests {
    use polylet_wire::notice::v1::Notice;

    use super::*;
    use crate::cursor::{Cursor, Queued};
    use crate::log::ChangeLog;

    fn notice(id: &str) -> Notice {
        Notice {
            id: id.to_owned(),
            ..Notice::default()
        }
    }

    /// A new watcher gets existing items in the order of their changes, encoded; later ones as they come.
    #[test]
    fn a_snapshot_keeps_the_servers_order() {
        let mut log = ChangeLog::new("1", 8);
        log.replace(["b", "c", "a"].map(|id| (id.to_owned(), notice(id))));
        log.mark_synced();
        let mut queue = std::collections::VecDeque::new();
        Cursor::new(None).refill(&log, &mut queue);
        let mut replica = Replica::new();
        let mut updates = Vec::new();
        let changes = queue.into_iter().map(Queued::into_change);
        for change in changes.chain([Change::Upsert(notice("d"))]) {
            replica.apply(change, |notice: &Notice| notice.id.clone(), &mut updates);
        }
        let upserts = updates.into_iter().filter_map(|update| match update {
            Update::Upsert(key, received) => {
                let is_kept = matches!(received, ReceivedValue::Kept(_));
                assert_eq!(received.into_value(), notice(&key));
                Some((key, is_kept))
            }
            _ => None,
        });
        let expected = [("b", true), ("c", true), ("a", true), ("d", false)];
        let expected = expected.map(|(id, is_kept)| (id.to_owned(), is_kept));
        assert_eq!(upserts.collect::<Vec<_>>(), expected);
    }
}
