use crate::core::devices::{DeviceAdmission, PreparedDevices};
use crate::core::runtime_state::{ContainerRecord, SandboxRecord};
use crate::core::volume_state::ObservedVolume;

/// The result of a step.
#[derive(Clone, Debug, PartialEq)]
pub enum StepOutcome {
    /// Success without a result.
    Done,
    /// A sandbox is ready.
    SandboxCreated(SandboxRecord),
    /// The image is present.
    ImagePulled {
        /// The image as the manifest names it.
        image: String,
        /// The runtime's reference.
        image_ref: String,
    },
    /// device-manager answered the pod's request for devices.
    DevicesAllocated(DeviceAdmission),
    /// The devices of a container are prepared.
    DevicesPrepared(PreparedDevices),
    /// The subPaths of a container are prepared.
    SubPathsPrepared(Vec<PreparedSubPath>),
    /// A container was created.
    ContainerCreated(ContainerRecord),
    /// volume-manager accepted the declaration.
    VolumesDeclared {
        /// The manifest's digest.
        digest: String,
        /// The declaration's sequence number.
        sequence: u64,
        /// The state of the volumes in the response.
        volumes: Vec<ObservedVolume>,
    },
    /// volume-manager accepted the release.
    VolumesReleased {
        /// Whether all volumes are unmounted already.
        gone: bool,
    },
    /// A hook failed, with upstream's message.
    HookFailed(String),
    /// The step failed.
    Failed(StepFailure),
    /// The step was abandoned.
    Cancelled,
}

/// A subPath of a volume that a container mounts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreparedSubPath {
    /// The index of the container's volume mount.
    pub mount_index: u32,
    /// The volume's name.
    pub volume: String,
    /// The path in the volume, with variables expanded.
    pub path: String,
    /// What to mount.
    pub host_path: String,
}

/// How a step failed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StepFailure {
    /// The container's waiting reason, or another one-word reason.
    pub reason: String,
    /// The error message.
    pub message: String,
    /// The call may still take effect in the runtime, for example after a timeout.
    pub outcome_unknown: bool,
    /// Another call for the same sandbox or container is in progress in the runtime, or has just ended.
    pub name_reserved: bool,
    /// The image is no longer present.
    pub image_missing: bool,
    /// The image of a failed pull, as the manifest names it; empty for other steps.
    pub image: String,
    /// A retry is not expected to succeed soon.
    pub permanent: bool,
    /// volume-manager has a newer incarnation of this client.
    pub superseded: bool,
    /// The API object that the step needs; the step is retried when it changes.
    pub missing: Option<Box<MissingObject>>,
}

/// An API object that a step needs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MissingObject {
    /// `ConfigMap` or `Secret`.
    pub kind: &'static str,
    /// The object's namespace.
    pub namespace: String,
    /// The object's name.
    pub name: String,
    /// Whether it comes from the API server; otherwise from the directory of local manifests.
    pub from_api_server: bool,
    /// The object exists and lacks a key.
    pub exists: bool,
}
