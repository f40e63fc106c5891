//! Steps: the actions that a plan can start for a pod, and their results.

mod container_resize;
mod delay;
mod outcome;

pub use container_resize::{ContainerResize, ResizedResource};
pub use delay::DelayReport;
pub use outcome::{MissingObject, PreparedSubPath, StepFailure, StepOutcome};

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use polylet_model::hook::Hook;
use polylet_model::{PodAllocation, ResizableResources};

use crate::core::checkpoint::{PodCheckpoint, PodTermination};
use crate::core::node_resources::PodRequest;

/// One action for a pod. Plain data: its execution has nothing left to decide.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Store the pod's checkpoint.
    Checkpoint,
    /// Store that the pod never runs again.
    CheckpointTermination(PodTermination),
    /// Store that everything of a terminated pod is stopped and released.
    CheckpointTerminated,
    /// Store an accepted resize.
    CheckpointAllocation {
        /// The new resources.
        allocation: Arc<PodAllocation>,
        /// The new share of the node.
        request: Arc<PodRequest>,
        /// The present resources of containers, by id, that have no record of them.
        actual: BTreeMap<String, ResizableResources>,
        /// The manifest's generation.
        generation: i64,
    },
    /// Resize the pod's cgroup and its running containers to the allocation: memory before CPU, and
    /// containers in this order. [`Step::Checkpoint`] follows; until then the resize may be repeated.
    Resize {
        /// The containers whose resources change.
        changes: Vec<ContainerResize>,
    },
    /// Have device-manager allocate the devices that the pod's containers request.
    AllocateDevices,
    /// Create the pod's cgroup.
    EnsureCgroup,
    /// Declare the pod's volumes to volume-manager.
    ApplyVolumes,
    /// Create a sandbox.
    CreateSandbox {
        /// Its attempt number.
        attempt: u32,
    },
    /// Ensure that a container's image is present, by its pull policy.
    PullImage {
        /// The container's name.
        container: String,
    },
    /// Use a container's image if it has arrived in another way while its pull backs off.
    FindImage {
        /// The container's name.
        container: String,
    },
    /// Have device-manager prepare a container's devices for its next start. Before the creation, since
    /// a device plugin that hangs must not keep a start permit.
    PrepareDevices {
        /// The container's name.
        container: String,
    },
    /// Have volume-manager prepare the subPaths of a container's volumes. Before the creation, since a
    /// volume that hangs must not keep a start permit.
    PrepareSubPaths {
        /// The container's name.
        container: String,
        /// The sandbox in which it is created next, whose addresses paths may contain.
        sandbox_id: String,
    },
    /// Create a container.
    CreateContainer {
        /// The container's name.
        container: String,
        /// Its restart count.
        attempt: u32,
        /// Number of crashes in a row before it.
        backoff_step: u32,
        /// The sandbox to create it in.
        sandbox_id: String,
        /// The runtime's reference of the image.
        image_ref: String,
    },
    /// Start a created container.
    StartContainer {
        /// The container's name.
        container: String,
        /// Its restart count.
        attempt: u32,
        /// The runtime's id.
        id: String,
    },
    /// Run a postStart hook.
    PostStart {
        /// The runtime's id.
        id: String,
        /// The container's name.
        container: String,
        /// The hook's handler.
        hook: Hook,
    },
    /// Run a preStop hook.
    PreStop {
        /// The runtime's id.
        id: String,
        /// The container's name.
        container: String,
        /// The hook's handler.
        hook: Hook,
        /// Timeout in seconds.
        timeout: u32,
    },
    /// Stop a container.
    StopContainer {
        /// The runtime's id.
        id: String,
        /// The container's name.
        container: String,
        /// Seconds between the stop signal and the kill.
        grace_period: u32,
    },
    /// Stop a sandbox.
    StopSandbox {
        /// The runtime's id.
        id: String,
    },
    /// Remove an exited container.
    RemoveContainer {
        /// The runtime's id.
        id: String,
        /// The container's name.
        container: String,
    },
    /// Remove a container for the restart of all containers. Its log stays.
    RemoveForRestart {
        /// The runtime's id.
        id: String,
        /// The container's name.
        container: String,
    },
    /// Remove a stopped sandbox.
    RemoveSandbox {
        /// The runtime's id.
        id: String,
    },
    /// Tell volume-manager that the pod's containers are gone for good.
    ReleaseVolumes,
    /// Remove the pod's cgroup.
    RemoveCgroup,
    /// Remove the pod's logs and its directory.
    RemoveFiles,
}

