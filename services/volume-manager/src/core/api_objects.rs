//! The parts of claims, persistent volumes, attachments, drivers and trust bundles that volumes
//! depend on.

mod trust_bundle;

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1 as api;
use k8s_openapi::api::core::v1::{NodeSelector, PersistentVolumeSpec, SecretReference};
use k8s_openapi::api::storage::v1::{CSIDriver, VolumeAttachment};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use polylet_model::quantity;

use super::blocked::Blocked;
use super::builtin::{self, PathCheck};
use super::csi_translation;
use super::nfs_volume::NfsVolume;
use super::reference_key::ObjectKind;

pub use trust_bundle::TrustBundle;

/// The content of an object, by its kind.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum ObjectDetails {
    /// A ConfigMap or Secret: values only.
    #[default]
    Data,
    /// A claim.
    Claim(VolumeClaim),
    /// A persistent volume.
    PersistentVolume(Box<PersistentVolume>),
    /// An attachment.
    Attachment(Attachment),
    /// A CSIDriver.
    CsiDriver(CsiDriverSpec),
    /// One or more ClusterTrustBundles.
    TrustBundles(Vec<TrustBundle>),
}

/// A PersistentVolumeClaim.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct VolumeClaim {
    /// The uid.
    pub uid: String,
    /// `status.phase` is `Bound`.
    pub bound: bool,
    /// Has a deletion timestamp.
    pub deleting: bool,
    /// The name of the persistent volume.
    pub volume: String,
    /// The uid of its controller: of the pod, for a generic ephemeral volume.
    pub owner: Option<String>,
    /// Its size, and how far a resize is.
    pub resize: ClaimResize,
}

/// The sizes of a claim, in bytes, and how far its resize is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClaimResize {
    /// The field `spec.resources.requests`.
    pub requested: i64,
    /// The field `status.capacity`.
    pub capacity: i64,
    /// `status.allocatedResourceStatuses`; empty without a resize.
    pub status: String,
    /// The cluster's resize controller reports progress in the claim's status.
    pub reported: bool,
    /// The field `status.allocatedResources`.
    pub allocated: Option<Capacity>,
    /// Has the access mode `ReadWriteMany`.
    pub read_write_many: bool,
    /// Annotated as expanded for all nodes.
    pub node_expansion_not_required: bool,
}

/// A size as the API writes it, and in bytes.
pub type Capacity = (String, i64);

/// A PersistentVolume.
#[derive(Debug, Clone, PartialEq)]
pub struct PersistentVolume {
    /// The name.
    pub name: String,
    /// The uid.
    pub uid: String,
    /// The uid in its `claimRef`.
    pub claim: Option<String>,
    /// The source, or why this node cannot have the volume.
    pub source: Result<PersistentSource, Blocked>,
    /// `ReadWriteOnce` and so on.
    pub access_modes: Vec<String>,
    /// Mount options.
    pub mount_options: Vec<String>,
    /// `volumeMode: Block`.
    pub block: bool,
    /// The capacity.
    pub capacity: Capacity,
    /// Node affinity; all nodes without one.
    pub nodes: Option<NodeSelector>,
    /// The group that pods using it are added to.
    pub gid: Option<i64>,
}

/// The source of a persistent volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PersistentSource {
    /// A path of the node.
    HostPath(String, PathCheck),
    /// The path of a directory or disk of the node, and the file system of a disk.
    Local(String, String),
    /// An NFS export.
    Nfs(Box<NfsVolume>),
    /// A CSI driver.
    Csi(Box<CsiSource>),
}

/// A volume of a CSI driver.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CsiSource {
    /// The name of the driver.
    pub driver: String,
    /// The volume handle.
    pub handle: String,
    /// The file system.
    pub fs_type: String,
    /// Mounted read-only.
    pub read_only: bool,
    /// Volume attributes: opaque to the node.
    pub attributes: BTreeMap<String, String>,
    /// Namespace and name of the `nodeStageSecretRef`.
    pub stage_secret: Option<(String, String)>,
    /// Namespace and name of the `nodePublishSecretRef`.
    pub publish_secret: Option<(String, String)>,
    /// Namespace and name of the `nodeExpandSecretRef`.
    pub expand_secret: Option<(String, String)>,
}

/// The VolumeAttachment of a volume to this node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Attachment {
    /// The volume is attached.
    pub attached: bool,
    /// The publish context of the driver's controller.
    pub metadata: BTreeMap<String, String>,
    /// The attach error.
    pub error: Option<String>,
    /// The error's code is `ResourceExhausted`.
    pub limit_reached: bool,
}

