//! From what services have to say to events: which are told, which count up one that was told, and
//! which are too many. The rules and figures are those of client-go.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;
use polylet_model::hash::fnv1a_128;
use serde_json::{Value, json};

use super::bucket::{Bucket, Moment};
use lru::Lru;

pub(crate) mod leisure;
mod lru;

/// As many objects and events are remembered.
const REMEMBERED: usize = 4096;
/// So many different messages of one kind within [`SIMILAR_WITHIN`] are told one by one; from then
/// on they are told as one.
const SIMILAR: usize = 10;
const SIMILAR_WITHIN: Duration = Duration::from_secs(600);
/// What one object may say: so many at once, and then one in so many seconds.
const BURST: f64 = 25.0;
const REFILL: f64 = 1.0 / 300.0;
/// A name is no longer than this.
const LONGEST_NAME: usize = 253;

/// Whom an event is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct About {
    pub(crate) kind: String,
    /// Empty for the node, and other objects that are in none.
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: String,
}

/// Something to be told once.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Word {
    /// Told by no other word.
    pub(crate) id: String,
    pub(crate) about: About,
    /// `spec.containers{web}`; empty for the whole.
    pub(crate) part: String,
    pub(crate) warning: bool,
    pub(crate) reason: String,
    pub(crate) message: String,
    pub(crate) at: Timestamp,
}

/// What is to be done at the API server.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Telling {
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// The event, whole.
    pub(crate) event: Value,
    /// With this the event of this name, which was told, counts up.
    pub(crate) patch: Option<Value>,
}

/// What two words have in common that say the same of one object: reason, type, object.
type Kind = (About, bool, String);

#[derive(Clone)]
struct Similar {
    messages: BTreeSet<u128>,
    last: Moment,
}

#[derive(Clone)]
struct Told {
    name: String,
    first: Timestamp,
    count: u32,
}

/// Remembers what was told.
pub(crate) struct Correlator {
    node: String,
    similar: Lru<Kind, Similar>,
    told: Lru<(Kind, String, u128), Told>,
    spam: Lru<(About, bool), Bucket>,
}

impl Correlator {
    pub(crate) fn new(node: &str) -> Self {
        Self {
            node: node.to_owned(),
            similar: Lru::new(REMEMBERED),
            told: Lru::new(REMEMBERED),
            spam: Lru::new(REMEMBERED),
        }
    }

    /// What becomes of a word; `None` when its object has said too much.
    pub(crate) fn judge(&mut self, word: &Word, now: Moment) -> Option<Telling> {
        let kind = (word.about.clone(), word.warning, word.reason.clone());
        let (message, key) = if self.is_one_of_many(&kind, word, now) {
            let message = format!("(combined from similar events): {}", word.message);
            // All of them count up one event.
            (message, (kind, String::new(), 0))
        } else {
            let same = (kind, word.part.clone(), hash(&word.message));
            (word.message.clone(), same)
        };
        let known = self.told.get(&key).cloned();
        let told = match known {
            Some(known) => Told {
                count: known.count.saturating_add(1),
                ..known
            },
            None => Told {
                name: name(&word.about.name, &word.id),
                first: word.at,
                count: 1,
            },
        };
        self.told.put(key, told.clone());
        let object = (word.about.clone(), word.warning);
        let mut bucket = match self.spam.get(&object) {
            Some(bucket) => bucket.clone(),
            None => Bucket::new(REFILL, BURST),
        };
        let allowed = bucket.take(now).is_ok();
        self.spam.put(object, bucket);
        allowed.then(|| self.telling(word, &message, told))
    }

    /// Whether a word is one of many that are alike.
    fn is_one_of_many(&mut self, kind: &Kind, word: &Word, now: Moment) -> bool {
        let known = self.similar.get(kind).cloned();
        let lately = known.filter(|known| now.saturating_sub(known.last) <= SIMILAR_WITHIN);
        let mut similar = lately.unwrap_or(Similar {
            messages: BTreeSet::new(),
            last: now,
        });
        similar.messages.insert(hash(&word.message));
        similar.last = now;
        let many = similar.messages.len() >= SIMILAR;
        if many {
            similar.messages.pop_first();
        }
        self.similar.put(kind.clone(), similar);
        many
    }

    fn telling(&self, word: &Word, message: &str, told: Told) -> Telling {
        let about = &word.about;
        let namespace = match about.namespace.as_str() {
            "" => "default",
            namespace => namespace,
        };
        let last = second(word.at);
        let mut object = json!({
            "kind": about.kind, "apiVersion": "v1", "name": about.name, "uid": about.uid,
        });
        for (field, value) in [("namespace", &about.namespace), ("fieldPath", &word.part)] {
            if !value.is_empty() {
                object[field] = value.as_str().into();
            }
        }
        let event = json!({
            "apiVersion": "v1", "kind": "Event",
            "metadata": { "name": told.name, "namespace": namespace },
            "involvedObject": object,
            "reason": word.reason, "message": message,
            "source": { "component": "kubelet", "host": self.node },
            "reportingComponent": "kubelet", "reportingInstance": self.node,
            "firstTimestamp": second(told.first), "lastTimestamp": last,
            "count": told.count,
            "type": if word.warning { "Warning" } else { "Normal" },
        });
        let again = json!({ "count": told.count, "lastTimestamp": last, "message": message });
        Telling {
            namespace: namespace.to_owned(),
            name: told.name,
            event,
            patch: (told.count > 1).then_some(again),
        }
    }
}

fn second(at: Timestamp) -> String {
    Timestamp::from_second(at.as_second())
        .unwrap_or(at)
        .to_string()
}

fn hash(text: &str) -> u128 {
    fnv1a_128(text.as_bytes())
}

/// The event's name: its object's, and what tells it from all others.
fn name(about: &str, id: &str) -> String {
    let mark = format!(".{:016x}", hash(id) as u64);
    let room = LONGEST_NAME - mark.len();
    let about: String = about.chars().take(room).collect();
    // What is cut may not end in a mark of its own.
    format!("{}{mark}", about.trim_end_matches(['.', '-']))
}

#[cfg(test)]
mod tests;
