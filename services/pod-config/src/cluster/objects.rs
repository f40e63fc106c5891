//! Objects that pods refer to: each is watched by its name while it has subscribers, and a little
//! longer.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use polylet_api::ApiErrorKind;
use polylet_kit::CancellationToken;
use polylet_kit::config::KeepSecrets;
use serde_json::Value;
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::sleep;

use super::connection_pool::ConnectionPool;
use super::discovery::wait_until_served;
use super::object_cache::ObjectCache;
use super::poller::{PolledObject, poll};
use super::request::ApiRequestError;
use super::watcher::{self, EventHandler, WatchTarget};
use crate::core::ObjectId;
use crate::core::cluster::kinds::ApiKind;
use crate::persist::KeyedLog;

/// How long an object without subscribers is watched: a replaced pod needs the same ones.
const UNSUBSCRIBE_GRACE: Duration = Duration::from_secs(60);
/// When restored objects without subscribers are removed.
const PRUNE_AFTER: Duration = Duration::from_secs(600);
/// Forbidden responses in a row until the error is published: just after a pod was bound, the Node
/// authorizer does not know yet what it refers to. With the retry delays, about half a second.
const FORBIDDEN_GRACE: u32 = 4;

/// Published state of an object.
#[derive(Clone, PartialEq)]
pub(crate) enum PublishedObject {
    /// Canonical JSON.
    Manifest(Bytes),
    Absent,
    /// Neither known to exist nor to be absent, with the error.
    Unknown(String),
}

/// Published state, and a way to poll the object now.
#[derive(Clone)]
pub(crate) struct ObjectEntry {
    state: Arc<watch::Sender<Option<PublishedObject>>>,
    refresh: Arc<Notify>,
}

/// All watched objects. Clones share them.
#[derive(Clone)]
pub(crate) struct ObjectWatches {
    entries: Arc<Mutex<BTreeMap<ObjectId, ObjectEntry>>>,
    cache: ObjectCache,
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
    ) -> (ObjectWatches, ObjectStartQueue) {
        let (start, queue) = mpsc::unbounded_channel();
        let objects = ObjectWatches {
            entries: Arc::default(),
            cache: ObjectCache::load(log, keep_secrets),
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
            entry.refresh.notify_one();
            return entry.state.subscribe();
        }
        let entry = ObjectEntry {
            state: Arc::new(watch::Sender::new(None)),
            refresh: Arc::default(),
        };
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
                if pool.health.backing_off().is_none() {
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
        let mut object = ObjectHandler {
            objects: self,
            key: key.clone(),
            kind,
            entry: entry.clone(),
            forbidden: 0,
            complete: false,
            unserved: false,
            value: None,
            items: BTreeMap::new(),
        };
        let mut watching = std::pin::pin!(async {
            while !object.complete {
                if kind.has_alternatives() {
                    object.kind = wait_until_served(pool, kind, &mut object).await;
                    object.unserved = false;
                }
                let target = watch_target(object.kind, &key);
                if kind.watched {
                    watcher::watch(pool, &target, &mut object).await;
                } else {
                    poll(pool, &target, &entry.refresh, &mut object).await;
                }
            }
            // An immutable object.
            std::future::pending::<()>().await;
        });
        loop {
            tokio::select! {
                () = &mut watching => {}
                () = unsubscribed(&entry) => {
                    let mut entries = lock(&self.entries);
                    if entry.state.receiver_count() == 0 {
                        entries.remove(&key);
                        self.cache.remove(&key);
                        return;
                    }
                }
            }
        }
    }

    fn prune_unsubscribed(&self) {
        let entries = lock(&self.entries);
        self.cache.retain(|key| entries.contains_key(key));
    }
}

/// The object by its name, or all objects of a list.
fn watch_target(kind: ApiKind, key: &ObjectId) -> WatchTarget {
    let field = kind.list_selector.unwrap_or("metadata.name");
    WatchTarget {
        path: kind.collection_path(key),
        selector: Some((field, key.name.clone())),
        name: kind.list_selector.is_none().then(|| key.name.clone()),
    }
}

