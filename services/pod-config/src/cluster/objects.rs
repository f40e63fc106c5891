//! Objects that pods refer to: each followed by its name while somebody wants it, and a little
//! longer.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use polylet_kit::CancellationToken;
use serde_json::Value;
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::sleep;

use super::discovery::served;
use super::follow::{Ear, Followed, follow};
use super::line::Lines;
use super::polled::poll;
use super::request::Failure;
use crate::core::ObjectKey;
use crate::core::cluster::kept::whole_objects;
use crate::core::cluster::kinds::Kind;
use crate::keep::{Entries, Form, Source};
use polylet_api::Refusal;

/// After the last watcher has gone: a pod that is replaced asks for the same again.
const GRACE: Duration = Duration::from_secs(60);
/// What a former life kept and nobody has asked for since the server was heard.
const UNASKED: Duration = Duration::from_secs(600);
/// Right after a pod was bound, the server does not know yet that we may read what it refers to.
/// With the pauses between tries, so many take about half a second.
const REFUSALS: u32 = 4;

/// What is known of an object.
#[derive(Clone, PartialEq)]
pub(crate) enum State {
    Manifest(Arc<str>),
    Absent,
    /// It cannot be told now, and why.
    Unknown(String),
}

/// The state, and a way to have it looked at now.
#[derive(Clone)]
pub(crate) struct Entry {
    state: Arc<watch::Sender<Option<State>>>,
    look: Arc<Notify>,
}

/// All objects that are wanted. Clones share them.
#[derive(Clone)]
pub(crate) struct Objects {
    wanted: Arc<Mutex<BTreeMap<ObjectKey, Entry>>>,
    contents: Contents,
    begin: mpsc::UnboundedSender<(ObjectKey, Kind, Entry)>,
    keep: Entries<ObjectKey>,
}

/// What is known to be there: what is kept on disk.
#[derive(Clone)]
pub(crate) struct Contents(Arc<Mutex<BTreeMap<ObjectKey, Arc<str>>>>);

impl Source<ObjectKey> for Contents {
    type Entry = Arc<str>;

    fn keys(&self) -> Vec<ObjectKey> {
        lock(&self.0).keys().cloned().collect()
    }

    fn entry(&self, key: &ObjectKey) -> Option<Arc<str>> {
        lock(&self.0).get(key).cloned()
    }
}

/// Those that are to be begun.
pub(crate) type Begun = mpsc::UnboundedReceiver<(ObjectKey, Kind, Entry)>;

impl Objects {
    pub(crate) fn new(keep: Entries<ObjectKey>) -> (Objects, Begun) {
        let form = Form {
            whole: whole_objects,
        };
        let contents = keep.load(&form, |_, _| true);
        let (begin, begun) = mpsc::unbounded_channel();
        let objects = Objects {
            wanted: Arc::default(),
            contents: Contents(Arc::new(Mutex::new(contents))),
            begin,
            keep,
        };
        (objects, begun)
    }

    /// Follows an object as long as the receiver is held.
    pub(crate) fn want(&self, key: &ObjectKey, kind: Kind) -> watch::Receiver<Option<State>> {
        let mut wanted = lock(&self.wanted);
        if let Some(entry) = wanted.get(key) {
            entry.look.notify_one();
            return entry.state.subscribe();
        }
        let entry = Entry {
            state: Arc::new(watch::Sender::new(None)),
            look: Arc::default(),
        };
        let state = entry.state.subscribe();
        wanted.insert(key.clone(), entry.clone());
        // Nobody listens only when the process is about to end.
        let _ = self.begin.send((key.clone(), kind, entry));
        state
    }

    /// What is to outlive the process.
    pub(crate) fn kept(&self) -> Contents {
        self.contents.clone()
    }

    /// Follows all that are wanted.
    pub(crate) async fn run(self, lines: Lines, mut begun: Begun, drain: CancellationToken) {
        let mut following = FuturesUnordered::new();
        let mut unasked = std::pin::pin!(async {
            loop {
                sleep(UNASKED).await;
                if lines.trouble.shut().is_none() {
                    return;
                }
            }
        });
        let mut pruned = false;
        loop {
            tokio::select! {
                () = drain.cancelled() => return,
                Some((key, kind, entry)) = begun.recv() => {
                    following.push(self.one(&lines, key, kind, entry));
                }
                Some(()) = following.next() => {}
                () = &mut unasked, if !pruned => {
                    pruned = true;
                    self.prune();
                }
            }
        }
    }

