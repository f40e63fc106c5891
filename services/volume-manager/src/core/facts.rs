//! What claims, persistent volumes, attachments and drivers say, as far as it matters here.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    NodeSelector, PersistentVolume, PersistentVolumeClaim, PersistentVolumeSpec, SecretReference,
};
use k8s_openapi::api::storage::v1::{CSIDriver, VolumeAttachment};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use polylet_model::quantity;

use super::growth::Amount;
use super::objects::ObjectKind;
use super::plain;
use super::spec::SetUp;
use super::trust::{self, Bundle};

/// What an object says, by its kind.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum Facts {
    /// It holds values alone.
    #[default]
    None,
    /// A claim.
    Claim(Claim),
    /// A persistent volume.
    Persistent(Box<Persistent>),
    /// An attachment.
    Attachment(Attachment),
    /// A driver.
    Driver(Driver),
    /// Trust bundles.
    Trust(Vec<Bundle>),
}

/// A claim.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Claim {
    /// Its uid.
    pub uid: String,
    /// It is bound to a volume.
    pub bound: bool,
    /// Somebody asked for its end.
    pub deleting: bool,
    /// The persistent volume.
    pub volume: String,
    /// The uid of the pod that it was made for.
    pub owner: Option<String>,
    /// How far its volume's growth is, as its status says it.
    pub growth: ClaimGrowth,
}

/// What a claim says of its size, in bytes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClaimGrowth {
    /// What its user asks for.
    pub requested: i64,
    /// What it has.
    pub capacity: i64,
    /// How far growing it has come; empty where nobody grows it.
    pub status: String,
    /// Who grows volumes in this cluster tells of that in the claim.
    pub told: bool,
    /// What the cluster has granted, as the API writes it, and in bytes, where it says so.
    pub granted: Option<Amount>,
    /// Several nodes may write to it.
    pub of_many: bool,
    /// The cluster has made it larger for all nodes.
    pub not_on_nodes: bool,
}

/// A persistent volume.
#[derive(Debug, Clone, PartialEq)]
pub struct Persistent {
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// The uid of its claim, if it has one.
    pub claim: Option<String>,
    /// What it is; or why this node cannot have it.
    pub source: Result<Source, String>,
    /// `ReadWriteOnce` and so on.
    pub access_modes: Vec<String>,
    /// Options for the mount.
    pub mount_options: Vec<String>,
    /// It is a block device, and not a file system.
    pub block: bool,
    /// Its size, as the API writes it, and in bytes.
    pub capacity: Amount,
    /// On which nodes it can be had; none is all.
    pub nodes: Option<NodeSelector>,
    /// The group of those who may use it.
    pub gid: Option<i64>,
}

/// What a persistent volume is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A path of the node.
    HostPath(SetUp),
    /// A directory or a disk of the node, and the file system of a disk.
    Local(String, String),
    /// A driver's.
    Csi(Box<CsiSource>),
}

/// A volume of a driver.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CsiSource {
    /// The driver's name.
    pub driver: String,
    /// The driver's word for the volume.
    pub handle: String,
    /// The file system to be made where there is none.
    pub fs_type: String,
    /// Mounted read-only.
    pub read_only: bool,
    /// Whatever the driver wants to know.
    pub attributes: BTreeMap<String, String>,
    /// Namespace and name of the secret to stage with.
    pub stage_secret: Option<(String, String)>,
    /// Of the secret to publish with.
    pub publish_secret: Option<(String, String)>,
    /// Of the secret to make it larger with.
    pub expand_secret: Option<(String, String)>,
}

/// An attachment of a volume to this node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Attachment {
    /// It is attached.
    pub attached: bool,
    /// What the driver's controller told of it.
    pub metadata: BTreeMap<String, String>,
    /// Why it cannot be attached.
    pub error: Option<String>,
    /// Because its driver can attach no more to this node.
    pub exhausted: bool,
}

/// What a driver asks of the node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Driver {
    /// Volumes are attached before they are mounted.
    pub attach: bool,
    /// It wants to know for which pod.
    pub pod_info: bool,
    /// Who sees to the pod's group: `None`, `File` or `ReadWriteOnceWithFSType`.
    pub group_policy: String,
    /// In which ways its volumes come to be: `Persistent`, or `Ephemeral` out of the pod's own words.
    pub lifecycle_modes: Vec<String>,
    /// It wants to be asked to publish again and again.
    pub republish: bool,
    /// The audiences of tokens of the pod's account that it wants, and how long they shall live, in
    /// seconds.
    pub tokens: Vec<(String, Option<i64>)>,
    /// It wants them among the secrets, and not in the volume's context.
    pub tokens_in_secrets: bool,
    /// How often it is to be asked how many volumes it can have here, in seconds.
    pub recounted: Option<u64>,
}

/// Reads an object of a kind that holds no values.
pub fn read(kind: ObjectKind, json: &[u8]) -> Result<Facts, serde_json::Error> {
    Ok(match kind {
        ObjectKind::ConfigMap | ObjectKind::Secret => Facts::None,
        ObjectKind::Claim => Facts::Claim(claim(serde_json::from_slice(json)?)),
        ObjectKind::Persistent => {
            Facts::Persistent(Box::new(persistent(serde_json::from_slice(json)?)))
        }
        ObjectKind::Attachment => Facts::Attachment(attachment(serde_json::from_slice(json)?)),
        ObjectKind::CsiDriver => Facts::Driver(driver(serde_json::from_slice(json)?)),
        ObjectKind::TrustBundle => Facts::Trust(vec![trust::one(json)?]),
        ObjectKind::TrustBundles => Facts::Trust(trust::list(json)?),
    })
}

