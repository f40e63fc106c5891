use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use jiff::Timestamp;
use polylet_wire::lifecycle::v1 as wire;

use crate::channel::Channel;
use crate::manifest::Manifest;

/// Another service of this node, as this one sees it.
#[derive(Clone)]
pub struct Peer {
    inner: Arc<Inner>,
}

struct Inner {
    name: &'static str,
    socket: PathBuf,
    channel: OnceLock<Channel>,
    /// Whether a stream of the peer has ever been asked for.
    watched: Arc<AtomicBool>,
    heard: Mutex<Heard>,
}

/// What has been heard from the peer in this life of the process.
#[derive(Default)]
struct Heard {
    incarnation: String,
    last: Option<Timestamp>,
    streams: BTreeMap<&'static str, Stream>,
}

struct Stream {
    /// Connected, and heard to the end.
    synced: bool,
    /// Holds a state with positions. Streams of one value each come and go, many under one name.
    keyed: bool,
}

impl Peer {
    /// The service's name.
    pub fn name(&self) -> &'static str {
        self.inner.name
    }

    /// A client transport; all of them share one connection. Needs the tokio runtime.
    pub fn channel(&self) -> Channel {
        let inner = &self.inner;
        inner
            .channel
            .get_or_init(|| Channel::new(inner.name, &inner.socket, inner.watched.clone()))
            .clone()
    }

    /// A transport for whoever looks in passing and follows nothing: a stream that is opened by it
    /// and left again does not make the peer one that is watched, and behind when nobody does.
    pub fn in_passing(&self) -> Channel {
        Channel::new(self.inner.name, &self.inner.socket, Arc::default())
    }

    fn heard_so_far(&self) -> MutexGuard<'_, Heard> {
        self.inner
            .heard
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn to_wire(&self) -> wire::Peer {
        let watched = self.inner.watched.load(Ordering::Relaxed);
        let heard = self.heard_so_far();
        wire::Peer {
            service: self.inner.name.to_owned(),
            // A peer that is only called is never behind; one that is watched and has not said
            // anything is.
            synced: heard.streams.values().all(|stream| stream.synced)
                && (!heard.streams.is_empty() || !watched),
            incarnation: heard.incarnation.clone(),
            last_heard_at: heard.last.map(polylet_wire::time::to_wire),
        }
    }
}

impl polylet_watch::Heard for Peer {
    fn heard(&self, stream: &'static str, incarnation: &str, synced: bool) {
        let mut heard = self.heard_so_far();
        heard.last = Some(Timestamp::now());
        let keyed = !incarnation.is_empty();
        if keyed && heard.incarnation != incarnation {
            heard.incarnation = incarnation.to_owned();
        }
        let before = heard.streams.insert(stream, Stream { synced, keyed });
        if synced && !before.is_some_and(|before| before.synced) {
            tracing::debug!(peer = self.inner.name, stream, "in step");
        }
    }

    fn lost(&self, stream: &'static str, why: &str) {
        let mut heard = self.heard_so_far();
        let told = match heard.streams.get_mut(stream) {
            // Whoever followed it may be gone for good: nobody would take "behind" back.
            Some(known) if !known.keyed => {
                heard.streams.remove(stream);
                return;
            }
            Some(known) => !std::mem::replace(&mut known.synced, false),
            None => {
                let (synced, keyed) = (false, true);
                heard.streams.insert(stream, Stream { synced, keyed });
                true
            }
        };
        // Told once per loss, not per attempt.
        if !told {
            let peer = self.inner.name;
            tracing::info!(peer, stream, why, "lost, what it said stays as it is");
        }
    }
}

/// Every peer that the manifest names.
pub(crate) struct Peers {
    all: Vec<Peer>,
}

impl Peers {
    pub(crate) fn new(manifest: &Manifest, run_directory: &Path) -> Peers {
        let mut all: Vec<Peer> = Vec::new();
        for call in manifest.calls {
            if all.iter().any(|peer| peer.name() == call.service) {
                continue;
            }
            all.push(Peer {
                inner: Arc::new(Inner {
                    name: call.service,
                    socket: socket_of(run_directory, call.service),
                    channel: OnceLock::new(),
                    watched: Arc::default(),
                    heard: Mutex::default(),
                }),
            });
        }
        Peers { all }
    }

    pub(crate) fn get(&self, service: &str) -> Option<Peer> {
        self.all.iter().find(|peer| peer.name() == service).cloned()
    }

    pub(crate) fn to_wire(&self) -> Vec<wire::Peer> {
        self.all.iter().map(Peer::to_wire).collect()
    }
}

/// Where a service listens.
pub(crate) fn socket_of(run_directory: &Path, service: &str) -> PathBuf {
    run_directory.join(format!("{service}.sock"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::Call;
    use polylet_watch::Heard as _;

    static MANIFEST: Manifest = Manifest {
        service: "x",
        version: "0",
        about: "",
        serves: &[],
        calls: &[Call {
            service: "pleg",
            package: "polylet.pleg.v1",
            level: 1,
        }],
        keeps: &[],
    };

    #[test]
    fn in_step_is_heard_to_the_end_on_every_stream() {
        let peers = Peers::new(&MANIFEST, Path::new("/nonexistent"));
        let peer = peers.get("pleg").unwrap();
        let synced = || peers.to_wire()[0].synced;
        assert!(synced(), "only called");
        peer.inner.watched.store(true, Ordering::Relaxed);
        assert!(!synced(), "watched and silent");
        peer.heard("A", "1", false);
        assert!(!synced());
        peer.heard("A", "1", true);
        peer.heard("Value", "", true);
        assert!(synced());
        assert_eq!(peers.to_wire()[0].incarnation, "1");
        peer.lost("Value", "gone");
        assert!(synced(), "a value that nobody may follow any more");
        peer.lost("A", "gone");
        assert!(!synced());
        peer.heard("A", "2", true);
        assert!(synced());
        assert!(peers.get("prober").is_none());
    }
}
