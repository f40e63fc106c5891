//! Which streams have synced, and which are current.

use polylet_model::PodUid;
use std::collections::{BTreeMap, BTreeSet};

/// A stream that must have synced before anything is removed or served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum SyncedStream {
    /// Pods of one source of pod-config.
    PodSource(i32),
    /// Pod states of the runtime, from pleg.
    PodStates,
    /// Volume states, from volume-manager.
    Volumes,
}

/// The sync state of all streams.
#[derive(Debug, Default)]
pub(crate) struct StreamSync {
    /// Whether a stream is current; absent before its initial sync.
    streams: BTreeMap<SyncedStream, bool>,
    /// Streams that all of the node's pods follow from.
    required: Vec<SyncedStream>,
    /// Pods that pod-config serves from its cache because their source is unavailable.
    cached_pods: BTreeSet<PodUid>,
}

impl StreamSync {
    /// Before any sync, with these sources of pods.
    pub(crate) fn new(sources: &[i32]) -> Self {
        let required = sources
            .iter()
            .map(|source| SyncedStream::PodSource(*source))
            .chain([SyncedStream::PodStates]);
        StreamSync {
            streams: BTreeMap::new(),
            required: required.collect(),
            cached_pods: BTreeSet::new(),
        }
    }

    /// Marks a stream as current; true if it was not.
    pub(crate) fn mark_synced(&mut self, stream: SyncedStream) -> bool {
        self.streams.insert(stream, true) != Some(true)
    }

    /// Marks a stream as lost.
    pub(crate) fn mark_stale(&mut self, stream: SyncedStream) {
        if let Some(current) = self.streams.get_mut(&stream) {
            *current = false;
        }
    }

    /// Sets whether pod-config serves a pod from its cache.
    pub(crate) fn set_cached(&mut self, uid: &PodUid, cached: bool) {
        if cached {
            self.cached_pods.insert(uid.to_owned());
        } else {
            self.cached_pods.remove(uid);
        }
    }

    /// Whether a stream has had its initial sync.
    pub(crate) fn has_synced(&self, stream: SyncedStream) -> bool {
        self.streams.contains_key(&stream)
    }

    /// Whether all sources and pleg are current. A source that serves cached pods is not: pods that
    /// are absent from its cache must not be removed.
    pub(crate) fn all_current(&self) -> bool {
        let current = |stream| self.streams.get(stream) == Some(&true);
        self.cached_pods.is_empty() && self.required.iter().all(current)
    }

    /// Whether all sources and pleg have had their initial sync.
    pub(crate) fn all_synced(&self) -> bool {
        self.required.iter().all(|stream| self.has_synced(*stream))
    }
}