fn claim(object: PersistentVolumeClaim) -> Claim {
    let metadata = object.metadata;
    let owners = metadata.owner_references.unwrap_or_default();
    let owner = owners.into_iter().find(|o| o.controller == Some(true));
    let status = object.status.unwrap_or_default();
    let requests = object.spec.as_ref().and_then(|s| s.resources.as_ref());
    let grown = status.allocated_resource_statuses.as_ref();
    let grown = grown.and_then(|all| all.get(STORAGE)).cloned();
    let modes = object.spec.as_ref().and_then(|s| s.access_modes.as_ref());
    let annotations = metadata.annotations.unwrap_or_default();
    let granted = status.allocated_resources.as_ref();
    let growth = ClaimGrowth {
        requested: bytes(requests.and_then(|resources| resources.requests.as_ref())),
        capacity: bytes(status.capacity.as_ref()),
        told: grown.is_some() || granted.is_some(),
        status: grown.unwrap_or_default(),
        granted: granted.map(|_| amount(granted)).filter(|(_, is)| *is > 0),
        of_many: modes.is_some_and(|modes| modes.iter().any(|mode| mode == "ReadWriteMany")),
        not_on_nodes: annotations.contains_key(NOT_ON_NODES),
    };
    let phase = status.phase;
    Claim {
        growth,
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
/// On a claim: its volume has been made larger for all nodes.
const NOT_ON_NODES: &str = "volume.kubernetes.io/node-expansion-not-required";
/// The file system of disks of which nothing is said.
const DISKS: &str = "ext4";

fn bytes(of: Option<&BTreeMap<String, Quantity>>) -> i64 {
    quantity::get(of, STORAGE).unwrap_or_default().value()
}

/// The same, beside how the API writes it.
fn amount(of: Option<&BTreeMap<String, Quantity>>) -> Amount {
    let text = of.and_then(|all| all.get(STORAGE));
    (
        text.map(|storage| storage.0.clone()).unwrap_or_default(),
        bytes(of),
    )
}

/// Where a persistent volume says what group may use it.
const GID: &str = "pv.beta.kubernetes.io/gid";

fn persistent(object: PersistentVolume) -> Persistent {
    let spec = object.spec.unwrap_or_default();
    let claim = spec.claim_ref.as_ref();
    let gid = object.metadata.annotations.unwrap_or_default().remove(GID);
    Persistent {
        name: object.metadata.name.unwrap_or_default(),
        uid: object.metadata.uid.unwrap_or_default(),
        claim: claim.map(|claim| claim.uid.clone().unwrap_or_default()),
        source: source(&spec),
        capacity: amount(spec.capacity.as_ref()),
        nodes: spec.node_affinity.and_then(|affinity| affinity.required),
        gid: gid.and_then(|gid| gid.parse().ok()),
        access_modes: spec.access_modes.unwrap_or_default(),
        mount_options: spec.mount_options.unwrap_or_default(),
        block: spec.volume_mode.as_deref() == Some("Block"),
    }
}

fn source(spec: &PersistentVolumeSpec) -> Result<Source, String> {
    if let Some(path) = &spec.host_path {
        return plain::host_path(path).map(Source::HostPath);
    }
    if let Some(local) = &spec.local {
        let fs_type = local.fs_type.clone();
        let fs_type = fs_type.unwrap_or_else(|| DISKS.to_owned());
        return Ok(Source::Local(local.path.clone(), fs_type));
    }
    let Some(csi) = &spec.csi else {
        let supported = "supported are hostPath, local, csi";
        return Err(format!(
            "the persistent volume is of a type that this node does not support: {supported}"
        ));
    };
    let secret = |of: &Option<SecretReference>| {
        let of = of.as_ref()?;
        Some((of.namespace.clone()?, of.name.clone()?))
    };
    Ok(Source::Csi(Box::new(CsiSource {
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

/// gRPC's code for it.
const EXHAUSTED: i32 = 8;

fn attachment(object: VolumeAttachment) -> Attachment {
    let status = object.status.unwrap_or_default();
    Attachment {
        attached: status.attached,
        metadata: status.attachment_metadata.unwrap_or_default(),
        exhausted: status
            .attach_error
            .as_ref()
            .and_then(|error| error.error_code)
            == Some(EXHAUSTED),
        error: status.attach_error.and_then(|error| error.message),
    }
}

fn driver(object: CSIDriver) -> Driver {
    let spec = object.spec;
    let modes = spec
        .volume_lifecycle_modes
        .filter(|modes| !modes.is_empty());
    let policy = spec.fs_group_policy.filter(|policy| !policy.is_empty());
    Driver {
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
        recounted: spec
            .node_allocatable_update_period_seconds
            .and_then(|seconds| u64::try_from(seconds).ok())
            .filter(|seconds| *seconds > 0),
    }
}
