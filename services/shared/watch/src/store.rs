//! Keyed state with revisions, shared between its owner and the streams that serve it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use crate::Position;
use crate::cursor::{Cursor, Queued};
use crate::log::{Log, REMOVALS};

/// The state that a service owns and serves. Clones share it.
///
/// Nothing is served before [`Store::mark_whole`].
pub struct Store<K, V> {
    shared: Arc<Shared<K, V>>,
}

struct Shared<K, V> {
    log: Mutex<Log<K, V>>,
    changed: watch::Sender<()>,
}

impl<K, V> Clone for Store<K, V> {
    fn clone(&self) -> Self {
        Store {
            shared: Arc::clone(&self.shared),
        }
    }
}

impl<K: Ord + Clone, V: Clone + PartialEq> Store<K, V> {
    /// An empty store of this life of the process; not whole.
    pub fn new(incarnation: &str) -> Self {
        let log = Mutex::new(Log::new(incarnation, REMOVALS));
        Store {
            shared: Arc::new(Shared {
                log,
                changed: watch::Sender::new(()),
            }),
        }
    }

    /// Sets a key; true when that changed anything.
    pub fn upsert(&self, key: K, value: V) -> bool {
        self.change(|log| log.upsert(key, value))
    }

    /// Removes a key; true when it was there.
    pub fn remove(&self, key: &K) -> bool {
        self.change(|log| log.remove(key))
    }

    /// Makes the state equal to `all` in one step; keys that stay the same do not change. New ones
    /// are told in the order of `all`.
    pub fn replace(&self, all: impl IntoIterator<Item = (K, V)>) {
        self.change(|log| log.replace(all));
    }

    /// From now on the state is whole, and served.
    pub fn mark_whole(&self) {
        self.change(Log::mark_whole);
    }

    /// The value of a key.
    pub fn get(&self, key: &K) -> Option<V> {
        self.log().get(key)
    }

    /// Whether there is anything under a key.
    pub fn contains(&self, key: &K) -> bool {
        self.log().contains(key)
    }

    /// The keys of everything.
    pub fn keys(&self) -> Vec<K> {
        self.log().keys()
    }

    /// A copy of everything.
    pub fn snapshot(&self) -> BTreeMap<K, V> {
        self.log().snapshot()
    }

    /// Whether the state is whole.
    pub fn is_whole(&self) -> bool {
        self.log().is_whole()
    }

    /// Where a watcher stands that has seen all changes up to now.
    pub fn position(&self) -> Position {
        self.log().position()
    }

    pub(crate) fn refill(&self, cursor: &mut Cursor, queue: &mut VecDeque<Queued<K, V>>) {
        cursor.refill(&self.log(), queue);
    }

    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.shared.changed.subscribe()
    }

    fn change(&self, make: impl FnOnce(&mut Log<K, V>) -> bool) -> bool {
        let changed = make(&mut self.log());
        if changed {
            self.shared.changed.send_replace(());
        }
        changed
    }

    fn log(&self) -> MutexGuard<'_, Log<K, V>> {
        // Every method leaves the log consistent before anything of it can panic.
        self.shared
            .log
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}