/// The spec of a CSIDriver.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CsiDriverSpec {
    /// The field `attachRequired`.
    pub attach: bool,
    /// The field `podInfoOnMount`.
    pub pod_info: bool,
    /// `fsGroupPolicy`: `None`, `File` or `ReadWriteOnceWithFSType`.
    pub group_policy: String,
    /// `volumeLifecycleModes`: `Persistent`, `Ephemeral`.
    pub lifecycle_modes: Vec<String>,
    /// The field `requiresRepublish`.
    pub republish: bool,
    /// `tokenRequests`: audiences and lifetimes in seconds.
    pub tokens: Vec<(String, Option<i64>)>,
    /// The field `serviceAccountTokenInSecrets`.
    pub tokens_in_secrets: bool,
    /// The field `nodeAllocatableUpdatePeriodSeconds`.
    pub allocatable_update_period: Option<u64>,
}

/// Parses an object of a kind other than ConfigMap and Secret.
pub fn parse(kind: ObjectKind, json: &[u8]) -> Result<ObjectDetails, serde_json::Error> {
    Ok(match kind {
        ObjectKind::ConfigMap | ObjectKind::Secret => ObjectDetails::Data,
        ObjectKind::Claim => ObjectDetails::Claim(claim(serde_json::from_slice(json)?)),
        ObjectKind::PersistentVolume => {
            let object = serde_json::from_slice(json)?;
            ObjectDetails::PersistentVolume(Box::new(persistent_volume(object)))
        }
        ObjectKind::Attachment => {
            ObjectDetails::Attachment(attachment(serde_json::from_slice(json)?))
        }
        ObjectKind::CsiDriver => ObjectDetails::CsiDriver(driver(serde_json::from_slice(json)?)),
        ObjectKind::TrustBundle => ObjectDetails::TrustBundles(vec![trust_bundle::parse(json)?]),
        ObjectKind::TrustBundles => ObjectDetails::TrustBundles(trust_bundle::parse_list(json)?),
    })
}

fn claim(object: api::PersistentVolumeClaim) -> VolumeClaim {
    let metadata = object.metadata;
    let owners = metadata.owner_references.unwrap_or_default();
    let owner = owners.into_iter().find(|o| o.controller == Some(true));
    let status = object.status.unwrap_or_default();
    let requests = object.spec.as_ref().and_then(|s| s.resources.as_ref());
    let resizing = status.allocated_resource_statuses.as_ref();
    let resizing = resizing.and_then(|all| all.get(STORAGE)).cloned();
    let modes = object.spec.as_ref().and_then(|s| s.access_modes.as_ref());
    let annotations = metadata.annotations.unwrap_or_default();
    let allocated = status.allocated_resources.as_ref();
    let resize = ClaimResize {
        requested: bytes(requests.and_then(|resources| resources.requests.as_ref())),
        capacity: bytes(status.capacity.as_ref()),
        reported: resizing.is_some() || allocated.is_some(),
        status: resizing.unwrap_or_default(),
        allocated: allocated
            .map(|_| capacity(allocated))
            .filter(|(_, is)| *is > 0),
        read_write_many: modes
            .is_some_and(|modes| modes.iter().any(|mode| mode == "ReadWriteMany")),
        node_expansion_not_required: annotations.contains_key(NODE_EXPANSION_NOT_REQUIRED),
    };
    let phase = status.phase;
    VolumeClaim {
        resize,
        uid: metadata.uid.unwrap_or_default(),
        bound: phase.as_deref() == Some("Bound"),
        deleting: metadata.deletion_timestamp.is_some(),
        volume: object
            .spec
            .and_then(|spec| spec.volume_name)
            .unwrap_or_default(),
        owner: owner.map(|owner| owner.uid),
    }
}

const STORAGE: &str = "storage";
/// Annotation of a claim whose volume has been expanded for all nodes.
const NODE_EXPANSION_NOT_REQUIRED: &str = "volume.kubernetes.io/node-expansion-not-required";
/// The file system of local disks without an `fsType`.
const DEFAULT_FS_TYPE: &str = "ext4";

fn bytes(resources: Option<&BTreeMap<String, Quantity>>) -> i64 {
    quantity::parse_entry(resources, STORAGE)
        .unwrap_or_default()
        .value()
}

/// The storage as the API writes it, and in bytes.
fn capacity(resources: Option<&BTreeMap<String, Quantity>>) -> Capacity {
    let text = resources.and_then(|all| all.get(STORAGE));
    (
        text.map(|storage| storage.0.clone()).unwrap_or_default(),
        bytes(resources),
    )
}

/// Annotation of a persistent volume: the group of its users.
const GID: &str = "pv.beta.kubernetes.io/gid";

/// The inline volume of a former in-tree plugin as a persistent volume of its CSI driver; `None` for
/// other volumes.
pub fn migrated(
    volume: &api::Volume,
    namespace: &str,
) -> Option<Result<(PersistentVolume, CsiSource), Blocked>> {
    let translated = match csi_translation::translate_inline(volume, namespace)? {
        Ok(object) => persistent_volume(object),
        Err(error) => return Some(Err(Blocked::Unresolved(error))),
    };
    let source = match translated.source.clone() {
        Ok(PersistentSource::Csi(source)) => *source,
        Ok(_) => return None,
        Err(blocked) => return Some(Err(blocked)),
    };
    Some(Ok((translated, source)))
}