/// The subject of a step: at most one step per key is in flight.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StepKey {
    /// Every step that writes the checkpoint.
    Checkpoint,
    /// Key of [`Step::Resize`].
    Resize,
    /// Key of [`Step::AllocateDevices`].
    AllocateDevices,
    /// Key of [`Step::EnsureCgroup`].
    EnsureCgroup,
    /// Key of [`Step::ApplyVolumes`].
    ApplyVolumes,
    /// Key of [`Step::CreateSandbox`].
    CreateSandbox,
    /// Key of [`Step::PullImage`], by container name.
    PullImage(String),
    /// Key of [`Step::FindImage`], by container name.
    FindImage(String),
    /// Key of [`Step::PrepareDevices`], by container name.
    PrepareDevices(String),
    /// Key of [`Step::PrepareSubPaths`], by container name.
    PrepareSubPaths(String),
    /// Key of [`Step::CreateContainer`], by container name.
    CreateContainer(String),
    /// Key of [`Step::StartContainer`], by container name.
    StartContainer(String),
    /// Key of [`Step::PostStart`], by id.
    PostStart(String),
    /// Key of [`Step::PreStop`], by id.
    PreStop(String),
    /// Key of [`Step::StopContainer`], by id.
    StopContainer(String),
    /// Key of [`Step::StopSandbox`], by id.
    StopSandbox(String),
    /// Key of [`Step::RemoveContainer`], [`Step::RemoveForRestart`], by id.
    RemoveContainer(String),
    /// Key of [`Step::RemoveSandbox`], by id.
    RemoveSandbox(String),
    /// Key of [`Step::ReleaseVolumes`].
    ReleaseVolumes,
    /// Key of [`Step::RemoveCgroup`].
    RemoveCgroup,
    /// Key of [`Step::RemoveFiles`].
    RemoveFiles,
}

impl Step {
    /// The subject of the step.
    pub fn key(&self) -> StepKey {
        match self {
            Step::Checkpoint
            | Step::CheckpointTermination(_)
            | Step::CheckpointTerminated
            | Step::CheckpointAllocation { .. } => StepKey::Checkpoint,
            Step::Resize { .. } => StepKey::Resize,
            Step::AllocateDevices => StepKey::AllocateDevices,
            Step::EnsureCgroup => StepKey::EnsureCgroup,
            Step::ApplyVolumes => StepKey::ApplyVolumes,
            Step::CreateSandbox { .. } => StepKey::CreateSandbox,
            Step::PullImage { container } => StepKey::PullImage(container.clone()),
            Step::FindImage { container } => StepKey::FindImage(container.clone()),
            Step::PrepareDevices { container } => StepKey::PrepareDevices(container.clone()),
            Step::PrepareSubPaths { container, .. } => StepKey::PrepareSubPaths(container.clone()),
            Step::CreateContainer { container, .. } => StepKey::CreateContainer(container.clone()),
            Step::StartContainer { container, .. } => StepKey::StartContainer(container.clone()),
            Step::PostStart { id, .. } => StepKey::PostStart(id.clone()),
            Step::PreStop { id, .. } => StepKey::PreStop(id.clone()),
            Step::StopContainer { id, .. } => StepKey::StopContainer(id.clone()),
            Step::StopSandbox { id } => StepKey::StopSandbox(id.clone()),
            Step::RemoveContainer { id, .. } | Step::RemoveForRestart { id, .. } => {
                StepKey::RemoveContainer(id.clone())
            }
            Step::RemoveSandbox { id } => StepKey::RemoveSandbox(id.clone()),
            Step::ReleaseVolumes => StepKey::ReleaseVolumes,
            Step::RemoveCgroup => StepKey::RemoveCgroup,
            Step::RemoveFiles => StepKey::RemoveFiles,
        }
    }

