//! Follows one object, or one list, and publishes its state.

use std::collections::BTreeMap;

use polylet_api::ApiErrorKind;
use serde_json::Value;

use super::super::connection_pool::ConnectionPool;
use super::super::discovery::wait_until_served;
use super::super::object_cache::ObjectCache;
use super::super::poller::{PolledObject, poll};
use super::super::request::ApiRequestError;
use super::super::watcher::{self, EventHandler, WatchTarget};
use super::entry::{ObjectEntry, PublishedObject};
use crate::core::ObjectId;
use crate::core::cluster::kinds::ApiKind;

/// Forbidden responses in a row until the error is published: just after a pod was bound, the Node
/// authorizer does not know yet what it refers to. With the retry delays, about half a second.
const FORBIDDEN_GRACE: u32 = 4;

/// Publishes one object, or one list.
pub(super) struct ObjectHandler<'a> {
    cache: &'a ObjectCache,
    key: ObjectId,
    kind: ApiKind,
    entry: ObjectEntry,
    /// Forbidden responses in a row.
    forbidden: u32,
    /// The server does not serve the chosen version any more.
    unserved: bool,
    /// Items of a list by name.
    items: BTreeMap<String, Value>,
    /// The last value of a polled object, which shows whether a change is pending.
    value: Option<Value>,
}

impl ObjectHandler<'_> {
    pub(super) fn new(
        cache: &ObjectCache,
        key: ObjectId,
        kind: ApiKind,
        entry: ObjectEntry,
    ) -> ObjectHandler<'_> {
        ObjectHandler {
            cache,
            key,
            kind,
            entry,
            forbidden: 0,
            unserved: false,
            items: BTreeMap::new(),
            value: None,
        }
    }

    /// Keeps the published state current; an immutable object is requested for new subscribers only.
    pub(super) async fn follow(&mut self, pool: &ConnectionPool) {
        let kind = self.kind;
        loop {
            if kind.has_alternatives() {
                self.kind = wait_until_served(pool, kind, self).await;
                self.unserved = false;
            }
            let target = watch_target(self.kind, &self.key);
            if kind.watched {
                watcher::watch(pool, &target, self).await;
            } else {
                let refresh = self.entry.refresh.clone();
                poll(pool, &target, &refresh, self).await;
            }
            self.entry.wait_for_request().await;
        }
    }

    pub(super) fn set_object(&mut self, object: Option<Value>) {
        self.forbidden = 0;
        let complete = object.as_ref().is_some_and(|it| self.kind.is_immutable(it));
        self.value = object.clone().filter(|_| !self.kind.watched);
        let manifest = object.map(|object| self.kind.to_json(object));
        self.cache.set(&self.key, manifest.as_ref());
        self.publish(manifest.map_or(PublishedObject::Absent, PublishedObject::Manifest));
        // Last: whoever subscribes before gets the state that has just been received.
        self.entry.set_complete(complete);
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
        let cached = self.cache.get(&self.key);
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
        self.unserved || self.entry.is_complete()
    }
}

fn name(object: &Value) -> String {
    let name = object.pointer("/metadata/name").and_then(Value::as_str);
    name.unwrap_or_default().to_owned()
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
