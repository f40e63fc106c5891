//! Steps: what can be done for a pod, and what each is about.

use std::collections::BTreeMap;
use std::sync::Arc;

use polylet_model::hook::Hook;
use polylet_model::{Allocation, Amounts};

use super::resize::Change;
use super::room::Demand;
use super::view::Terminal;

/// One thing to do. Plain data: whoever carries it out has nothing left to decide.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Write the pod's journal.
    Journal,
    /// Write down that the pod may never run again.
    Decide(Terminal),
    /// Write down that nothing of an ended pod is left to stop.
    TornDown,
    /// Write down what the pod is given in place of what it had.
    Allocate {
        /// Its resources.
        allocation: Arc<Allocation>,
        /// What it holds of the node with them.
        demand: Arc<Demand>,
        /// What its containers have now, by id, where nothing else says so.
        held: BTreeMap<String, Amounts>,
        /// The generation of the manifest that asks for it.
        generation: i64,
    },
    /// Give the pod's cgroup and running containers what was allocated, memory before CPU and
    /// each container in this order.
    Resize {
        /// Containers that get something else.
        changes: Vec<Change>,
    },
    /// Make the pod's cgroup.
    EnsureCgroup,
    /// Declare the pod's volumes.
    ApplyVolumes,
    /// Make a sandbox.
    CreateSandbox {
        /// Its number.
        attempt: u32,
    },
    /// See to it that a container's image is on the node.
    PullImage {
        /// The container.
        container: String,
    },
    /// Make a container.
    CreateContainer {
        /// Its name.
        container: String,
        /// Its restart count.
        attempt: u32,
        /// How many crashes in a row it follows.
        back_off_step: u32,
        /// Where to put it.
        sandbox_id: String,
        /// What to run.
        image_ref: String,
    },
    /// Start a container that was made.
    StartContainer {
        /// Its name.
        container: String,
        /// Its restart count.
        attempt: u32,
        /// The runtime's id.
        id: String,
    },
    /// Run what follows a container's start.
    PostStart {
        /// The runtime's id.
        id: String,
        /// Its name.
        container: String,
        /// What to do.
        hook: Hook,
    },
    /// Run what comes before a container's stop.
    PreStop {
        /// The runtime's id.
        id: String,
        /// Its name.
        container: String,
        /// What to do.
        hook: Hook,
        /// Seconds after which it is waited for no longer.
        limit: u32,
    },
    /// Stop a container.
    StopContainer {
        /// The runtime's id.
        id: String,
        /// Its name.
        container: String,
        /// Seconds between asking and killing.
        grace: u32,
    },
    /// Stop a sandbox.
    StopSandbox {
        /// The runtime's id.
        id: String,
    },
    /// Drop a container's record.
    RemoveContainer {
        /// The runtime's id.
        id: String,
        /// Its name.
        container: String,
    },
    /// Drop a container's record so that it starts anew; its log stays.
    ResetContainer {
        /// The runtime's id.
        id: String,
        /// Its name.
        container: String,
    },
    /// Drop a sandbox's record.
    RemoveSandbox {
        /// The runtime's id.
        id: String,
    },
    /// Declare that the pod's containers are gone for good.
    ReleaseVolumes,
    /// Remove the pod's cgroup.
    RemoveCgroup,
    /// Remove the pod's logs and directory.
    RemoveFiles,
}

