//! The plan of a pod: which steps to start now, when to decide again, and what to publish.

use std::collections::BTreeMap;

use jiff::Timestamp;
use polylet_model::ResizableResources;

use crate::core::concurrency_limit::CallKind;
use crate::core::start_limiter::StartClass;
use crate::core::step::{Step, StepKey};
use crate::core::view::{ContainerStop, PendingRestart, PodSyncStatus, View};

/// The pod waits for a complete inspection by pleg.
pub const RUNTIME_STATUS_UNAVAILABLE: &str = "complete runtime status of the pod";
/// A pod that was evicted or preempted still runs well after its grace period.
pub const GRACE_PERIOD_EXCEEDED: &str = "containers to stop; grace period exceeded";
/// The start of what a pod waits for while the pod network is not ready.
pub const NETWORK_NOT_READY: &str = "pod network: ";

/// The state of a pod's worker; upstream's PodWorkerState.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SyncPhase {
    /// Undecided: only the runtime knows the pod and not all sources have synced, or its manifest is
    /// invalid.
    #[default]
    Pending,
    /// Started or kept running.
    Syncing,
    /// Being stopped.
    Terminating,
    /// Stopped for good; its container records remain, unless the pod is being removed.
    Terminated,
    /// Nothing of the pod is left on the node.
    CleanedUp,
}

/// The `v1.ContainerStateWaiting` of one container.
#[derive(Clone, Debug, PartialEq)]
pub struct ContainerWaiting {
    /// The container's name.
    pub container: String,
    /// The state's reason.
    pub reason: String,
    /// The state's message.
    pub message: String,
    /// Time of the next attempt.
    pub retry_at: Option<Timestamp>,
}

/// Something that a pod waits for.
#[derive(Clone, Debug, PartialEq)]
pub struct WaitingFor {
    /// A noun phrase for users.
    pub what: String,
    /// Start of the wait, where known.
    pub since: Option<Timestamp>,
    /// The last error.
    pub error: String,
}

/// The decision on a change of the pod's resources.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum ResizeDecision {
    /// The manifest asks for the allocated resources.
    #[default]
    NoChange,
    /// The new resources are allocated.
    Accepted,
    /// The new resources are not allocated, or not yet: `PodResizePending`.
    Pending {
        /// The condition's reason: `Deferred` or `Infeasible`.
        reason: &'static str,
        /// The condition's message.
        message: String,
    },
}

/// An accepted resize that not all running containers have: `PodResizeInProgress`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ResizeProgress {
    /// Why the last attempt failed; empty before a failure.
    pub error: String,
    /// The present resources of running containers that are to change, by name.
    pub actual: BTreeMap<String, ResizableResources>,
    /// The generation of the manifest that asked for the resize.
    pub generation: i64,
}

/// What to do now for one pod.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// Steps to start, all at once.
    pub steps: Vec<Step>,
    /// Steps in flight to cancel; they are started again if still needed.
    pub abandoned: Vec<StepKey>,
    /// Container stops that begin or get a shorter grace period, by container id.
    pub stops: Vec<(String, ContainerStop)>,
    /// Starts after the restart of all containers, by container name.
    pub pending_restarts: Vec<(String, PendingRestart)>,
    /// When to decide again without a change.
    pub wake_at: Option<Timestamp>,
    /// The worker's state.
    pub phase: SyncPhase,
    /// What the pod used is free. As upstream, the API server may forget a deleted pod from then on; its
    /// containers, sandboxes and files are removed meanwhile.
    pub reclaimed: bool,
    /// Containers that wait.
    pub waiting_containers: Vec<ContainerWaiting>,
    /// What the pod waits for.
    pub waiting_for: Vec<WaitingFor>,
    /// The pod needs a new sandbox.
    pub needs_sandbox: bool,
    /// Some steps wait only for a start permit of this class.
    pub needs_start_permit: Option<StartClass>,
    /// The worker can be dropped.
    pub forget: bool,
    /// The pod waits until other pods release resources.
    pub waits_for_capacity: bool,
    /// The decision on a change of its resources.
    pub resize: ResizeDecision,
    /// The resize in progress.
    pub resize_progress: Option<ResizeProgress>,
    /// The pod is rejected at this time unless the node's labels change before.
    pub affinity_retry_until: Option<Timestamp>,
    /// When the event of the pod network that the pod waits for was or is emitted last.
    pub network_reported_at: Option<Timestamp>,
    /// Ask pleg for the pod's state.
    pub needs_refresh: bool,
    /// The pod was neither admitted nor rejected yet.
    pub unadmitted: bool,
    /// UIDs of pods to preempt.
    pub victims: Vec<String>,
}