    async fn one(&self, lines: &Lines, key: ObjectKey, kind: Kind, entry: Entry) {
        let mut ear = Object {
            objects: self,
            key: key.clone(),
            kind,
            entry: entry.clone(),
            refused: 0,
            complete: false,
            unserved: false,
            value: None,
            set: BTreeMap::new(),
        };
        let mut following = std::pin::pin!(async {
            while !ear.complete {
                if kind.is_optional() {
                    ear.kind = served(lines, kind, &mut ear).await;
                    ear.unserved = false;
                }
                let followed = followed(ear.kind, &key);
                if kind.watched {
                    follow(lines, &followed, &mut ear).await;
                } else {
                    poll(lines, &followed, &entry.look, &mut ear).await;
                }
            }
            // It will never change.
            std::future::pending::<()>().await;
        });
        loop {
            tokio::select! {
                () = &mut following => {}
                () = unwanted(&entry) => {
                    let mut wanted = lock(&self.wanted);
                    if entry.state.receiver_count() == 0 {
                        wanted.remove(&key);
                        if lock(&self.contents.0).remove(&key).is_some() {
                            self.keep.later(key.clone());
                        }
                        return;
                    }
                }
            }
        }
    }

    fn prune(&self) {
        let wanted = lock(&self.wanted);
        lock(&self.contents.0).retain(|key, _| {
            let stays = wanted.contains_key(key);
            if !stays {
                self.keep.later(key.clone());
            }
            stays
        });
    }
}

/// One by its name, or all of a set.
fn followed(kind: Kind, key: &ObjectKey) -> Followed {
    Followed {
        path: kind.collection(key),
        by: Some((kind.set_by.unwrap_or("metadata.name"), key.name.clone())),
        name: kind.set_by.is_none().then(|| key.name.clone()),
    }
}

/// Nobody has wanted it for a while.
async fn unwanted(entry: &Entry) {
    entry.state.closed().await;
    sleep(GRACE).await;
}

/// Hears of one object.
pub(crate) struct Object<'a> {
    objects: &'a Objects,
    key: ObjectKey,
    kind: Kind,
    entry: Entry,
    /// So many times in a row we might not read it.
    refused: u32,
    complete: bool,
    /// What was served is so no more, by the version that was chosen.
    unserved: bool,
    /// All of a set, by name.
    set: BTreeMap<String, Value>,
    /// As it came, of those that are polled: what is awaited of it is read there.
    pub(crate) value: Option<Value>,
}

impl Object<'_> {
    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    fn know(&mut self, object: Option<Value>) {
        self.refused = 0;
        self.complete = object.as_ref().is_some_and(|it| self.kind.is_final(it));
        self.value = object.clone().filter(|_| !self.kind.watched);
        let manifest = object.map(|object| Arc::<str>::from(self.kind.reduce(object)));
        let mut contents = lock(&self.objects.contents.0);
        let changed = match &manifest {
            Some(manifest) => {
                let before = contents.insert(self.key.clone(), manifest.clone());
                before.as_ref() != Some(manifest)
            }
            None => contents.remove(&self.key).is_some(),
        };
        drop(contents);
        if changed {
            self.objects.keep.soon(self.key.clone());
        }
        self.tell(manifest.map_or(State::Absent, State::Manifest));
    }

    fn know_set(&mut self) {
        let all = self.set.values().cloned();
        self.know(Some(Kind::list(all)));
    }

    fn tell(&self, state: State) {
        let state = Some(state);
        self.entry.state.send_if_modified(|told| {
            let changed = *told != state;
            *told = state;
            changed
        });
    }

    /// It cannot be read now. What was told before stands; if nothing was, what a former life kept.
    fn unknown(&self, message: &str, away: bool) {
        let told = self.entry.state.borrow().clone();
        if matches!(told, Some(State::Manifest(_) | State::Absent)) {
            return;
        }
        let kept = lock(&self.objects.contents.0).get(&self.key).cloned();
        self.tell(match kept.filter(|_| away) {
            Some(kept) => State::Manifest(kept),
            None => State::Unknown(message.to_owned()),
        });
    }
}

impl Ear for Object<'_> {
    async fn whole(&mut self, all: &mut (dyn Iterator<Item = Value> + Send)) {
        if self.kind.set_by.is_none() {
            return self.know(all.next());
        }
        self.set = all.map(|object| (name(&object), object)).collect();
        self.know_set();
    }

    fn changed(&mut self, object: Value) {
        if self.kind.set_by.is_none() {
            return self.know(Some(object));
        }
        self.set.insert(name(&object), object);
        self.know_set();
    }

    fn gone(&mut self, object: Value) {
        if self.kind.set_by.is_none() {
            return self.know(None);
        }
        self.set.remove(&name(&object));
        self.know_set();
    }

    fn failed(&mut self, failure: &Failure) {
        if failure.unserved {
            self.unserved = self.kind.is_optional();
            return self.unknown(&self.kind.unserved(), false);
        }
        if failure.refusal == Refusal::Forbidden {
            self.refused += 1;
            if self.refused < REFUSALS {
                return;
            }
        }
        self.unknown(&failure.message, failure.refusal.passes());
    }

    fn late(&mut self) {
        self.unknown("the API server has not answered yet", true);
    }

    fn enough(&self) -> bool {
        self.complete || self.unserved
    }
}

fn name(object: &Value) -> String {
    let name = object.pointer("/metadata/name").and_then(Value::as_str);
    name.unwrap_or_default().to_owned()
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    // Every change leaves it whole.
    of.lock().unwrap_or_else(PoisonError::into_inner)
}
