//! Strings that other programs read: labels, annotations, reasons, condition types.
//!
//! They are the API's and the kubelet's to the letter, so that a node can be
//! handed from one agent to the other with its pods running.

/// How the message of a pod begins that the node did not let in.
pub const REFUSED: &str = "Pod was rejected: ";

/// Labels on sandboxes and containers.
pub mod label {
    /// The pod's name.
    pub const POD_NAME: &str = "io.kubernetes.pod.name";
    /// The pod's namespace.
    pub const POD_NAMESPACE: &str = "io.kubernetes.pod.namespace";
    /// The pod's uid.
    pub const POD_UID: &str = "io.kubernetes.pod.uid";
    /// The container's name in the pod.
    pub const CONTAINER_NAME: &str = "io.kubernetes.container.name";
}

/// Annotations on containers in the runtime.
pub mod annotation {
    /// Hash of what makes a container a different one, in hex.
    pub const CONTAINER_HASH: &str = "io.kubernetes.container.hash";
    /// The attempt the container was created with.
    pub const RESTART_COUNT: &str = "io.kubernetes.container.restartCount";
    /// Where the container leaves its last words.
    pub const TERMINATION_MESSAGE_PATH: &str = "io.kubernetes.container.terminationMessagePath";
    /// `File` or `FallbackToLogsOnError`.
    pub const TERMINATION_MESSAGE_POLICY: &str = "io.kubernetes.container.terminationMessagePolicy";
    /// The preStop handler as JSON.
    pub const PRE_STOP_HANDLER: &str = "io.kubernetes.container.preStopHandler";
    /// The container's ports as JSON.
    pub const PORTS: &str = "io.kubernetes.container.ports";
    /// The pod's grace period in seconds, as a number in text.
    pub const POD_TERMINATION_GRACE_PERIOD: &str = "io.kubernetes.pod.terminationGracePeriod";
    /// The grace period given at deletion.
    pub const POD_DELETION_GRACE_PERIOD: &str = "io.kubernetes.pod.deletionGracePeriod";
    /// How many crashes in a row the container follows. Ours alone: upstream keeps it in memory.
    pub const BACK_OFF_STEP: &str = "polylet.io/back-off-step";
    /// The CPU and memory that the container was made with. Ours alone: upstream keeps a file.
    pub const MADE_WITH: &str = "polylet.io/made-with";
}

/// Annotations on pods.
pub mod pod_annotation {
    /// Which source the pod came from: `file`, `http` or `api`.
    pub const CONFIG_SOURCE: &str = "kubernetes.io/config.source";
    /// On an API pod that stands for a static pod: that pod's config hash.
    pub const CONFIG_MIRROR: &str = "kubernetes.io/config.mirror";
    /// When the node first saw the pod.
    pub const CONFIG_SEEN: &str = "kubernetes.io/config.seen";
    /// Identity of a static pod's manifest.
    pub const CONFIG_HASH: &str = "kubernetes.io/config.hash";

    /// Values of [`CONFIG_SOURCE`].
    pub mod source {
        /// The manifest directory.
        pub const FILE: &str = "file";
        /// The manifest URL.
        pub const HTTP: &str = "http";
        /// The API server.
        pub const API: &str = "api";
    }
}

