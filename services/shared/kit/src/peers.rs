use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use jiff::Timestamp;
use polylet_wire::lifecycle::v1 as wire;

use crate::HealthConditions;
use crate::channel::Channel;
use crate::descriptor::{Dependency, ServiceDescriptor};

/// The health condition of a service whose peer sends values that it does not know.
const NOT_UNDERSTOOD: &str = "PeerNotUnderstood";

/// Another service of this node: its channel, and the state of its streams.
#[derive(Clone)]
pub struct Peer {
    inner: Arc<Inner>,
}

struct Inner {
    name: &'static str,
    socket: PathBuf,
    /// All calls of this service, those to the peer among them.
    calls: &'static [Dependency],
    channel: OnceLock<Channel>,
    /// Whether a stream of the peer has been requested.
    watched: Arc<AtomicBool>,
    state: Mutex<PeerState>,
}

/// State of the peer's streams since process start.
#[derive(Default)]
struct PeerState {
    incarnation: String,
    last_received_at: Option<Timestamp>,
    streams: BTreeMap<&'static str, StreamState>,
}

struct StreamState {
    /// Connected, and received up to `Synced`.
    synced: bool,
}

impl Peer {
    /// Name of the service.
    pub fn name(&self) -> &'static str {
        self.inner.name
    }

    /// A client transport; all share one connection. Needs the tokio runtime.
    pub fn channel(&self) -> Channel {
        let inner = &self.inner;
        inner
            .channel
            .get_or_init(|| {
                Channel::new(
                    inner.name,
                    &inner.socket,
                    inner.calls,
                    inner.watched.clone(),
                )
            })
            .clone()
    }

    /// A transport over the same connection for one-off requests: a stream opened through it does not make
    /// the peer a watched one, which counts as not synced once nothing follows it.
    pub fn unwatched_channel(&self) -> Channel {
        self.channel().unwatched()
    }

    fn state(&self) -> MutexGuard<'_, PeerState> {
        self.inner
            .state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn to_wire(&self) -> wire::Peer {
        let watched = self.inner.watched.load(Ordering::Relaxed);
        let state = self.state();
        wire::Peer {
            service: self.inner.name.to_owned(),
            // A peer that is only called is always synced; a watched one not before its first
            // message.
            synced: state.streams.values().all(|stream| stream.synced)
                && (!state.streams.is_empty() || !watched),
            incarnation: state.incarnation.clone(),
            last_received_at: state.last_received_at.map(polylet_wire::time::to_wire),
        }
    }
}

impl polylet_watch::StreamObserver for Peer {
    fn received(&self, stream: &'static str, incarnation: &str, synced: bool) {
        let mut state = self.state();
        state.last_received_at = Some(Timestamp::now());
        let keyed = !incarnation.is_empty();
        if keyed && state.incarnation != incarnation {
            state.incarnation = incarnation.to_owned();
        }
        let before = state.streams.insert(stream, StreamState { synced });
        let was_synced = before.is_some_and(|before| before.synced);
        if synced != was_synced {
            crate::status_change::notify();
        }
        if synced && !was_synced {
            tracing::debug!(service = self.inner.name, stream, "stream synced");
        }
    }

    fn lost(&self, stream: &'static str, reason: &str) {
        crate::status_change::notify();
        let mut state = self.state();
        let was_lost = match state.streams.get_mut(stream) {
            Some(known) => !std::mem::replace(&mut known.synced, false),
            None => {
                state.streams.insert(stream, StreamState { synced: false });
                true
            }
        };
        // Logged once per loss, not per attempt.
        if !was_lost {
            let peer = self.inner.name;
            tracing::info!(
                service = peer,
                stream,
                reason,
                "stream lost; keeping last state"
            );
        }
    }

    fn value_lost(&self, stream: &'static str) {
        crate::status_change::notify();
        // If its follower is gone for good, nothing would set it to synced again.
        self.state().streams.remove(stream);
    }

