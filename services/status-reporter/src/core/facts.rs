//! Facts about pods, one type for each stream that they arrive on.

use std::time::Duration;

use jiff::Timestamp;
use polylet_model::status::{
    PendingResize, PodWorkerState, ResizeInProgress, RuntimeContainer, RuntimeSandbox,
    TerminalDecision, WaitReason,
};
use polylet_model::{Manifest, PodAllocation};

/// Where pod manifests come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum ManifestSource {
    File,
    Http,
    Api,
}

impl ManifestSource {
    pub(crate) const ALL: [Self; 3] = [Self::File, Self::Http, Self::Api];
}

/// The streams that facts arrive on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum FactStream {
    Pods(ManifestSource),
    Sync,
    RuntimeStates,
    Probes,
    Runtime,
    PodDevices,
}

impl FactStream {
    /// Those that statuses wait for. Devices of pods are not among them: until they are known, the
    /// statuses have the previous ones.
    pub(crate) const REQUIRED: [Self; 7] = [
        Self::Pods(ManifestSource::File),
        Self::Pods(ManifestSource::Http),
        Self::Pods(ManifestSource::Api),
        Self::Sync,
        Self::RuntimeStates,
        Self::Probes,
        Self::Runtime,
    ];

    /// The service that serves the stream.
    pub(crate) fn peer(self) -> &'static str {
        match self {
            Self::Pods(_) => "pod-config",
            Self::Sync => "sync-coordinator",
            Self::RuntimeStates | Self::Runtime => "pleg",
            Self::Probes => "prober",
            Self::PodDevices => "device-manager",
        }
    }

    /// What the stream carries, for error messages.
    pub(crate) fn description(self) -> &'static str {
        match self {
            Self::Pods(ManifestSource::File) => "pods of the manifest directory (pod-config)",
            Self::Pods(ManifestSource::Http) => "pods of the manifest URL (pod-config)",
            Self::Pods(ManifestSource::Api) => "pods of the API server (pod-config)",
            Self::Sync => "sync progress of pods (sync-coordinator)",
            Self::RuntimeStates => "containers and sandboxes of the runtime (pleg)",
            Self::Probes => "probe results (prober)",
            Self::Runtime => "name and handlers of the runtime (pleg)",
            Self::PodDevices => "devices of pods (device-manager)",
        }
    }
}

/// A pod that should run.
#[derive(Clone, Debug)]
pub(crate) struct DesiredManifest {
    pub(crate) manifest: Manifest,
    /// The source is unavailable; pod-config serves its last known copy.
    pub(crate) stale: bool,
}

/// How far the sync of a pod has come.
#[derive(Clone, Debug, Default)]
pub(crate) struct SyncProgress {
    pub(crate) worker_state: PodWorkerState,
    /// What the pod used on this node is free.
    pub(crate) reclaimed: bool,
    /// Nothing of the pod is left on this node.
    pub(crate) cleaned_up: bool,
    pub(crate) wait_reasons: Vec<WaitReason>,
    pub(crate) terminal: Option<TerminalDecision>,
    pub(crate) resize_pending: Option<PendingResize>,
    pub(crate) resize_in_progress: Option<ResizeInProgress>,
    /// The allocated resources, while the manifest requests others.
    pub(crate) allocated: Option<PodAllocation>,
    pub(crate) acknowledged_at: Option<Timestamp>,
    /// The manifest of a pod that pod-config no longer serves.
    pub(crate) last_manifest: Option<Manifest>,
    pub(crate) waiting_for: Vec<String>,
    /// Admission is not decided yet.
    pub(crate) unadmitted: bool,
    /// How long its images were being pulled.
    pub(crate) image_pull_time: Duration,
}

/// Sandboxes and containers of a pod in the runtime.
#[derive(Clone, Debug, Default)]
pub(crate) struct RuntimePodState {
    pub(crate) sandboxes: Vec<RuntimeSandbox>,
    pub(crate) containers: Vec<RuntimeContainer>,
    /// Why the last inspection failed; empty when the state is current.
    pub(crate) inspect_error: String,
}

impl RuntimePodState {
    pub(crate) fn is_empty(&self) -> bool {
        self.sandboxes.is_empty() && self.containers.is_empty()
    }
}