/// `status.reason` of a pod and reasons of container states.
pub mod reason {
    /// Waiting: nothing is wrong, the container is on its way.
    pub const CONTAINER_CREATING: &str = "ContainerCreating";
    /// Waiting: init containers run first.
    pub const POD_INITIALIZING: &str = "PodInitializing";
    /// Never told: the container is being started, or runs and its postStart hook has not ended.
    pub const POST_START_HOOK: &str = "PostStartHook";
    /// Waiting: the container crashed and its next start is delayed.
    pub const CRASH_LOOP_BACK_OFF: &str = "CrashLoopBackOff";
    /// Waiting: the pull failed.
    pub const ERR_IMAGE_PULL: &str = "ErrImagePull";
    /// Waiting: the pull failed and is delayed.
    pub const IMAGE_PULL_BACK_OFF: &str = "ImagePullBackOff";
    /// Waiting: the image is absent and the policy forbids to pull it.
    pub const ERR_IMAGE_NEVER_PULL: &str = "ErrImageNeverPull";
    /// Waiting: the runtime could not tell of the image.
    pub const IMAGE_INSPECT_ERROR: &str = "ImageInspectError";
    /// Waiting: the reference can name no image.
    pub const INVALID_IMAGE_NAME: &str = "InvalidImageName";
    /// Waiting: no answer from the registry.
    pub const REGISTRY_UNAVAILABLE: &str = "RegistryUnavailable";
    /// Waiting: the image's signature is not accepted.
    pub const SIGNATURE_VALIDATION_FAILED: &str = "SignatureValidationFailed";
    /// Waiting: the container's configuration cannot be made.
    pub const CREATE_CONTAINER_CONFIG_ERROR: &str = "CreateContainerConfigError";
    /// Waiting: the runtime refused to create the container.
    pub const CREATE_CONTAINER_ERROR: &str = "CreateContainerError";
    /// Waiting: the runtime refused to start the container.
    pub const RUN_CONTAINER_ERROR: &str = "RunContainerError";
    /// Waiting: the postStart hook failed.
    pub const POST_START_HOOK_ERROR: &str = "PostStartHookError";
    /// Waiting: resources could not be prepared before creating.
    pub const PRE_CREATE_HOOK_ERROR: &str = "PreCreateHookError";
    /// Waiting: resources could not be prepared before starting.
    pub const PRE_START_HOOK_ERROR: &str = "PreStartHookError";
    /// A container could not be stopped.
    pub const KILL_CONTAINER_ERROR: &str = "KillContainerError";
    /// The sandbox could not be created.
    pub const CREATE_POD_SANDBOX_ERROR: &str = "CreatePodSandboxError";
    /// The sandbox's configuration cannot be made.
    pub const CONFIG_POD_SANDBOX_ERROR: &str = "ConfigPodSandboxError";
    /// The sandbox could not be stopped.
    pub const KILL_POD_SANDBOX_ERROR: &str = "KillPodSandboxError";
    /// Terminated: exit code 0.
    pub const COMPLETED: &str = "Completed";
    /// Terminated: another exit code.
    pub const ERROR: &str = "Error";
    /// Terminated: the kernel's out-of-memory killer.
    pub const OOM_KILLED: &str = "OOMKilled";
    /// Terminated: the container was running and is nowhere to be found.
    pub const CONTAINER_STATUS_UNKNOWN: &str = "ContainerStatusUnknown";
    /// Terminated or waiting: a rule restarts the whole pod in place.
    pub const RESTARTING_ALL_CONTAINERS: &str = "RestartingAllContainers";
    /// Pod: `activeDeadlineSeconds` have passed.
    pub const DEADLINE_EXCEEDED: &str = "DeadlineExceeded";
    /// Pod: the node ran short of something.
    pub const EVICTED: &str = "Evicted";
    /// Pod: made room for a critical one.
    pub const PREEMPTING: &str = "Preempting";
    /// Pod: the node is going down.
    pub const NODE_SHUTDOWN: &str = "NodeShutdown";
    /// Pod: a sysctl that this node does not allow.
    pub const SYSCTL_FORBIDDEN: &str = "SysctlForbidden";
    /// Pod: its host ports are taken.
    pub const NODE_PORTS: &str = "NodePorts";
    /// Pod: it does not tolerate a taint of the node.
    pub const TAINT_TOLERATION: &str = "TaintToleration";
    /// Pod: too many pods.
    pub const OUT_OF_PODS: &str = "OutOfpods";
    /// Pod: not enough CPU.
    pub const OUT_OF_CPU: &str = "OutOfcpu";
    /// Pod: not enough memory.
    pub const OUT_OF_MEMORY: &str = "OutOfmemory";
    /// Pod: not enough of a resource, whose name follows.
    pub const OUT_OF: &str = "OutOf";
    /// Pod: this is not a node that it chooses.
    pub const NODE_AFFINITY: &str = "NodeAffinity";
    /// Pod: it names another node.
    pub const NODE_NAME: &str = "NodeName";
    /// Pod: its own label names another operating system.
    pub const POD_OS_SELECTOR: &str = "PodOSSelectorNodeLabelDoesNotMatch";
    /// Pod: it is for another operating system.
    pub const POD_OS_NOT_SUPPORTED: &str = "PodOSNotSupported";
    /// Pod: its rule for supplemental groups is beyond the runtime.
    pub const SUPPLEMENTAL_GROUPS_POLICY: &str = "SupplementalGroupsPolicyNotSupported";
    /// Pod: its AppArmor profile cannot be enforced.
    pub const APP_ARMOR: &str = "AppArmor";
    /// Pod: resources of a pod as a whole are turned off.
    pub const POD_LEVEL_RESOURCES: &str = "PodLevelResourcesNotSupported";
    /// Pod: the driver of a volume of it can attach no more to this node.
    pub const VOLUME_ATTACHMENT_LIMIT_EXCEEDED: &str = "VolumeAttachmentLimitExceeded";
    /// Pod: admission failed in a way that has no name.
    pub const UNEXPECTED_ADMISSION_ERROR: &str = "UnexpectedAdmissionError";
}

