//! Changes of keyed state, and digests of its items.

use std::hash::{BuildHasher, RandomState};

use prost::Message;

use crate::Position;

/// One message of a watch stream.
#[derive(Clone, Debug, PartialEq)]
pub enum Change<K, V> {
    /// A snapshot follows.
    Reset,
    /// The full value of a new or changed key.
    Upsert(V),
    /// The key was removed.
    Remove(K),
    /// The watcher has everything up to this position.
    Synced(Position),
}

impl<K, V> Change<K, V> {
    /// The change with the value of its item.
    pub fn map<T>(self, value: impl FnOnce(V) -> T) -> Change<K, T> {
        match self {
            Change::Reset => Change::Reset,
            Change::Upsert(item) => Change::Upsert(value(item)),
            Change::Remove(key) => Change::Remove(key),
            Change::Synced(position) => Change::Synced(position),
        }
    }

    /// The change with another key.
    pub fn map_key<T>(self, key: impl FnOnce(K) -> T) -> Change<T, V> {
        match self {
            Change::Reset => Change::Reset,
            Change::Upsert(item) => Change::Upsert(item),
            Change::Remove(removed) => Change::Remove(key(removed)),
            Change::Synced(position) => Change::Synced(position),
        }
    }
}

/// Detects whether an item changed without storing it: consumers of a stream store what they need.
pub trait Digest {
    /// A digest of the whole item, with keys unknown outside of the process: nobody can craft an item
    /// with the digest of the previous one.
    fn digest(&self, keys: &RandomState) -> u64;
}

// Maps on our wire are sorted: equal items have equal bytes.
impl<T: Message> Digest for T {
    fn digest(&self, keys: &RandomState) -> u64 {
        keys.hash_one(self.encode_to_vec())
    }
}
