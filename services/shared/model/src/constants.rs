//! Strings that other programs read: labels, annotations, reasons, condition types.
//!
//! They are the API's and the kubelet's to the letter, so that a node can change its agent while its
//! pods run.

/// The prefix of a pod's message when the node did not admit it.
pub const REJECTION_MESSAGE_PREFIX: &str = "Pod was rejected: ";

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
    /// The hash that changes when the container has to be recreated, in hex.
    pub const CONTAINER_HASH: &str = "io.kubernetes.container.hash";
    /// The attempt the container was created with.
    pub const RESTART_COUNT: &str = "io.kubernetes.container.restartCount";
    /// The path of the container's termination message.
    pub const TERMINATION_MESSAGE_PATH: &str = "io.kubernetes.container.terminationMessagePath";
    /// `File` or `FallbackToLogsOnError`.
    pub const TERMINATION_MESSAGE_POLICY: &str = "io.kubernetes.container.terminationMessagePolicy";
    /// The preStop handler as JSON.
    pub const PRE_STOP_HANDLER: &str = "io.kubernetes.container.preStopHandler";
    /// The container's ports as JSON.
    pub const PORTS: &str = "io.kubernetes.container.ports";
    /// The pod's grace period in seconds, in decimal.
    pub const POD_TERMINATION_GRACE_PERIOD: &str = "io.kubernetes.pod.terminationGracePeriod";
    /// The grace period of the pod's deletion, in seconds.
    pub const POD_DELETION_GRACE_PERIOD: &str = "io.kubernetes.pod.deletionGracePeriod";
    /// The number of crashes in a row before the container. Polylet's own: upstream keeps it in memory.
    pub const BACK_OFF_STEP: &str = "polylet.io/back-off-step";
    /// The CPU and memory that the container was created with. Polylet's own: upstream keeps a file.
    pub const CREATED_RESOURCES: &str = "polylet.io/created-resources";
}

