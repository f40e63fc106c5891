//! Keyed state with revisions, shared between its owner and the streams that serve it.

use std::borrow::Borrow;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use crate::cursor::{Cursor, Queued};
use crate::log::{ChangeLog, REMOVALS};
use crate::{Position, StoreItem};

/// State that a service owns and serves. Clones share it.
///
/// Nothing is served before [`Store::mark_synced`].
pub struct Store<K, V: StoreItem> {
    shared: Arc<Shared<K, V::Kept>>,
}

struct Shared<K, V> {
    log: Mutex<ChangeLog<K, V>>,
    changed: watch::Sender<()>,
}

impl<K, V: StoreItem> Clone for Store<K, V> {
    fn clone(&self) -> Self {
        Store {
            shared: Arc::clone(&self.shared),
        }
    }
}

impl<K: Ord + Clone, V: StoreItem> Store<K, V> {
    /// An empty store of this process instance; not synced.
    pub fn new(incarnation: &str) -> Self {
        let log = Mutex::new(ChangeLog::new(incarnation, REMOVALS));
        Store {
            shared: Arc::new(Shared {
                log,
                changed: watch::Sender::new(()),
            }),
        }
    }

    /// Sets a key; returns whether its value changed.
    pub fn upsert(&self, key: K, value: V) -> bool {
        let kept = value.keep();
        self.change(|log| log.upsert(key, kept))
    }

    /// Removes a key; returns whether it existed.
    pub fn remove<Q>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        self.change(|log| log.remove(key))
    }

    /// Replaces the whole state in one step; unchanged keys keep their revisions. Watchers get new
    /// ones in the order of `all`.
    pub fn replace(&self, all: impl IntoIterator<Item = (K, V)>) {
        let all: Vec<_> = all
            .into_iter()
            .map(|(key, value)| (key, value.keep()))
            .collect();
        self.change(|log| log.replace(all));
    }

    /// Marks the state as complete: it is served from now on.
    pub fn mark_synced(&self) {
        self.change(ChangeLog::mark_synced);
    }

    /// The current value of a key.
    pub fn get<Q>(&self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        let kept = self.log().get(key);
        kept.map(V::restore)
    }

    /// Whether a key exists.
    pub fn contains<Q>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        self.log().contains(key)
    }

    /// All keys in order.
    pub fn keys(&self) -> Vec<K> {
        self.log().keys()
    }

    /// A copy of the whole state.
    pub fn snapshot(&self) -> BTreeMap<K, V> {
        let kept = self.log().snapshot();
        let all = kept.into_iter();
        all.map(|(key, kept)| (key, V::restore(kept))).collect()
    }

    /// Whether the state is complete and served.
    pub fn has_synced(&self) -> bool {
        self.log().has_synced()
    }

    /// The position of a watcher that has seen all changes up to now.
    pub fn position(&self) -> Position {
        self.log().position()
    }

    pub(crate) fn refill(&self, cursor: &mut Cursor<K>, queue: &mut VecDeque<Queued<K, V::Kept>>) {
        cursor.refill(&self.log(), queue);
    }

    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.shared.changed.subscribe()
    }

    fn change(&self, make: impl FnOnce(&mut ChangeLog<K, V::Kept>) -> bool) -> bool {
        let changed = make(&mut self.log());
        if changed {
            self.shared.changed.send_replace(());
        }
        changed
    }

    fn log(&self) -> MutexGuard<'_, ChangeLog<K, V::Kept>> {
        // Every method leaves the log consistent before anything of it can panic.
        self.shared
            .log
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}
