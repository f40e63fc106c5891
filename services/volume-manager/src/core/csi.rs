//! Volumes of CSI drivers: what has to be there before one can be mounted, and what its driver is
//! told then.

mod known;
mod made;

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::facts::CsiSource;
use super::growth::Size;
use super::objects::Bytes;
use super::spec::PodName;

pub use known::{attachable, attachment_name, driver, in_use_name, object};
pub use made::{inline, persistent};

/// A driver that has made itself known on this node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Registered {
    /// Its name.
    pub name: String,
    /// Its socket.
    pub endpoint: PathBuf,
    /// Its word for this node.
    pub node_id: String,
    /// Where the node is, as the driver sees it.
    pub topology: BTreeMap<String, String>,
    /// How many volumes it can have here; zero is unknown.
    pub max_volumes: i64,
    /// Volumes are mounted once for the node, and then for each pod.
    pub stages: bool,
    /// It sees to the pod's group itself.
    pub groups: bool,
    /// It knows one writer from many on one node.
    pub single_writers: bool,
    /// It tells what volumes hold.
    pub tells: bool,
    /// It makes volumes larger.
    pub expands: bool,
    /// The newest version of CSI that it speaks: of two drivers of one name that of the newer
    /// counts.
    pub version: (u64, u64, u64),
}

/// The pod that a volume is for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ForPod {
    /// It.
    pub pod: PodName,
    /// Its service account.
    pub service_account: String,
    /// Its group for volumes.
    pub gid: Option<u32>,
    /// What belongs to the group at its root is taken to belong to it all the way down.
    pub on_root_mismatch: bool,
}

/// A volume of a driver that the pod's own manifest describes.
#[derive(Debug, Clone, PartialEq)]
pub struct Inline {
    /// The volume.
    pub source: CsiSource,
    /// Whom it is for.
    pub for_pod: ForPod,
}

/// Everything that a driver is told of a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Csi {
    /// The driver's name.
    pub driver: String,
    /// Its socket.
    pub endpoint: PathBuf,
    /// Its word for the volume.
    pub handle: String,
    /// The persistent volume's name, or the pod's for an ephemeral one.
    pub name: String,
    /// It is made for the pod, and goes with it.
    pub ephemeral: bool,
    /// Mounted once for the node first.
    pub stages: bool,
    /// The attachment's name, if it had to be attached.
    pub attachment: String,
    /// What the driver's controller told of it.
    pub publish_context: BTreeMap<String, String>,
    /// To stage with.
    pub stage_secrets: BTreeMap<String, Bytes>,
    /// To publish with.
    pub publish_secrets: BTreeMap<String, Bytes>,
    /// Whatever the driver wants to know.
    pub attributes: BTreeMap<String, String>,
    /// For which pod it is published, for drivers that want to know.
    pub pod_info: BTreeMap<String, String>,
    /// The file system.
    pub fs_type: String,
    /// Options for the mount.
    pub mount_options: Vec<String>,
    /// CSI's number of how it may be used.
    pub access_mode: i32,
    /// Nobody may write.
    pub read_only: bool,
    /// The group that this node has to give all in it to.
    pub gid: Option<u32>,
    /// Of that group: what is right at the root is right.
    pub on_root_mismatch: bool,
    /// The group that the driver sees to.
    pub mount_group: Option<u32>,
    /// A device, and not a file system.
    pub block: bool,
    /// Tokens of the pod's account, as the driver reads them.
    pub tokens: Option<Bytes>,
    /// They are told among the secrets.
    pub tokens_in_secrets: bool,
    /// The driver wants to be asked again and again.
    pub republish: bool,
    /// How large it is, and whether the driver has to make it larger.
    pub size: Size,
    /// To make it larger with.
    pub expand_secrets: BTreeMap<String, Bytes>,
}

/// What a volume that is held lacks of what is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lacks {
    /// Nothing.
    Nothing,
    /// Its driver has to publish it again, with what has changed.
    Publishing,
    /// Its driver has to make it larger.
    Growth,
    /// It is another volume.
    All,
}

impl Csi {
    /// As the Node's status names it, if it has been attached.
    pub fn in_use(&self) -> Option<String> {
        let name = || in_use_name(&self.driver, &self.handle);
        (!self.attachment.is_empty()).then(name)
    }

    /// What this one, which is held, lacks of the wanted one. A volume that is mounted is not
    /// mounted again because a secret or a driver's socket is another now, as upstream.
    pub fn lacks(&self, wanted: &Csi) -> Lacks {
        let same = self.driver == wanted.driver
            && self.handle == wanted.handle
            && self.name == wanted.name
            && self.block == wanted.block;
        if !same {
            return Lacks::All;
        }
        if self.size.grows_to(wanted.size) {
            return Lacks::Growth;
        }
        if wanted.republish && self.tokens != wanted.tokens {
            return Lacks::Publishing;
        }
        Lacks::Nothing
    }
}

/// In hexadecimal.
pub fn sha256(text: &str) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, text.as_bytes());
    let bytes = digest.as_ref().iter();
    bytes.map(|byte| format!("{byte:02x}")).collect()
}