impl Plan {
    /// Decides again at the given time at the latest.
    pub fn wake_by(&mut self, at: Timestamp) {
        self.wake_at = Some(self.wake_at.map_or(at, |earlier| earlier.min(at)));
    }

    /// Adds something that the pod waits for.
    pub fn wait_for(&mut self, what: impl Into<String>, since: Option<Timestamp>) {
        self.waiting_for.push(WaitingFor {
            what: what.into(),
            since,
            error: String::new(),
        });
    }

    /// Sets why a container waits; the first reason stays.
    pub fn set_waiting(
        &mut self,
        container: &str,
        reason: &str,
        message: impl Into<String>,
        retry_at: Option<Timestamp>,
    ) {
        if self
            .waiting_containers
            .iter()
            .any(|waiting| waiting.container == container)
        {
            return;
        }
        self.waiting_containers.push(ContainerWaiting {
            container: container.to_owned(),
            reason: reason.to_owned(),
            message: message.into(),
            retry_at,
        });
    }

    /// Starts a step unless it is in flight or backing off. False when it is backing off.
    pub fn start_step(&mut self, view: &View<'_>, step: Step) -> bool {
        let key = step.key();
        if let Some(in_flight) = view.pod.in_flight.get(&key) {
            self.wait_for(in_flight.step.to_string(), Some(in_flight.started_at));
            return true;
        }
        if let Some(failure) = view.backing_off(&key) {
            self.wake_by(failure.retry_at);
            self.waiting_for.push(WaitingFor {
                what: step.to_string(),
                since: Some(failure.first_failed_at),
                error: failure.message.clone(),
            });
            return false;
        }
        if let Some(class) = start_class(view.pod, &step)
            && !view.pod.has_start_permit
        {
            self.needs_start_permit = Some(class);
            self.wait_for("start permit", None);
            return true;
        }
        if !self.steps.iter().any(|planned| planned.key() == key) {
            self.wait_for(step.to_string(), Some(view.now));
            self.steps.push(step);
        }
        true
    }
}

/// The call to the runtime of a step that needs a start permit, to be compared with others of its kind.
pub fn start_call(pod: &PodSyncStatus, step: &Step) -> Option<CallKind> {
    let spec = pod.spec.as_deref()?;
    let operation = match step {
        Step::CreateSandbox { .. } if spec.host_network => "RunPodSandbox without a network",
        Step::CreateSandbox { .. } => "RunPodSandbox",
        Step::CreateContainer { .. } => "CreateContainer",
        Step::StartContainer { .. } => "StartContainer",
        _ => return None,
    };
    Some(CallKind::new(operation, Some(&spec.manifest)))
}

/// What a step depends on that needs a start permit: steps that load the runtime and belong to a
/// pod's start are limited in number.
pub fn start_class(pod: &PodSyncStatus, step: &Step) -> Option<StartClass> {
    let spec = pod.spec.as_deref();
    let own = match step {
        Step::CreateSandbox { .. } if spec.is_some_and(|spec| spec.host_network) => {
            StartClass::HostNetwork
        }
        Step::CreateSandbox { .. } => StartClass::PodNetwork,
        Step::CreateContainer { .. } | Step::StartContainer { .. } => StartClass::InSandbox,
        _ => return None,
    };
    let critical = spec.is_some_and(|spec| spec.critical);
    Some(if critical { StartClass::Critical } else { own })
}