/// Returns when an object has had no subscribers for a while.
async fn unsubscribed(entry: &ObjectEntry) {
    entry.state.closed().await;
    sleep(UNSUBSCRIBE_GRACE).await;
}

/// Publishes one object, or one list.
struct ObjectHandler<'a> {
    objects: &'a ObjectWatches,
    key: ObjectId,
    kind: ApiKind,
    entry: ObjectEntry,
    /// Forbidden responses in a row.
    forbidden: u32,
    complete: bool,
    /// The server does not serve the chosen version any more.
    unserved: bool,
    /// Items of a list by name.
    items: BTreeMap<String, Value>,
    /// The last value of a polled object, which shows whether a change is pending.
    value: Option<Value>,
}

impl ObjectHandler<'_> {
    fn set_object(&mut self, object: Option<Value>) {
        self.forbidden = 0;
        self.complete = object.as_ref().is_some_and(|it| self.kind.is_immutable(it));
        self.value = object.clone().filter(|_| !self.kind.watched);
        let manifest = object.map(|object| self.kind.to_json(object));
        self.objects.cache.set(&self.key, manifest.as_ref());
        self.publish(manifest.map_or(PublishedObject::Absent, PublishedObject::Manifest));
    }

    fn set_list(&mut self) {
        let items = self.items.values().cloned();
        self.set_object(Some(ApiKind::list(items)));
    }

    fn publish(&self, state: PublishedObject) {
        let state = Some(state);
        self.entry.state.send_if_modified(|published| {
            let changed = *published != state;
            *published = state;
            changed
        });
    }

    /// Publishes an error, unless a state is published. During an outage, the cached object is
    /// published instead.
    fn publish_unknown(&self, message: &str, outage: bool) {
        let published = self.entry.state.borrow().clone();
        if matches!(
            published,
            Some(PublishedObject::Manifest(_) | PublishedObject::Absent)
        ) {
            return;
        }
        let cached = self.objects.cache.get(&self.key);
        self.publish(match cached.filter(|_| outage) {
            Some(cached) => PublishedObject::Manifest(cached),
            None => PublishedObject::Unknown(message.to_owned()),
        });
    }
}

impl PolledObject for ObjectHandler<'_> {
    fn kind_name(&self) -> &'static str {
        self.kind.name
    }

    fn value(&self) -> Option<&Value> {
        self.value.as_ref()
    }
}

impl EventHandler for ObjectHandler<'_> {
    async fn handle_list(&mut self, objects: &mut (dyn Iterator<Item = Value> + Send)) {
        if self.kind.list_selector.is_none() {
            return self.set_object(objects.next());
        }
        self.items = objects.map(|object| (name(&object), object)).collect();
        self.set_list();
    }

    fn handle_upsert(&mut self, object: Value) {
        if self.kind.list_selector.is_none() {
            return self.set_object(Some(object));
        }
        self.items.insert(name(&object), object);
        self.set_list();
    }

    fn handle_delete(&mut self, object: Value) {
        if self.kind.list_selector.is_none() {
            return self.set_object(None);
        }
        self.items.remove(&name(&object));
        self.set_list();
    }

    fn handle_error(&mut self, error: &ApiRequestError) {
        if error.unserved {
            self.unserved = self.kind.has_alternatives();
            return self.publish_unknown(&self.kind.unserved_message(), false);
        }
        if error.kind == ApiErrorKind::Forbidden {
            self.forbidden += 1;
            if self.forbidden < FORBIDDEN_GRACE {
                return;
            }
        }
        self.publish_unknown(&error.message, error.kind.is_transient());
    }

    fn handle_slow_start(&mut self) {
        self.publish_unknown("the API server has not responded yet", true);
    }

    fn is_complete(&self) -> bool {
        self.complete || self.unserved
    }
}

fn name(object: &Value) -> String {
    let name = object.pointer("/metadata/name").and_then(Value::as_str);
    name.unwrap_or_default().to_owned()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Every change under the lock is complete in itself.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