    /// The checkpoint that the step stores, or that is to be stored after it.
    pub fn checkpoint_after(&self, before: &PodCheckpoint) -> PodCheckpoint {
        let mut checkpoint = before.clone();
        match self {
            Step::CheckpointTermination(termination) => {
                checkpoint.termination = Some(termination.clone());
            }
            Step::CheckpointTerminated => checkpoint.terminated = true,
            Step::CheckpointAllocation {
                allocation,
                request,
                actual,
                generation,
            } => {
                // Of several resizes in a row the cgroup still has what it had before the first.
                let unchanged = checkpoint.cgroup_resources.take();
                checkpoint.cgroup_resources = unchanged.or(checkpoint.allocated.take());
                checkpoint.actual_resources.clone_from(actual);
                checkpoint.allocated = Some(Arc::clone(allocation));
                checkpoint.request = Some(Arc::clone(request));
                checkpoint.resize_generation = *generation;
            }
            Step::Resize { changes } => {
                checkpoint.cgroup_resources = None;
                let resized = changes.iter().map(|change| (change.id.clone(), change.to));
                checkpoint.actual_resources.extend(resized);
            }
            _ => {}
        }
        checkpoint
    }
}

/// What a pod waits for while the step is in flight, as `polylet pods` prints it.
impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::Checkpoint
            | Step::CheckpointTermination(_)
            | Step::CheckpointTerminated
            | Step::CheckpointAllocation { .. } => f.write_str("checkpoint write"),
            Step::Resize { .. } => f.write_str("in-place resize of containers"),
            Step::AllocateDevices => f.write_str("devices"),
            Step::EnsureCgroup => f.write_str("creation of the pod's cgroup"),
            Step::ApplyVolumes => f.write_str("declaration of volumes"),
            Step::CreateSandbox { attempt } => write!(f, "sandbox {attempt}"),
            Step::PullImage { container } => write!(f, "image of container {container}"),
            Step::FindImage { container } => {
                write!(f, "look for the image of container {container}")
            }
            Step::PrepareDevices { container } => write!(f, "devices of container {container}"),
            Step::PrepareSubPaths { container, .. } => {
                write!(f, "subPaths of container {container}")
            }
            Step::CreateContainer { container, .. } => {
                write!(f, "creation of container {container}")
            }
            Step::StartContainer { container, .. } => write!(f, "start of container {container}"),
            Step::PostStart { container, .. } => {
                write!(f, "postStart hook of container {container}")
            }
            Step::PreStop {
                container, timeout, ..
            } => write!(
                f,
                "preStop hook of container {container} (at most {timeout} s)"
            ),
            Step::StopContainer {
                container,
                grace_period,
                ..
            } => write!(
                f,
                "container {container} to stop (grace period {grace_period} s)"
            ),
            Step::StopSandbox { .. } => f.write_str("sandbox to stop"),
            Step::RemoveContainer { container, .. } | Step::RemoveForRestart { container, .. } => {
                write!(f, "removal of container {container}")
            }
            Step::RemoveSandbox { .. } => f.write_str("removal of the sandbox"),
            Step::ReleaseVolumes => f.write_str("release of volumes"),
            Step::RemoveCgroup => f.write_str("removal of the pod's cgroup"),
            Step::RemoveFiles => f.write_str("removal of logs and pod directory"),
        }
    }
}
