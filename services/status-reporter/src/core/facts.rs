//! The facts that are joined.

use jiff::Timestamp;
use polylet_model::status::{Container, Note, PendingResize, Resizing, Sandbox, Stage, Terminal};
use polylet_model::{Allocation, Manifest};

/// Where pods come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Source {
    File,
    Http,
    Api,
}

impl Source {
    pub(crate) const ALL: [Self; 3] = [Self::File, Self::Http, Self::Api];
}

/// The streams that facts come in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Stream {
    Pods(Source),
    Sync,
    States,
    Verdicts,
    Runtime,
}

impl Stream {
    pub(crate) const ALL: [Self; 7] = [
        Self::Pods(Source::File),
        Self::Pods(Source::Http),
        Self::Pods(Source::Api),
        Self::Sync,
        Self::States,
        Self::Verdicts,
        Self::Runtime,
    ];

    /// The peer it comes from.
    pub(crate) fn peer(self) -> &'static str {
        match self {
            Self::Pods(_) => "pod-config",
            Self::Sync => "sync-coordinator",
            Self::States | Self::Runtime => "pleg",
            Self::Verdicts => "prober",
        }
    }

    /// What is missing while it has not been heard, for people.
    pub(crate) fn what(self) -> &'static str {
        match self {
            Self::Pods(Source::File) => "pods of the manifest directory (pod-config)",
            Self::Pods(Source::Http) => "pods of the manifest URL (pod-config)",
            Self::Pods(Source::Api) => "pods of the API server (pod-config)",
            Self::Sync => "how far pods have come (sync-coordinator)",
            Self::States => "what the runtime holds (pleg)",
            Self::Verdicts => "how containers are (prober)",
            Self::Runtime => "which runtime it is (pleg)",
        }
    }
}

/// A pod that should run.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    pub(crate) manifest: Manifest,
    /// It stands on pod-config's kept copy.
    pub(crate) stale: bool,
}

/// How far a pod has come.
#[derive(Clone, Debug, Default)]
pub(crate) struct Progress {
    pub(crate) stage: Stage,
    /// Nothing of it is left on the node.
    pub(crate) reclaimed: bool,
    pub(crate) notes: Vec<Note>,
    pub(crate) terminal: Option<Terminal>,
    pub(crate) resize: Option<PendingResize>,
    pub(crate) resizing: Option<Resizing>,
    /// What the pod was given, while its manifest asks for something else.
    pub(crate) allocated: Option<Allocation>,
    pub(crate) acknowledged_at: Option<Timestamp>,
    /// For a pod that pod-config no longer serves.
    pub(crate) last_manifest: Option<Manifest>,
    pub(crate) waiting_for: Vec<String>,
    /// Whether it may run here at all is not decided yet.
    pub(crate) unadmitted: bool,
}

/// What the runtime holds of a pod.
#[derive(Clone, Debug, Default)]
pub(crate) struct Held {
    pub(crate) sandboxes: Vec<Sandbox>,
    pub(crate) containers: Vec<Container>,
    /// Why this is only the last known; empty when it is not.
    pub(crate) inspect_error: String,
}

impl Held {
    pub(crate) fn is_empty(&self) -> bool {
        self.sandboxes.is_empty() && self.containers.is_empty()
    }
}