    fn unknown(&self, stream: &'static str, field: Option<&'static str>) {
        let conditions = HealthConditions::of_process();
        let peer = self.inner.name;
        let object = format!("{peer} {stream}");
        match field {
            None => conditions.clear(NOT_UNDERSTOOD, object),
            Some(field) => {
                let what = polylet_wire::known::message(field);
                let message =
                    format!("{what}; its last known state is kept until this service is upgraded");
                conditions.set(NOT_UNDERSTOOD, object, message);
            }
        }
    }
}

/// Every peer that the descriptor names.
pub(crate) struct Peers {
    all: Vec<Peer>,
}

impl Peers {
    pub(crate) fn new(descriptor: &ServiceDescriptor, run_directory: &Path) -> Peers {
        let mut all: Vec<Peer> = Vec::new();
        for call in descriptor.calls {
            if all.iter().any(|peer| peer.name() == call.service) {
                continue;
            }
            all.push(Peer {
                inner: Arc::new(Inner {
                    name: call.service,
                    socket: socket_path(run_directory, call.service),
                    calls: descriptor.calls,
                    channel: OnceLock::new(),
                    watched: Arc::default(),
                    state: Mutex::default(),
                }),
            });
        }
        Peers { all }
    }

    pub(crate) fn get(&self, service: &str) -> Option<Peer> {
        self.all.iter().find(|peer| peer.name() == service).cloned()
    }

    /// The peers of which no stream was requested so far.
    pub(crate) fn only_called(&self) -> Vec<Peer> {
        let watched = |peer: &Peer| peer.inner.watched.load(Ordering::Relaxed);
        let called = self.all.iter().filter(|peer| !watched(peer));
        called.cloned().collect()
    }

    /// The peers that this node has. One without a socket is no part of it, as during the upgrade from a
    /// version that does not have that service: nothing could be in step with it.
    pub(crate) fn to_wire(&self) -> Vec<wire::Peer> {
        let present = self.all.iter().filter(|peer| peer.inner.socket.exists());
        present.map(Peer::to_wire).collect()
    }
}

/// The socket of a service.
pub(crate) fn socket_path(run_directory: &Path, service: &str) -> PathBuf {
    run_directory.join(format!("{service}.sock"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use polylet_watch::StreamObserver as _;

    static DESCRIPTOR: ServiceDescriptor = ServiceDescriptor {
        service: "x",
        version: "0",
        about: "",
        serves: &[],
        calls: &[Dependency {
            service: "pleg",
            package: "polylet.pleg.v1",
            level: 1,
        }],
        state_files: &[],
        subprocesses: &[],
    };

    #[test]
    fn a_peer_is_synced_when_all_its_streams_are() {
        let directory = tempfile::tempdir().unwrap();
        let peers = Peers::new(&DESCRIPTOR, directory.path());
        let peer = peers.get("pleg").unwrap();
        assert!(peers.to_wire().is_empty(), "the node does not have it");
        std::fs::write(directory.path().join("pleg.sock"), "").unwrap();
        let synced = || peers.to_wire()[0].synced;
        assert!(synced(), "only called");
        peer.inner.watched.store(true, Ordering::Relaxed);
        assert!(!synced(), "watched, no message yet");
        peer.received("A", "1", false);
        assert!(!synced());
        peer.received("A", "1", true);
        peer.received("Value", "", true);
        assert!(synced());
        assert_eq!(peers.to_wire()[0].incarnation, "1");
        for follower in ["first", "second"] {
            peer.value_lost("Value");
            assert!(synced(), "the {follower} of a value may be gone for good");
        }
        peer.lost("A", "gone");
        assert!(!synced());
        peer.received("A", "2", true);
        assert!(synced());
        assert!(peers.get("prober").is_none());
        let not_understood = || {
            let all = HealthConditions::of_process().to_wire();
            let mut found = all.into_iter().filter(|one| one.object == "pleg A");
            found.next().map(|one| (one.reason, one.message))
        };
        peer.unknown("A", Some("polylet.x.v1.Y.z"));
        let (reason, message) = not_understood().unwrap();
        assert_eq!(reason, "PeerNotUnderstood");
        assert!(message.starts_with("polylet.x.v1.Y.z has a value that this build does not know"));
        peer.unknown("A", None);
        assert_eq!(not_understood(), None);
    }
}