/// Annotations on pods.
pub mod pod_annotation {
    /// Which source the pod came from: `file`, `http` or `api`.
    pub const CONFIG_SOURCE: &str = "kubernetes.io/config.source";
    /// Of a mirror pod: the config hash of its static pod.
    pub const CONFIG_MIRROR: &str = "kubernetes.io/config.mirror";
    /// When the node first saw the pod.
    pub const CONFIG_SEEN: &str = "kubernetes.io/config.seen";
    /// The config hash, which identifies a static pod's manifest.
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
    /// Waiting: the container is being created.
    pub const CONTAINER_CREATING: &str = "ContainerCreating";
    /// Waiting: init containers run first.
    pub const POD_INITIALIZING: &str = "PodInitializing";
    /// Internal, never published: the container is starting, or its postStart hook is running.
    pub const POST_START_HOOK: &str = "PostStartHook";
    /// Internal, never published: the container whose id is the message is stopped to be replaced, and
    /// counts as running until its successor does.
    pub const REPLACEMENT: &str = "Replacement";
    /// Waiting: the container crashed and its next start is delayed.
    pub const CRASH_LOOP_BACK_OFF: &str = "CrashLoopBackOff";
    /// Waiting: the pull failed.
    pub const ERR_IMAGE_PULL: &str = "ErrImagePull";
    /// Waiting: the pull failed and is delayed.
    pub const IMAGE_PULL_BACK_OFF: &str = "ImagePullBackOff";
    /// Waiting: the image is absent and the policy forbids to pull it.
    pub const ERR_IMAGE_NEVER_PULL: &str = "ErrImageNeverPull";
    /// Waiting: the runtime could not inspect the image.
    pub const IMAGE_INSPECT_ERROR: &str = "ImageInspectError";
    /// Waiting: the image reference is invalid.
    pub const INVALID_IMAGE_NAME: &str = "InvalidImageName";
    /// Waiting: the registry does not respond.
    pub const REGISTRY_UNAVAILABLE: &str = "RegistryUnavailable";
    /// Waiting: the image's signature was rejected.
    pub const SIGNATURE_VALIDATION_FAILED: &str = "SignatureValidationFailed";
    /// Waiting: the container's configuration could not be generated.
    pub const CREATE_CONTAINER_CONFIG_ERROR: &str = "CreateContainerConfigError";
    /// Waiting: the runtime failed to create the container.
    pub const CREATE_CONTAINER_ERROR: &str = "CreateContainerError";
    /// Waiting: the runtime failed to start the container.
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
    /// The sandbox's configuration could not be generated.
    pub const CONFIG_POD_SANDBOX_ERROR: &str = "ConfigPodSandboxError";
    /// The sandbox could not be stopped.
    pub const KILL_POD_SANDBOX_ERROR: &str = "KillPodSandboxError";
    /// Terminated: exit code 0.
    pub const COMPLETED: &str = "Completed";
    /// Terminated: another exit code.
    pub const ERROR: &str = "Error";
    /// Terminated: killed by the kernel's OOM killer.
    pub const OOM_KILLED: &str = "OOMKilled";
    /// Terminated: the container was running and has disappeared.
    pub const CONTAINER_STATUS_UNKNOWN: &str = "ContainerStatusUnknown";
    /// Terminated or waiting: a rule restarts the whole pod in place.
    pub const RESTARTING_ALL_CONTAINERS: &str = "RestartingAllContainers";
    /// Pod: `activeDeadlineSeconds` have passed.
    pub const DEADLINE_EXCEEDED: &str = "DeadlineExceeded";
    /// Pod: evicted under resource pressure.
    pub const EVICTED: &str = "Evicted";
    /// Pod: preempted by a critical pod.
    pub const PREEMPTING: &str = "Preempting";
    /// Pod: the node is shutting down.
    pub const NODE_SHUTDOWN: &str = "NodeShutdown";
    /// Pod: one of its sysctls is not allowed on this node.
    pub const SYSCTL_FORBIDDEN: &str = "SysctlForbidden";
    /// Pod: its host ports are in use.
    pub const NODE_PORTS: &str = "NodePorts";
    /// Pod: it does not tolerate a taint of the node.
    pub const TAINT_TOLERATION: &str = "TaintToleration";
    /// Pod: the node runs its maximum of pods.
    pub const OUT_OF_PODS: &str = "OutOfpods";
    /// Pod: not enough CPU.
    pub const OUT_OF_CPU: &str = "OutOfcpu";
    /// Pod: not enough memory.
    pub const OUT_OF_MEMORY: &str = "OutOfmemory";
    /// Pod: not enough of a resource; the resource's name is appended.
    pub const OUT_OF: &str = "OutOf";
    /// Pod: its node selector or affinity does not match this node.
    pub const NODE_AFFINITY: &str = "NodeAffinity";
    /// Pod: `nodeName` is another node.
    pub const NODE_NAME: &str = "NodeName";
    /// Pod: its OS label does not match the node's.
    pub const POD_OS_SELECTOR: &str = "PodOSSelectorNodeLabelDoesNotMatch";
    /// Pod: `spec.os` is not Linux.
    pub const POD_OS_NOT_SUPPORTED: &str = "PodOSNotSupported";
    /// Pod: the runtime does not support its supplemental groups policy.
    pub const SUPPLEMENTAL_GROUPS_POLICY: &str = "SupplementalGroupsPolicyNotSupported";
    /// Pod: its AppArmor profile cannot be enforced.
    pub const APP_ARMOR: &str = "AppArmor";
    /// Pod: pod-level resources are disabled.
    pub const POD_LEVEL_RESOURCES: &str = "PodLevelResourcesNotSupported";
    /// Pod: it requires a feature that the node does not have.
    pub const POD_FEATURE_UNSUPPORTED: &str = "PodFeatureUnsupported";
    /// Event: a pod's update requires a feature that the node does not have.
    pub const FAILED_NODE_DECLARED_FEATURES_CHECK: &str = "FailedNodeDeclaredFeaturesCheck";
    /// Pod: a CSI driver's attach limit for this node is reached.
    pub const VOLUME_ATTACHMENT_LIMIT_EXCEEDED: &str = "VolumeAttachmentLimitExceeded";
    /// Pod: admission failed for another reason.
    pub const UNEXPECTED_ADMISSION_ERROR: &str = "UnexpectedAdmissionError";
}

