use jiff::Timestamp;
use polylet_model::PodUid;
use polylet_model::status::ContainerPhase;

/// The pod that a sandbox or container belongs to, from its labels.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PodIdentity {
    pub uid: PodUid,
    pub namespace: String,
    pub name: String,
}

/// The last known state of a pod in the runtime.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PodStatus {
    pub pod: PodIdentity,
    /// Newest first.
    pub sandboxes: Vec<SandboxStatus>,
    /// By name, and within a name newest first.
    pub containers: Vec<ContainerStatus>,
    /// Why the last inspection was incomplete. Empty after a complete one.
    pub inspect_error: String,
}

/// A sandbox in the runtime.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SandboxStatus {
    pub id: String,
    pub attempt: u32,
    pub ready: bool,
    /// Primary address first; empty on the host's network.
    pub ips: Vec<String>,
    pub created_at: Option<Timestamp>,
    pub host_network: bool,
    pub runtime_handler: String,
}

/// A container in the runtime.
#[derive(Debug, Clone, PartialEq)]
pub struct ContainerStatus {
    pub id: String,
    pub sandbox_id: String,
    pub name: String,
    /// The restart count it was created with.
    pub attempt: u32,
    /// The image as the pod's spec names it.
    pub image: String,
    /// The runtime's image reference.
    pub image_id: String,
    pub phase: ContainerPhase,
    pub exit_code: i32,
    pub reason: String,
    /// The runtime's message and the container's termination message.
    pub message: String,
    pub created_at: Option<Timestamp>,
    pub started_at: Option<Timestamp>,
    pub finished_at: Option<Timestamp>,
    /// Sorted by key; a map would take a node with room for eleven.
    pub annotations: Box<[(String, String)]>,
    pub log_path: String,
    /// `None` from a runtime that does not report resources.
    pub resources: Option<LinuxResources>,
    /// `None` from a runtime that does not report users.
    pub user: Option<ContainerUser>,
}

/// The resources of a running container. Zero for what the runtime does not report.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct LinuxResources {
    /// In microseconds.
    pub cpu_period: i64,
    /// Microseconds per period.
    pub cpu_quota: i64,
    pub cpu_shares: i64,
    /// In bytes.
    pub memory_limit: i64,
}

/// The user that the first process of a container runs as.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ContainerUser {
    pub uid: i64,
    pub gid: i64,
    pub supplemental_groups: Vec<i64>,
}

impl PodStatus {
    /// Whether the runtime reports the container as running.
    pub fn is_running(&self, container_id: &str) -> bool {
        self.containers
            .iter()
            .any(|c| c.id == container_id && c.phase == ContainerPhase::Running)
    }
}

impl ContainerStatus {
    /// A container of which nothing is known but its id and phase.
    pub fn new(id: &str, phase: ContainerPhase) -> Self {
        ContainerStatus {
            id: id.to_owned(),
            sandbox_id: String::new(),
            name: String::new(),
            attempt: 0,
            image: String::new(),
            image_id: String::new(),
            phase,
            exit_code: 0,
            reason: String::new(),
            message: String::new(),
            created_at: None,
            started_at: None,
            finished_at: None,
            annotations: Box::default(),
            log_path: String::new(),
            resources: None,
            user: None,
        }
    }
}
