//! What outlives the process of what the cluster said.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::super::kept::KeptCause;
use super::super::{ObjectItem, ObjectKey};
use super::service::Reduced;

/// Version of the files.
pub const VERSION: u32 = 1;

/// The pods that were bound to this node when the server was last heard.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct KeptPods {
    /// The node: the pods of another one are no use.
    pub of: String,
    /// Since when the server has been away, when it is.
    pub away_since: Option<Timestamp>,
    /// All of them.
    pub pods: Vec<KeptPod>,
}

/// One of them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct KeptPod {
    /// Identity.
    pub uid: String,
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// See [`super::pod::ApiPod`].
    pub manifest: String,
    /// The status that the cluster held.
    pub status: String,
    /// What set it off, with its digest.
    pub cause: KeptCause,
}

/// This node's object.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct KeptNode {
    /// The node's name.
    pub of: String,
    /// As it was told; nothing when there was none.
    pub manifest: Option<String>,
}

/// The Services that have an address.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct KeptServices {
    /// All of them.
    pub services: Vec<Reduced>,
}

/// The objects that pods refer to.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct KeptObjects {
    /// All of them.
    pub objects: Vec<ObjectItem>,
}

impl KeptObjects {
    /// Those that there are.
    pub fn of(objects: impl IntoIterator<Item = (ObjectKey, std::sync::Arc<str>)>) -> KeptObjects {
        let item = |(key, manifest)| ObjectItem {
            key,
            manifest,
            place: String::new(),
        };
        KeptObjects {
            objects: objects.into_iter().map(item).collect(),
        }
    }
}
