//! From notices of the services to events: which are created, which count up an earlier one, and which
//! are dropped. Rules and figures are those of client-go's `EventCorrelator`.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use polylet_model::hash::{Fnv1a128, fnv1a_128};
use polylet_schedule::TokenBucket;
use serde_json::{Map, Value, json};
use smallvec::SmallVec;

pub(crate) mod delay;
mod recent;
pub(crate) mod removed;

use recent::RecentlyUsed;

/// Size of each cache: client-go's `maxLruCacheEntries`.
const CACHE_SIZE: usize = 4096;
/// From this number of different messages within [`AGGREGATE_INTERVAL`] on, events that are otherwise
/// alike are combined into one.
const MAX_EVENTS: usize = 10;
const AGGREGATE_INTERVAL: Duration = Duration::from_secs(600);
/// Rate limit by object: a burst, and then one event in five minutes.
const SPAM_BURST: f64 = 25.0;
const SPAM_RATE: f64 = 1.0 / 300.0;
/// The length limit of object names.
const MAX_NAME: usize = 253;

/// The object that an event is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct InvolvedObject {
    pub(crate) kind: String,
    /// Empty for the node and other cluster-scoped objects.
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: String,
}

/// A notice of a service, to become an event.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct EventNotice {
    /// Unique among all notices.
    pub(crate) id: String,
    pub(crate) object: InvolvedObject,
    /// `spec.containers{web}`; empty for the whole object.
    pub(crate) field_path: String,
    pub(crate) warning: bool,
    pub(crate) reason: String,
    pub(crate) message: String,
    pub(crate) at: Timestamp,
    /// Annotations of the event.
    pub(crate) annotations: BTreeMap<String, String>,
}

impl EventNotice {
    /// What its rate limit depends on: object and type.
    fn limit_key(&self) -> EventKey {
        let object = &self.object;
        let kind = combine(self.warning.into(), &object.kind);
        let name = combine(combine(kind, &object.namespace), &object.name);
        combine(name, &object.uid)
    }
}

/// An event to write to the API server.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PendingEvent {
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// The full event.
    pub(crate) event: Value,
    /// The patch that counts up the event of this name, if it was created before.
    pub(crate) patch: Option<Value>,
}

/// A hash of what identifies an event among the thousands that are known: the texts would take several times
/// the memory.
type EventKey = u128;

/// A hash of the uid of the object that an event is about.
pub(crate) type ObjectKey = u64;

#[derive(Clone)]
struct AggregateRecord {
    object: ObjectKey,
    /// Hashes of different messages, fewer than [`MAX_EVENTS`].
    messages: SmallVec<[u64; 2]>,
    last: Duration,
}

#[derive(Clone)]
struct EmittedEvent {
    object: ObjectKey,
    /// The end of its name.
    suffix: u64,
    first: Timestamp,
    count: u32,
}

struct ObjectLimit {
    object: ObjectKey,
    bucket: TokenBucket<Duration>,
}

/// Combines, counts and limits events. Times are relative to the start of the process.
pub(crate) struct Correlator {
    node: String,
    /// By object, type and reason, which events to be combined have in common.
    aggregates: RecentlyUsed<EventKey, AggregateRecord>,
    /// By these, the field path and the message.
    emitted: RecentlyUsed<EventKey, EmittedEvent>,
    /// By object and type.
    spam_filter: RecentlyUsed<EventKey, ObjectLimit>,
}

impl Correlator {
    pub(crate) fn new(node: &str) -> Self {
        Self {
            node: node.to_owned(),
            aggregates: RecentlyUsed::new(CACHE_SIZE),
            emitted: RecentlyUsed::new(CACHE_SIZE),
            spam_filter: RecentlyUsed::new(CACHE_SIZE),
        }
    }

    /// The event for a notice; `None` when its object exceeds the rate limit.
    pub(crate) fn correlate(
        &mut self,
        notice: &EventNotice,
        now: Duration,
    ) -> Option<PendingEvent> {
        let limit_key = notice.limit_key();
        let aggregate = combine(limit_key, &notice.reason);
        let (message, key) = if self.is_aggregated(aggregate, notice, now) {
            let message = format!("(combined from similar events): {}", notice.message);
            // All of them count up one event.
            (message, aggregate)
        } else {
            let key = combine(combine(aggregate, &notice.field_path), &notice.message);
            (notice.message.clone(), key)
        };
        let emitted = match self.emitted.get(&key) {
            Some(known) => EmittedEvent {
                count: known.count.saturating_add(1),
                ..known.clone()
            },
            None => EmittedEvent {
                object: object_key(&notice.object.uid),
                suffix: hash(&notice.id) as u64,
                first: notice.at,
                count: 1,
            },
        };
        self.emitted.put(key, emitted.clone());
        let limit = self
            .spam_filter
            .get_or_insert_mut(limit_key, || ObjectLimit {
                object: object_key(&notice.object.uid),
                bucket: TokenBucket::new(SPAM_RATE, SPAM_BURST, now),
            });
        let allowed = limit.bucket.try_take(now).is_ok();
        allowed.then(|| self.pending_event(notice, &message, &emitted))
    }

