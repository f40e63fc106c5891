//! The published status of a pod.

use std::cmp::Reverse;

use jiff::Timestamp;
use polylet_model::Manifest;

use super::shared_status::SharedStatus;

/// The status of a pod, with what callers want to know about it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PublishedStatus {
    pub(crate) manifest: Manifest,
    pub(crate) status: SharedStatus,
    /// What the pod waits for, for display.
    pub(crate) waiting_for: Vec<String>,
    /// Peers whose facts are only the last known.
    pub(crate) stale: Vec<String>,
    pub(crate) teardown: Teardown,
    /// Admission is not decided yet. As upstream, nothing is reported to the API server before, so
    /// that `Failed` is the only phase it sees of a rejected one.
    pub(crate) unadmitted: bool,
}

impl PublishedStatus {
    /// Whether the API server may forget the pod once it has this status. As upstream, its containers and
    /// sandboxes may still be there, stopped.
    pub(crate) fn is_deletable(&self) -> bool {
        let is_deleted = self.manifest.deletion_timestamp().is_some();
        let is_served = !self.manifest.is_static() && !self.teardown.undesired;
        is_served && is_deleted && self.teardown.reclaimed
    }

    /// The place of the pod among those of its name.
    pub(crate) fn precedence(&self) -> NamePrecedence {
        let start = self.status.start_time.as_ref().map(|start| start.0);
        let begun = start.or_else(|| self.manifest.creation_timestamp());
        NamePrecedence {
            undesired: self.teardown.undesired,
            // A static pod that has not started yet has no time, and is the newest.
            begun: Reverse(begun.unwrap_or(Timestamp::MAX)),
        }
    }
}

/// The order of pods of one name: those that a source still has come first, as users mean them, and then
/// the newest. After a forced deletion, the replacement may run beside the pod that terminates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct NamePrecedence {
    /// No source has the pod any more.
    undesired: bool,
    /// When the pod started here, or was created.
    begun: Reverse<Timestamp>,
}

/// How far the removal of a pod has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Teardown {
    /// No source has the pod any more.
    pub(crate) undesired: bool,
    /// None of its containers can run any more.
    pub(crate) stopped: bool,
    /// What it used on this node is free.
    pub(crate) reclaimed: bool,
}

/// The outcome of reconciling one pod.
#[derive(Debug, PartialEq)]
pub(crate) enum StatusChange {
    /// The same as before, or facts are missing.
    Unchanged,
    /// Nothing is known of the pod, and no status of it was published.
    Unknown,
    Updated {
        published: Box<PublishedStatus>,
        /// The status itself differs from the last one, of this process instance or the previous.
        changed: bool,
        /// The last status with a decided admission, of this process instance or the previous.
        before: Option<SharedStatus>,
    },
    Removed {
        /// The last that was published in this process instance.
        last: Option<Box<PublishedStatus>>,
    },
}
