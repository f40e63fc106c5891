//! Whom this life of the process has heard, and who is silent now.

use std::collections::BTreeMap;

/// Streams that must have been heard before anything is destroyed or served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stream {
    /// Pods of one source of pod-config.
    Source(i32),
    /// What the runtime holds.
    Pods,
    /// Where volumes stand.
    Volumes,
}

/// Whom we have heard.
#[derive(Debug, Default)]
pub(crate) struct Heard {
    /// By stream: whether it is current now. Absent before its first word.
    streams: BTreeMap<Stream, bool>,
    needed: Vec<Stream>,
}

impl Heard {
    /// Nobody yet.
    pub(crate) fn new(sources: &[i32]) -> Self {
        let needed = sources
            .iter()
            .map(|source| Stream::Source(*source))
            .chain([Stream::Pods]);
        Heard {
            streams: BTreeMap::new(),
            needed: needed.collect(),
        }
    }

    /// A stream is current. True when it was not.
    pub(crate) fn synced(&mut self, stream: Stream) -> bool {
        self.streams.insert(stream, true) != Some(true)
    }

    /// A stream was lost.
    pub(crate) fn stale(&mut self, stream: Stream) {
        if let Some(current) = self.streams.get_mut(&stream) {
            *current = false;
        }
    }

    /// Whether a stream is current.
    pub(crate) fn fresh(&self, stream: Stream) -> bool {
        self.streams.get(&stream) == Some(&true)
    }

    /// Whether a stream was heard in this life at all.
    pub(crate) fn ever(&self, stream: Stream) -> bool {
        self.streams.contains_key(&stream)
    }

    /// Whether all sources and the runtime's states are current.
    pub(crate) fn all_fresh(&self) -> bool {
        self.needed.iter().all(|stream| self.fresh(*stream))
    }

    /// Whether all sources and the runtime's states were heard in this life.
    pub(crate) fn all_ever(&self) -> bool {
        self.needed.iter().all(|stream| self.ever(*stream))
    }
}
