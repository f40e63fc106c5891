use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{LinuxContainerUser, PodStatus, ResourceRequirements};

use super::ActualResources;
use crate::ids::{ContainerId, SandboxId};
use crate::pod::Manifest;
use crate::probe::ProbeKind;

/// The state of a container in the runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ContainerPhase {
    /// Created, not started.
    Created,
    /// Started, not exited.
    Running,
    /// The process has exited.
    Exited,
    /// Unknown to the runtime.
    Unknown,
}

/// A container in the runtime.
#[derive(Clone, Debug, PartialEq)]
pub struct RuntimeContainer {
    /// The runtime's id.
    pub id: ContainerId,
    /// The id of its sandbox.
    pub sandbox_id: SandboxId,
    /// The container's name in the pod.
    pub name: String,
    /// The restart count that it was created with.
    pub attempt: u32,
    /// The image as requested.
    pub image: String,
    /// The image's id in the runtime.
    pub image_id: String,
    /// The state in the runtime.
    pub phase: ContainerPhase,
    /// The actual resources, if the runtime reports them.
    pub actual: Option<ActualResources>,
    /// The user of the first process, if the runtime reports it.
    pub user: Option<LinuxContainerUser>,
    /// The exit code, once it has exited.
    pub exit_code: i32,
    /// The reason, once it has exited: `Completed`, `Error`, `OOMKilled`…
    pub reason: String,
    /// The termination message.
    pub message: String,
    /// When it was created.
    pub created_at: Option<Timestamp>,
    /// When it started.
    pub started_at: Option<Timestamp>,
    /// When it exited.
    pub finished_at: Option<Timestamp>,
}

/// A sandbox in the runtime.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuntimeSandbox {
    /// The runtime's id.
    pub id: SandboxId,
    /// The number of sandboxes before it.
    pub attempt: u32,
    /// Whether it is ready for containers.
    pub ready: bool,
    /// The pod's IPs; none on the host's network.
    pub ips: Vec<String>,
    /// When it was created.
    pub created_at: Option<Timestamp>,
    /// Whether it uses the host's network.
    pub host_network: bool,
    /// The runtime handler; empty for the default.
    pub runtime_handler: String,
}

/// The result of a probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerProbeResult {
    /// The probed container.
    pub container_id: ContainerId,
    /// The kind of the probe.
    pub kind: ProbeKind,
    /// True for success; false for failure or no result yet.
    pub success: bool,
    /// Since when the result is the same.
    pub since: Option<Timestamp>,
}

/// The reason why a container that should run is waiting.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WaitReason {
    /// The container's name.
    pub container: String,
    /// `ErrImagePull`, `CrashLoopBackOff`…; empty if there is none.
    pub reason: String,
    /// Human-readable message.
    pub message: String,
    /// The restart count, for a container that the runtime no longer has.
    pub restarts: u32,
}

/// A device that is allocated to a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceStatus {
    /// The container's name.
    pub container: String,
    /// The extended resource: `example.com/device`.
    pub resource: String,
    /// The plugin's id of the device.
    pub id: String,
    /// Whether the plugin reports it as healthy.
    pub healthy: bool,
}

/// The decision that a pod has ended for good.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TerminalDecision {
    /// `Failed` or `Succeeded`.
    pub phase: String,
    /// `Evicted`, `DeadlineExceeded`…; empty if the pod's containers ended by themselves.
    pub reason: String,
    /// Human-readable message.
    pub message: String,
    /// When the decision was made.
    pub decided_at: Option<Timestamp>,
    /// Whether the node terminated the pod (`DisruptionTarget`).
    pub disruption_target: bool,
}

/// A resize that is not allocated.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PendingResize {
    /// `Deferred` or `Infeasible`.
    pub reason: String,
    /// Human-readable message.
    pub message: String,
    /// When the resize was requested or failed.
    pub since: Option<Timestamp>,
}

/// A resize that is allocated and being applied to running containers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ResizeInProgress {
    /// The error of the last attempt; empty without one.
    pub error: String,
    /// When the resize was requested or failed.
    pub since: Option<Timestamp>,
    /// The manifest's generation at the allocation.
    pub generation: i64,
    /// The present resources of running containers, by name.
    pub actual: BTreeMap<String, ResourceRequirements>,
}

/// The state of a pod in its lifecycle, as upstream's pod workers have it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PodWorkerState {
    /// The pod should run.
    #[default]
    Syncing,
    /// The pod's containers are being stopped.
    Terminating,
    /// All containers have stopped for good.
    Terminated,
}

/// The facts that a status is computed from.
#[derive(Clone, Debug)]
pub struct StatusInputs<'a> {
    /// The desired state.
    pub manifest: &'a Manifest,
    /// The pod's sandboxes, newest first.
    pub sandboxes: &'a [RuntimeSandbox],
    /// The pod's containers, newest first by name.
    pub containers: &'a [RuntimeContainer],
    /// The results of the pod's probes.
    pub probe_results: &'a [ContainerProbeResult],
    /// The reasons of waiting containers, at most one per container.
    pub waiting: &'a [WaitReason],
    /// The devices of the pod's containers; `None` while they are unknown.
    pub devices: Option<&'a [DeviceStatus]>,
    /// A resize that is not allocated.
    pub resize_pending: Option<&'a PendingResize>,
    /// A resize that is being applied.
    pub resize_in_progress: Option<&'a ResizeInProgress>,
    /// The state in the pod's lifecycle.
    pub worker_state: PodWorkerState,
    /// The decision that the pod has ended, once it is made.
    pub terminal: Option<&'a TerminalDecision>,
    /// Whether a terminal phase needs a decision in `terminal`: an exit that looks like the last one
    /// may be a failed start, or a stop before a restart.
    pub defer_terminal_phase: bool,
    /// When this node accepted the pod.
    pub acknowledged_at: Option<Timestamp>,
    /// The node's IPs, primary first.
    pub host_ips: &'a [String],
    /// The runtime's name, the scheme of container ids: `containerd`.
    pub runtime_name: &'a str,
    /// Whether the pod's runtime handler supports recursive read-only mounts.
    pub recursive_read_only: bool,
    /// Whether the status has the resources of the pod as a whole
    /// (`InPlacePodLevelResourcesVerticalScaling`).
    pub pod_level_resources: bool,
    /// The previously published status.
    pub previous: Option<&'a PodStatus>,
}