/// Types of pod conditions.
pub mod condition {
    /// The sandbox and its network stand.
    pub const POD_READY_TO_START_CONTAINERS: &str = "PodReadyToStartContainers";
    /// All init containers have done their part.
    pub const INITIALIZED: &str = "Initialized";
    /// All containers are ready, and all readiness gates are open.
    pub const READY: &str = "Ready";
    /// All containers are ready.
    pub const CONTAINERS_READY: &str = "ContainersReady";
    /// The pod has a node: always true here.
    pub const POD_SCHEDULED: &str = "PodScheduled";
    /// The pod was stopped by the node and not by its own doing.
    pub const DISRUPTION_TARGET: &str = "DisruptionTarget";
    /// A resize waits.
    pub const POD_RESIZE_PENDING: &str = "PodResizePending";
    /// A resize is under way.
    pub const POD_RESIZE_IN_PROGRESS: &str = "PodResizeInProgress";
    /// The whole pod is being restarted in place.
    pub const ALL_CONTAINERS_RESTARTING: &str = "AllContainersRestarting";
}

/// Reasons of pod conditions.
pub mod condition_reason {
    /// A resize may fit once other pods hold less.
    pub const DEFERRED: &str = "Deferred";
    /// A resize will never be done.
    pub const INFEASIBLE: &str = "Infeasible";
    /// A resize that is under way failed last.
    pub const ERROR: &str = "Error";
    /// No container status is known.
    pub const UNKNOWN_CONTAINER_STATUSES: &str = "UnknownContainerStatuses";
    /// The pod has succeeded.
    pub const POD_COMPLETED: &str = "PodCompleted";
    /// The pod has failed.
    pub const POD_FAILED: &str = "PodFailed";
    /// At least one container is not ready.
    pub const CONTAINERS_NOT_READY: &str = "ContainersNotReady";
    /// At least one init container is not done.
    pub const CONTAINERS_NOT_INITIALIZED: &str = "ContainersNotInitialized";
    /// At least one readiness gate is not open.
    pub const READINESS_GATES_NOT_READY: &str = "ReadinessGatesNotReady";
    /// A container's rule restarts all containers of the pod.
    pub const RESTART_ALL_CONTAINERS_STARTED: &str = "RestartAllContainersStarted";
    /// Of DisruptionTarget: the node agent ended the pod.
    pub const TERMINATION_BY_KUBELET: &str = "TerminationByKubelet";
}

/// Pod phases.
pub mod phase {
    /// Not all containers have been started.
    pub const PENDING: &str = "Pending";
    /// At least one container runs or will run again.
    pub const RUNNING: &str = "Running";
    /// All containers have ended well and none will run again.
    pub const SUCCEEDED: &str = "Succeeded";
    /// All containers have ended, at least one badly, or the node refused or stopped the pod.
    pub const FAILED: &str = "Failed";
}

/// Pods of this priority and above are critical to the system.
pub const SYSTEM_CRITICAL_PRIORITY: i32 = 2_000_000_000;
/// Priority class of pods without which the node itself does not work.
pub const SYSTEM_NODE_CRITICAL: &str = "system-node-critical";
/// Where a container leaves its last words unless it says otherwise.
pub const DEFAULT_TERMINATION_MESSAGE_PATH: &str = "/dev/termination-log";
/// Exit code told of a container whose end nobody saw.
pub const EXIT_CODE_UNKNOWN: i32 = 137;