fn persistent_volume(mut object: api::PersistentVolume) -> PersistentVolume {
    let translated = csi_translation::translate(&mut object);
    let spec = object.spec.unwrap_or_default();
    let name = object.metadata.name.unwrap_or_default();
    let claim = spec.claim_ref.as_ref();
    let gid = object.metadata.annotations.unwrap_or_default().remove(GID);
    PersistentVolume {
        uid: object.metadata.uid.unwrap_or_default(),
        claim: claim.map(|claim| claim.uid.clone().unwrap_or_default()),
        source: translated
            .map_err(Blocked::Unresolved)
            .and_then(|()| source(&name, &spec)),
        name,
        capacity: capacity(spec.capacity.as_ref()),
        nodes: spec.node_affinity.and_then(|affinity| affinity.required),
        gid: gid.and_then(|gid| gid.parse().ok()),
        access_modes: spec.access_modes.unwrap_or_default(),
        mount_options: spec.mount_options.unwrap_or_default(),
        block: spec.volume_mode.as_deref() == Some("Block"),
    }
}

fn source(name: &str, spec: &PersistentVolumeSpec) -> Result<PersistentSource, Blocked> {
    if let Some(path) = &spec.host_path {
        let (path, check) = builtin::host_path(path).map_err(Blocked::Failed)?;
        return Ok(PersistentSource::HostPath(path, check));
    }
    if let Some(local) = &spec.local {
        let fs_type = local.fs_type.clone();
        let fs_type = fs_type.unwrap_or_else(|| DEFAULT_FS_TYPE.to_owned());
        return Ok(PersistentSource::Local(local.path.clone(), fs_type));
    }
    if let Some(nfs) = &spec.nfs {
        let options = spec.mount_options.clone();
        let nfs = NfsVolume {
            mount_options: options.unwrap_or_default(),
            ..builtin::nfs(nfs).map_err(Blocked::Failed)?
        };
        return Ok(PersistentSource::Nfs(Box::new(nfs)));
    }
    let Some(csi) = &spec.csi else {
        return Err(Blocked::no_plugin(
            name,
            "supported are hostPath, local, nfs, csi",
        ));
    };
    let secret = |reference: &Option<SecretReference>| {
        let reference = reference.as_ref()?;
        Some((reference.namespace.clone()?, reference.name.clone()?))
    };
    Ok(PersistentSource::Csi(Box::new(CsiSource {
        driver: csi.driver.clone(),
        handle: csi.volume_handle.clone(),
        fs_type: csi.fs_type.clone().unwrap_or_default(),
        read_only: csi.read_only.unwrap_or(false),
        attributes: csi.volume_attributes.clone().unwrap_or_default(),
        stage_secret: secret(&csi.node_stage_secret_ref),
        publish_secret: secret(&csi.node_publish_secret_ref),
        expand_secret: secret(&csi.node_expand_secret_ref),
    })))
}

/// gRPC's `ResourceExhausted`.
const RESOURCE_EXHAUSTED: i32 = 8;

fn attachment(object: VolumeAttachment) -> Attachment {
    let status = object.status.unwrap_or_default();
    Attachment {
        attached: status.attached,
        metadata: status.attachment_metadata.unwrap_or_default(),
        limit_reached: status
            .attach_error
            .as_ref()
            .and_then(|error| error.error_code)
            == Some(RESOURCE_EXHAUSTED),
        error: status.attach_error.and_then(|error| error.message),
    }
}

fn driver(object: CSIDriver) -> CsiDriverSpec {
    let spec = object.spec;
    let modes = spec
        .volume_lifecycle_modes
        .filter(|modes| !modes.is_empty());
    let policy = spec.fs_group_policy.filter(|policy| !policy.is_empty());
    CsiDriverSpec {
        attach: spec.attach_required.unwrap_or(true),
        pod_info: spec.pod_info_on_mount.unwrap_or(false),
        group_policy: policy.unwrap_or_else(|| "ReadWriteOnceWithFSType".to_owned()),
        // The API's default.
        lifecycle_modes: modes.unwrap_or_else(|| vec!["Persistent".to_owned()]),
        republish: spec.requires_republish.unwrap_or(false),
        tokens: spec
            .token_requests
            .unwrap_or_default()
            .into_iter()
            .map(|request| (request.audience, request.expiration_seconds))
            .collect(),
        tokens_in_secrets: spec.service_account_token_in_secrets.unwrap_or(false),
        allocatable_update_period: spec
            .node_allocatable_update_period_seconds
            .and_then(|seconds| u64::try_from(seconds).ok())
            .filter(|seconds| *seconds > 0),
    }
}