/// Types of pod conditions.
pub mod condition {
    /// The sandbox and its network are ready.
    pub const POD_READY_TO_START_CONTAINERS: &str = "PodReadyToStartContainers";
    /// All init containers have completed.
    pub const INITIALIZED: &str = "Initialized";
    /// All containers are ready and all readiness gates are true.
    pub const READY: &str = "Ready";
    /// All containers are ready.
    pub const CONTAINERS_READY: &str = "ContainersReady";
    /// The pod has a node: always true on a node.
    pub const POD_SCHEDULED: &str = "PodScheduled";
    /// The node terminated the pod.
    pub const DISRUPTION_TARGET: &str = "DisruptionTarget";
    /// A resize is not allocated yet.
    pub const POD_RESIZE_PENDING: &str = "PodResizePending";
    /// A resize is being applied.
    pub const POD_RESIZE_IN_PROGRESS: &str = "PodResizeInProgress";
    /// All containers of the pod are being restarted in place.
    pub const ALL_CONTAINERS_RESTARTING: &str = "AllContainersRestarting";
}

/// Reasons of pod conditions.
pub mod condition_reason {
    /// A resize may fit once other pods use less.
    pub const DEFERRED: &str = "Deferred";
    /// A resize can never be applied on this node.
    pub const INFEASIBLE: &str = "Infeasible";
    /// The last attempt to apply a resize failed.
    pub const ERROR: &str = "Error";
    /// No container status is known.
    pub const UNKNOWN_CONTAINER_STATUSES: &str = "UnknownContainerStatuses";
    /// The pod has succeeded.
    pub const POD_COMPLETED: &str = "PodCompleted";
    /// The pod has failed.
    pub const POD_FAILED: &str = "PodFailed";
    /// At least one container is not ready.
    pub const CONTAINERS_NOT_READY: &str = "ContainersNotReady";
    /// At least one init container has not completed.
    pub const CONTAINERS_NOT_INITIALIZED: &str = "ContainersNotInitialized";
    /// At least one readiness gate is not true.
    pub const READINESS_GATES_NOT_READY: &str = "ReadinessGatesNotReady";
    /// A container's rule restarts all containers of the pod.
    pub const RESTART_ALL_CONTAINERS_STARTED: &str = "RestartAllContainersStarted";
    /// DisruptionTarget: the node agent terminated the pod.
    pub const TERMINATION_BY_KUBELET: &str = "TerminationByKubelet";
}

/// Pod phases.
pub mod phase {
    /// Not all containers have started.
    pub const PENDING: &str = "Pending";
    /// At least one container runs or will run again.
    pub const RUNNING: &str = "Running";
    /// All containers have exited with 0 and none will restart.
    pub const SUCCEEDED: &str = "Succeeded";
    /// All containers have exited and at least one failed, or the node rejected or terminated the pod.
    pub const FAILED: &str = "Failed";
}

/// The lowest priority of system-critical pods.
pub const SYSTEM_CRITICAL_PRIORITY: i32 = 2_000_000_000;
/// The priority class of pods that the node needs to work.
pub const SYSTEM_NODE_CRITICAL: &str = "system-node-critical";
/// The default path of the termination message.
pub const DEFAULT_TERMINATION_MESSAGE_PATH: &str = "/dev/termination-log";
/// The exit code published for a container whose exit was not observed.
pub const EXIT_CODE_UNKNOWN: i32 = 137;
