//! What a client holds of a server's state. Pure.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};

use prost::Message;

use crate::{Change, Position};

/// A real difference against what was held, or a word about the stream.
#[derive(Clone, Debug, PartialEq)]
pub enum Update<K, V> {
    /// The key is new or has another value.
    Upsert(K, V),
    /// The key is gone.
    Remove(K),
    /// Everything the server holds has been told; comes once after each (re)connection.
    Synced,
    /// The stream is lost, and why; what is held is the last known. Comes once.
    Stale(String),
}

/// An item that can be told from another without being kept: whoever follows a stream keeps what it
/// needs of the items itself.
pub trait Digest {
    /// Of all that the item says, under keys that nobody outside of the process can know: no item
    /// can be made to look like the one before it.
    fn digest(&self, keys: &RandomState) -> u64;
}

// Maps on our wire are sorted, so equal items are equal bytes.
impl<T: Message> Digest for T {
    fn digest(&self, keys: &RandomState) -> u64 {
        keys.hash_one(self.encode_to_vec())
    }
}

/// Folds the messages of one stream after another into what the server holds.
#[derive(Clone, Debug)]
pub struct Mirror<K, V> {
    /// Digests of the items.
    held: BTreeMap<K, u64>,
    keys: RandomState,
    /// A snapshot under way: nothing of it counts before `Synced`.
    aside: Option<BTreeMap<K, Aside<V>>>,
    /// Values told in snapshots.
    told: u64,
    position: Option<Position>,
    synced: bool,
    #[cfg(test)]
    pub(crate) apply_in_place: bool,
}

/// A value of a snapshot under way.
#[derive(Clone, Debug)]
struct Aside<V> {
    /// Its place: the server's order is the order of the updates.
    number: u64,
    /// Taken when the value came: a snapshot is taken over at one go, and would be much work at once.
    digest: u64,
    /// Nothing of what is held already: after a new connection that is most of it.
    value: Option<V>,
}

impl<K: Ord + Clone, V: Digest> Default for Mirror<K, V> {
    fn default() -> Self {
        Mirror::new()
    }
}

impl<K: Ord + Clone, V: Digest> Mirror<K, V> {
    /// Holds nothing and stands nowhere.
    pub fn new() -> Self {
        Mirror {
            held: BTreeMap::new(),
            keys: RandomState::new(),
            aside: None,
            told: 0,
            position: None,
            synced: false,
            #[cfg(test)]
            apply_in_place: false,
        }
    }

    /// Whether the server holds something under this key.
    pub fn knows(&self, key: &K) -> bool {
        self.held.contains_key(key)
    }

    /// Whether just these items are held.
    #[cfg(test)]
    pub(crate) fn holds(&self, all: &BTreeMap<K, V>) -> bool {
        let digest = |value: &V| value.digest(&self.keys);
        self.held
            .iter()
            .map(|(key, held)| (key, *held))
            .eq(all.iter().map(|(key, value)| (key, digest(value))))
    }

    /// Where to resume.
    pub fn position(&self) -> Option<&Position> {
        self.position.as_ref()
    }

    /// Whether the stream is connected and was heard to `Synced`.
    pub fn is_synced(&self) -> bool {
        self.synced
    }

    /// Takes one message; the differences go to `out`.
    pub fn apply(
        &mut self,
        change: Change<K, V>,
        key: impl Fn(&V) -> K,
        out: &mut impl Extend<Update<K, V>>,
    ) {
        match change {
            Change::Reset => self.reset(out),
            Change::Upsert(value) => {
                let (key, digest) = (key(&value), value.digest(&self.keys));
                match &mut self.aside {
                    Some(aside) => {
                        self.told += 1;
                        let news = self.held.get(&key) != Some(&digest);
                        let value = Aside {
                            number: self.told,
                            digest,
                            value: news.then_some(value),
                        };
                        aside.insert(key, value);
                    }
                    None => self.upsert(key, digest, value, out),
                }
            }
            Change::Remove(key) => match &mut self.aside {
                Some(aside) => drop(aside.remove(&key)),
                None => self.remove(&key, out),
            },
            Change::Synced(position) => {
                if let Some(snapshot) = self.aside.take() {
                    self.swap(snapshot, out);
                }
                self.position = Some(position);
                if !std::mem::replace(&mut self.synced, true) {
                    out.extend([Update::Synced]);
                }
            }
        }
    }

    /// The stream is lost: a snapshot under way counts for nothing.
    pub fn lost(&mut self, why: impl FnOnce() -> String) -> Option<Update<K, V>> {
        self.aside = None;
        std::mem::take(&mut self.synced).then(|| Update::Stale(why()))
    }

    fn reset(&mut self, out: &mut impl Extend<Update<K, V>>) {
        #[cfg(test)]
        if self.apply_in_place {
            return self.swap(BTreeMap::new(), out);
        }
        // A server may reset in the middle of a stream too; what is held stands until `Synced`.
        let _ = out;
        self.aside = Some(BTreeMap::new());
    }

    fn upsert(&mut self, key: K, digest: u64, value: V, out: &mut impl Extend<Update<K, V>>) {
        if self.held.get(&key) == Some(&digest) {
            return;
        }
        self.held.insert(key.clone(), digest);
        out.extend([Update::Upsert(key, value)]);
    }

    fn remove(&mut self, key: &K, out: &mut impl Extend<Update<K, V>>) {
        if let Some((key, _)) = self.held.remove_entry(key) {
            out.extend([Update::Remove(key)]);
        }
    }

    fn swap(&mut self, snapshot: BTreeMap<K, Aside<V>>, out: &mut impl Extend<Update<K, V>>) {
        let gone: Vec<K> = self
            .held
            .keys()
            .filter(|key| !snapshot.contains_key(key))
            .cloned()
            .collect();
        for key in gone {
            self.remove(&key, out);
        }
        let mut snapshot: Vec<(K, Aside<V>)> = snapshot.into_iter().collect();
        snapshot.sort_by_key(|(_, aside)| aside.number);
        for (key, aside) in snapshot {
            if let Some(value) = aside.value {
                self.upsert(key, aside.digest, value, out);
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
    use super::*;
    use crate::cursor::{Cursor, Queued};
    use crate::log::Log;

    /// Whoever comes to a state that is there hears of it in the order in which it was told.
    #[test]
    fn a_snapshot_keeps_the_servers_order() {
        let mut log = Log::new("1", 8);
        log.replace([(2, "b"), (3, "c"), (1, "a")].map(|(key, value)| (key, value.to_owned())));
        log.mark_whole();
        let mut queue = std::collections::VecDeque::new();
        Cursor::new(None).refill(&log, &mut queue);
        let mut mirror = Mirror::new();
        let mut told = Vec::new();
        for change in queue.into_iter().map(Queued::into_change) {
            mirror.apply(
                change,
                |value: &String| i32::from(value.as_bytes()[0] - b'a') + 1,
                &mut told,
            );
        }
        let order: Vec<_> = told
            .iter()
            .filter_map(|update| match update {
                Update::Upsert(key, _) => Some(*key),
                _ => None,
            })
            .collect();
        assert_eq!(order, [2, 3, 1]);
    }
}