    /// Forgets the events of objects that are gone and do not come again: on a node with many short-lived pods they
    /// would be most of what is known. Upstream keeps them until others take their places, where they change nothing.
    pub(crate) fn forget(&mut self, objects: &BTreeSet<ObjectKey>) {
        self.aggregates
            .retain(|record| !objects.contains(&record.object));
        self.emitted
            .retain(|event| !objects.contains(&event.object));
        self.spam_filter
            .retain(|limit| !objects.contains(&limit.object));
    }

    /// Whether a notice is combined with similar ones.
    fn is_aggregated(&mut self, key: EventKey, notice: &EventNotice, now: Duration) -> bool {
        let known = self.aggregates.get(&key).cloned();
        let recent = known.filter(|known| now.saturating_sub(known.last) <= AGGREGATE_INTERVAL);
        let mut record = recent.unwrap_or(AggregateRecord {
            object: object_key(&notice.object.uid),
            messages: SmallVec::new(),
            last: now,
        });
        let message = hash(&notice.message) as u64;
        if !record.messages.contains(&message) {
            record.messages.push(message);
        }
        record.last = now;
        let aggregated = record.messages.len() >= MAX_EVENTS;
        if aggregated {
            record.messages.remove(0);
        }
        record.messages.shrink_to_fit();
        self.aggregates.put(key, record);
        aggregated
    }

    fn pending_event(
        &self,
        notice: &EventNotice,
        message: &str,
        emitted: &EmittedEvent,
    ) -> PendingEvent {
        let involved = &notice.object;
        let name = event_name(&involved.name, emitted.suffix);
        let namespace = match involved.namespace.as_str() {
            "" => "default",
            namespace => namespace,
        };
        let last = whole_second(notice.at);
        let mut object = Map::from_iter([
            ("kind".to_owned(), json!(involved.kind)),
            ("apiVersion".to_owned(), json!("v1")),
            ("name".to_owned(), json!(involved.name)),
            ("uid".to_owned(), json!(involved.uid)),
        ]);
        for (field, value) in [
            ("namespace", &involved.namespace),
            ("fieldPath", &notice.field_path),
        ] {
            if !value.is_empty() {
                object.insert(field.to_owned(), json!(value));
            }
        }
        let mut metadata = Map::from_iter([
            ("name".to_owned(), json!(name)),
            ("namespace".to_owned(), json!(namespace)),
        ]);
        if !notice.annotations.is_empty() {
            metadata.insert("annotations".to_owned(), json!(notice.annotations));
        }
        let event = json!({
            "apiVersion": "v1", "kind": "Event", "metadata": metadata,
            "involvedObject": object,
            "reason": notice.reason, "message": message,
            "source": { "component": "kubelet", "host": self.node },
            "reportingComponent": "kubelet", "reportingInstance": self.node,
            "firstTimestamp": whole_second(emitted.first), "lastTimestamp": last,
            "count": emitted.count,
            "type": if notice.warning { "Warning" } else { "Normal" },
        });
        let patch = json!({ "count": emitted.count, "lastTimestamp": last, "message": message });
        PendingEvent {
            namespace: namespace.to_owned(),
            name,
            event,
            patch: (emitted.count > 1).then_some(patch),
        }
    }
}

fn whole_second(at: Timestamp) -> String {
    Timestamp::from_second(at.as_second())
        .unwrap_or(at)
        .to_string()
}

fn hash(text: &str) -> u128 {
    fnv1a_128(text.as_bytes())
}

pub(crate) fn object_key(uid: &str) -> ObjectKey {
    hash(uid) as u64
}

/// A key that is less general by one text.
fn combine(key: EventKey, text: &str) -> EventKey {
    let mut hash = Fnv1a128::default();
    hash.update(&key.to_be_bytes());
    hash.update(text.as_bytes());
    hash.finish()
}

/// The name of an event: its object's, and a suffix unique to the notice.
fn event_name(object: &str, suffix: u64) -> String {
    let suffix = format!(".{suffix:016x}");
    let object: String = object.chars().take(MAX_NAME - suffix.len()).collect();
    // A name that is cut off may not end in a separator.
    format!("{}{suffix}", object.trim_end_matches(['.', '-']))
}

#[cfg(test)]
mod tests;
