//! Objects that pods refer to: each is watched by its name while it has subscribers, and a little
//! longer. The last state stays in the cache while a pod names the object: most are read once, when a
//! container starts, and are needed when it restarts during an outage. So do the objects behind its
//! claims, which other cached objects name: their subscriber may be away for longer.
//!
//! An immutable object is not watched, but may be deleted and created again with other content, so
//! that it is requested again for new subscribers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use polylet_kit::CancellationToken;
use polylet_kit::config::KeepSecrets;
use tokio::sync::{mpsc, watch};
use tokio::time::sleep;

use super::connection_pool::ConnectionPool;
use super::object_cache::ObjectCache;
use super::pods::PodStores;
use crate::core::ObjectId;
use crate::core::cluster::kinds::ApiKind;
use crate::persist::KeyedLog;

mod entry;
mod handler;
#[cfg(test)]
mod tests;

use entry::ObjectEntry;
pub(crate) use entry::PublishedObject;
use handler::ObjectHandler;

/// How long an object without subscribers is watched: a replaced pod needs the same ones.
const UNSUBSCRIBE_GRACE: Duration = Duration::from_secs(60);
/// When restored objects without subscribers that are not named are removed.
const PRUNE_AFTER: Duration = Duration::from_secs(600);

/// All watched objects. Clones share them.
#[derive(Clone)]
pub(crate) struct ObjectWatches {
    entries: Arc<Mutex<BTreeMap<ObjectId, ObjectEntry>>>,
    cache: ObjectCache,
    /// The pods of the node, which name objects, and the objects that those name.
    pods: PodStores,
    start: mpsc::UnboundedSender<StartObject>,
}

/// An object whose watch is to be started.
type StartObject = (ObjectId, ApiKind, ObjectEntry);

/// Objects whose watches are to be started.
pub(crate) type ObjectStartQueue = mpsc::UnboundedReceiver<StartObject>;

impl ObjectWatches {
    pub(crate) fn new(
        log: KeyedLog<ObjectId>,
        keep_secrets: KeepSecrets,
        pods: PodStores,
    ) -> (ObjectWatches, ObjectStartQueue) {
        let (start, queue) = mpsc::unbounded_channel();
        let objects = ObjectWatches {
            entries: Arc::default(),
            cache: ObjectCache::load(log, keep_secrets, pods.references()),
            pods,
            start,
        };
        (objects, queue)
    }

    /// Watches an object for as long as the receiver exists.
    pub(crate) fn subscribe(
        &self,
        key: &ObjectId,
        kind: ApiKind,
    ) -> watch::Receiver<Option<PublishedObject>> {
        let mut entries = lock(&self.entries);
        if let Some(entry) = entries.get(key) {
            entry.request();
            return entry.state.subscribe();
        }
        let entry = ObjectEntry::new();
        let state = entry.state.subscribe();
        entries.insert(key.clone(), entry.clone());
        // Fails only while the process is stopping.
        let _ = self.start.send((key.clone(), kind, entry));
        state
    }

    /// The objects to persist.
    pub(crate) fn cache(&self) -> ObjectCache {
        self.cache.clone()
    }

    /// Runs all watches.
    pub(crate) async fn run(
        self,
        pool: ConnectionPool,
        mut queue: ObjectStartQueue,
        drain: CancellationToken,
    ) {
        let mut watches = FuturesUnordered::new();
        let mut prune_due = std::pin::pin!(async {
            loop {
                sleep(PRUNE_AFTER).await;
                if pool.health.backing_off().is_none() && self.pods.pods.has_synced() {
                    return;
                }
            }
        });
        let mut pruned = false;
        loop {
            tokio::select! {
                () = drain.cancelled() => return,
                Some((key, kind, entry)) = queue.recv() => {
                    watches.push(self.run_object(&pool, key, kind, entry));
                }
                Some(()) = watches.next() => {}
                released = self.pods.released_objects() => self.remove_released(&released),
                () = &mut prune_due, if !pruned => {
                    pruned = true;
                    self.prune_unsubscribed();
                }
            }
        }
    }

    async fn run_object(
        &self,
        pool: &ConnectionPool,
        key: ObjectId,
        kind: ApiKind,
        entry: ObjectEntry,
    ) {
        let mut handler = ObjectHandler::new(&self.cache, key.clone(), kind, entry.clone());
        let mut following = std::pin::pin!(handler.follow(pool));
        loop {
            tokio::select! {
                () = &mut following => {}
                () = unsubscribed(&entry) => {
                    if self.remove_entry(&key, &entry) {
                        return;
                    }
                }
            }
        }
    }

    /// Removes the entry of an object that still has no subscribers; returns whether it has none.
    fn remove_entry(&self, key: &ObjectId, entry: &ObjectEntry) -> bool {
        let mut entries = lock(&self.entries);
        if entry.state.receiver_count() > 0 {
            return false;
        }
        entries.remove(key);
        self.remove_unreferenced(key);
        true
    }

    /// Removes objects that are not named any more, unless they are watched.
    fn remove_released(&self, released: &BTreeSet<Arc<ObjectId>>) {
        let entries = lock(&self.entries);
        let unwatched = released.iter().filter(|key| !entries.contains_key(&***key));
        unwatched.for_each(|key| self.remove_unreferenced(key));
    }

    /// Removes an object without an entry from the cache, unless it is named.
    fn remove_unreferenced(&self, key: &ObjectId) {
        if !self.pods.is_referenced(key) {
            self.cache.remove(key);
        }
    }

    fn prune_unsubscribed(&self) {
        let entries = lock(&self.entries);
        self.cache
            .retain(|key| entries.contains_key(key) || self.pods.is_referenced(key));
    }
}

/// Returns when an object has had no subscribers for a while.
async fn unsubscribed(entry: &ObjectEntry) {
    entry.state.closed().await;
    sleep(UNSUBSCRIBE_GRACE).await;
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Every change under the lock is complete in itself.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
