use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
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
    heard: Mutex<Heard>,
}

/// What has been heard from the peer in this life of the process.
#[derive(Default)]
struct Heard {
    incarnation: String,
    last: Option<Timestamp>,
    /// Each watched stream, and whether it is connected and has been heard to the end.
    streams: BTreeMap<&'static str, bool>,
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
            .get_or_init(|| Channel::new(inner.name, &inner.socket))
            .clone()
    }

    fn heard_so_far(&self) -> MutexGuard<'_, Heard> {
        self.inner
            .heard
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn to_wire(&self) -> wire::Peer {
        let heard = self.heard_so_far();
        wire::Peer {
            service: self.inner.name.to_owned(),
            // A peer without streams is only called, and is never behind.
            synced: heard.streams.values().all(|synced| *synced),
            incarnation: heard.incarnation.clone(),
            last_heard_at: heard.last.map(polylet_wire::time::to_wire),
        }
    }
}

impl polylet_watch::Heard for Peer {
    fn heard(&self, stream: &'static str, incarnation: &str, synced: bool) {
        let mut heard = self.heard_so_far();
        heard.last = Some(Timestamp::now());
        if heard.incarnation != incarnation {
            heard.incarnation = incarnation.to_owned();
        }
        let before = heard.streams.insert(stream, synced);
        if synced && before != Some(true) {
            tracing::debug!(peer = self.inner.name, stream, "in step");
        }
    }

    fn lost(&self, stream: &'static str, why: &str) {
        let before = self.heard_so_far().streams.insert(stream, false);
        // Told once per loss, not per attempt.
        if before == Some(true) {
            tracing::info!(
                peer = self.inner.name,
                stream,
                why,
                "lost, what it said stays as it is"
            );
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
