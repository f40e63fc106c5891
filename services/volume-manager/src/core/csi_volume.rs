//! Volumes of CSI drivers, with all that is sent to a driver.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::api_objects::CsiSource;
use super::bytes::Bytes;
use super::pod::PodContext;
use super::resize::VolumeSize;

/// A driver that has registered on this node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RegisteredDriver {
    /// The name.
    pub name: String,
    /// The socket.
    pub endpoint: PathBuf,
    /// The driver's id of this node.
    pub node_id: String,
    /// The topology segments of this node.
    pub topology: BTreeMap<String, String>,
    /// The limit of volumes on this node; zero if unknown.
    pub max_volumes: i64,
    /// Capability `STAGE_UNSTAGE_VOLUME`.
    pub stage_unstage: bool,
    /// Capability `VOLUME_MOUNT_GROUP`.
    pub volume_mount_group: bool,
    /// Capability `SINGLE_NODE_MULTI_WRITER`.
    pub single_node_multi_writer: bool,
    /// Capability `GET_VOLUME_STATS`.
    pub volume_stats: bool,
    /// Capability `EXPAND_VOLUME`.
    pub expand_volume: bool,
    /// The highest version of CSI that it supports: it decides between two drivers of one name.
    pub version: (u64, u64, u64),
}

/// An inline volume of a CSI driver.
#[derive(Debug, Clone, PartialEq)]
pub struct InlineVolume {
    /// The volume.
    pub source: CsiSource,
    /// The pod.
    pub pod_context: PodContext,
}

/// All that is sent to a driver about one volume of a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CsiVolume {
    /// The name of the driver.
    pub driver: String,
    /// The socket of the driver.
    pub endpoint: PathBuf,
    /// The volume handle.
    pub handle: String,
    /// The name of the persistent volume, or that in the pod for an inline volume.
    pub name: String,
    /// An inline volume: it lives as long as the pod.
    pub ephemeral: bool,
    /// Staged on the node before it is published to pods.
    pub stages: bool,
    /// The name of the VolumeAttachment; empty if the volume is not attached.
    pub attachment: String,
    /// The publish context of the driver's controller.
    pub publish_context: BTreeMap<String, String>,
    /// Secrets for `NodeStageVolume`.
    pub stage_secrets: BTreeMap<String, Bytes>,
    /// Secrets for `NodePublishVolume`.
    pub publish_secrets: BTreeMap<String, Bytes>,
    /// Volume attributes.
    pub attributes: BTreeMap<String, String>,
    /// `podInfoOnMount`: additions to the volume context.
    pub pod_info: BTreeMap<String, String>,
    /// The file system.
    pub fs_type: String,
    /// Mount options.
    pub mount_options: Vec<String>,
    /// CSI's number of the access mode.
    pub access_mode: i32,
    /// Published read-only.
    pub read_only: bool,
    /// The group to which this node changes the ownership of the content.
    pub gid: Option<u32>,
    /// Skip the change of ownership where the root directory has it already.
    pub on_root_mismatch: bool,
    /// The group that is delegated to the driver.
    pub mount_group: Option<u32>,
    /// A block device.
    pub block: bool,
    /// Service account tokens, encoded as drivers expect them.
    pub tokens: Option<Bytes>,
    /// Sends the tokens among the secrets.
    pub tokens_in_secrets: bool,
    /// The driver has `requiresRepublish`.
    pub republish: bool,
    /// The size, and whether the driver has to expand the volume.
    pub size: VolumeSize,
    /// Secrets for `NodeExpandVolume`.
    pub expand_secrets: BTreeMap<String, Bytes>,
}

/// What turns a mounted volume into the desired one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequiredUpdate {
    /// Nothing to do.
    None,
    /// Call `NodePublishVolume` with what has changed.
    Republish,
    /// Expand the volume.
    Expand,
    /// Set it up: it is another volume.
    SetUp,
}

impl CsiVolume {
    /// The name in the Node's `volumesInUse`, if it has been attached.
    pub fn in_use(&self) -> Option<String> {
        let name = || unique_name(&self.driver, &self.handle);
        (!self.attachment.is_empty()).then(name)
    }

    /// What turns this mounted volume into the desired one. A mounted volume is not mounted again
    /// for a changed secret or socket, as upstream.
    pub fn required_update(&self, desired: &CsiVolume) -> RequiredUpdate {
        let same = self.driver == desired.driver
            && self.handle == desired.handle
            && self.name == desired.name
            && self.block == desired.block;
        if !same {
            return RequiredUpdate::SetUp;
        }
        if self.size.needs_expansion(desired.size) {
            return RequiredUpdate::Expand;
        }
        if desired.republish && self.tokens != desired.tokens {
            return RequiredUpdate::Republish;
        }
        RequiredUpdate::None
    }
}

/// The name of a volume in the Node's `volumesInUse`.
pub fn unique_name(driver: &str, handle: &str) -> String {
    format!("kubernetes.io/csi/{driver}^{handle}")
}

/// The name of the VolumeAttachment of a volume to a node.
pub fn attachment_name(handle: &str, driver: &str, node: &str) -> String {
    format!("csi-{}", sha256(&format!("{handle}{driver}{node}")))
}

/// The SHA-256 digest in hexadecimal.
pub fn sha256(text: &str) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, text.as_bytes());
    let bytes = digest.as_ref().iter();
    bytes.map(|byte| format!("{byte:02x}")).collect()
}
