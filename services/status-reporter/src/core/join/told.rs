//! What is told of a pod.

use std::sync::Arc;

use k8s_openapi::api::core::v1::PodStatus;
use polylet_model::Manifest;

/// What is said of one pod.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Told {
    pub(crate) manifest: Manifest,
    pub(crate) status: Arc<PodStatus>,
    /// What the pod waits for, for people.
    pub(crate) waiting_for: Vec<String>,
    /// Whose facts are only the last known.
    pub(crate) stale: Vec<String>,
    /// How far it is on its way out.
    pub(crate) leaving: Leaving,
    /// Whether it may run here at all is not decided yet. As upstream: the cluster hears nothing of
    /// it before, so that of one that is refused it hears of no other phase than `Failed`.
    pub(crate) unadmitted: bool,
}

/// How far a pod is on its way out, for what waits for that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Leaving {
    /// No source wants it any more.
    pub(crate) unwanted: bool,
    /// None of its containers can run any more.
    pub(crate) stopped: bool,
    /// Nothing of it is left on the node.
    pub(crate) reclaimed: bool,
}

/// What a join came to.
#[derive(Debug, PartialEq)]
pub(crate) enum Outcome {
    /// The same as before, or nothing that can be said yet.
    Same,
    /// Something else than before.
    Told {
        /// What is said now.
        told: Box<Told>,
        /// The status itself is another than the last one, of this life or the one before.
        changed: bool,
    },
    /// The pod is gone.
    Gone,
}