/// What a step is about: never two of one key at once.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StepKey {
    /// [`Step::Journal`], [`Step::Decide`], [`Step::TornDown`], [`Step::Allocate`].
    Journal,
    /// [`Step::Resize`].
    Resize,
    /// [`Step::EnsureCgroup`].
    Cgroup,
    /// [`Step::ApplyVolumes`].
    Volumes,
    /// [`Step::CreateSandbox`].
    Sandbox,
    /// [`Step::PullImage`], by container name.
    Pull(String),
    /// [`Step::CreateContainer`], by container name.
    Create(String),
    /// [`Step::StartContainer`], by container name.
    Start(String),
    /// [`Step::PostStart`], by id.
    PostStart(String),
    /// [`Step::PreStop`], by id.
    PreStop(String),
    /// [`Step::StopContainer`], by id.
    StopContainer(String),
    /// [`Step::StopSandbox`], by id.
    StopSandbox(String),
    /// [`Step::RemoveContainer`], [`Step::ResetContainer`], by id.
    RemoveContainer(String),
    /// [`Step::RemoveSandbox`], by id.
    RemoveSandbox(String),
    /// [`Step::ReleaseVolumes`].
    ReleaseVolumes,
    /// [`Step::RemoveCgroup`].
    RemoveCgroup,
    /// [`Step::RemoveFiles`].
    RemoveFiles,
}

impl Step {
    /// What the step is about.
    pub fn key(&self) -> StepKey {
        match self {
            Step::Journal | Step::Decide(_) | Step::TornDown | Step::Allocate { .. } => {
                StepKey::Journal
            }
            Step::Resize { .. } => StepKey::Resize,
            Step::EnsureCgroup => StepKey::Cgroup,
            Step::ApplyVolumes => StepKey::Volumes,
            Step::CreateSandbox { .. } => StepKey::Sandbox,
            Step::PullImage { container } => StepKey::Pull(container.clone()),
            Step::CreateContainer { container, .. } => StepKey::Create(container.clone()),
            Step::StartContainer { container, .. } => StepKey::Start(container.clone()),
            Step::PostStart { id, .. } => StepKey::PostStart(id.clone()),
            Step::PreStop { id, .. } => StepKey::PreStop(id.clone()),
            Step::StopContainer { id, .. } => StepKey::StopContainer(id.clone()),
            Step::StopSandbox { id } => StepKey::StopSandbox(id.clone()),
            Step::RemoveContainer { id, .. } | Step::ResetContainer { id, .. } => {
                StepKey::RemoveContainer(id.clone())
            }
            Step::RemoveSandbox { id } => StepKey::RemoveSandbox(id.clone()),
            Step::ReleaseVolumes => StepKey::ReleaseVolumes,
            Step::RemoveCgroup => StepKey::RemoveCgroup,
            Step::RemoveFiles => StepKey::RemoveFiles,
        }
    }

    /// Steps that load the runtime and belong to a pod's start: their number is bounded.
    pub fn is_heavy_start(&self) -> bool {
        matches!(
            self,
            Step::CreateSandbox { .. } | Step::CreateContainer { .. } | Step::StartContainer { .. }
        )
    }
}

/// A step for people.
pub fn describe(step: &Step) -> String {
    match step {
        Step::Journal | Step::Decide(_) | Step::TornDown | Step::Allocate { .. } => {
            "the journal".into()
        }
        Step::Resize { .. } => "containers to get other resources".into(),
        Step::EnsureCgroup => "the pod's cgroup".into(),
        Step::ApplyVolumes => "volumes to be declared".into(),
        Step::CreateSandbox { attempt } => format!("sandbox {attempt}"),
        Step::PullImage { container } => format!("image of container {container}"),
        Step::CreateContainer { container, .. } => format!("container {container} to be made"),
        Step::StartContainer { container, .. } => format!("container {container} to start"),
        Step::PostStart { container, .. } => format!("postStart hook of container {container}"),
        Step::PreStop {
            container, limit, ..
        } => format!("preStop hook of container {container} (at most {limit} s)"),
        Step::StopContainer {
            container, grace, ..
        } => format!("container {container} to stop (grace {grace} s)"),
        Step::StopSandbox { .. } => "sandbox to stop".into(),
        Step::RemoveContainer { container, .. } | Step::ResetContainer { container, .. } => {
            format!("container {container} to be removed")
        }
        Step::RemoveSandbox { .. } => "sandbox to be removed".into(),
        Step::ReleaseVolumes => "volumes to be released".into(),
        Step::RemoveCgroup => "the pod's cgroup to go".into(),
        Step::RemoveFiles => "logs and directory to go".into(),
    }
}
