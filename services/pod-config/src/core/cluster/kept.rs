//! What outlives the process of what the cluster said.

use bytes::Bytes;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::super::kept::KeptCause;
use super::super::{ObjectItem, ObjectKey};
use super::service::Reduced;

/// Version of the files.
pub const VERSION: u32 = 1;

/// The cluster that everything else in the kept files is of.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct KeptCluster {
    /// Its server's address.
    pub server: String,
    /// The certificate of its authority, as PEM; empty when the system's are trusted.
    pub authority: String,
}

impl KeptCluster {
    /// Whether the node belongs to another cluster now. A server may be given another address, and
    /// an authority may be renewed; who changed both, or has no authority of its own, is another.
    pub fn is_another(&self, now: &KeptCluster) -> bool {
        self.server != now.server && (self.authority != now.authority || self.authority.is_empty())
    }
}

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
    #[serde(with = "text")]
    pub manifest: Bytes,
    /// The status that the cluster held.
    #[serde(with = "text")]
    pub status: Bytes,
    /// What set it off, with its digest.
    pub cause: KeptCause,
}

/// Shared bytes that are text, as text.
mod text {
    use bytes::Bytes;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(of: &Bytes, into: S) -> Result<S::Ok, S::Error> {
        into.serialize_str(&String::from_utf8_lossy(of))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Bytes, D::Error> {
        String::deserialize(from).map(Bytes::from)
    }
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

#[cfg(test)]
mod tests {
    use super::KeptCluster;

    #[test]
    fn another_address_or_another_authority_is_no_other_cluster() {
        let cluster = |server: &str, authority: &str| KeptCluster {
            server: server.to_owned(),
            authority: authority.to_owned(),
        };
        let before = cluster("https://a", "x");
        for (server, authority, another) in [
            ("https://a", "x", false),
            ("https://b", "x", false),
            ("https://a", "y", false),
            ("https://b", "y", true),
        ] {
            let now = cluster(server, authority);
            assert_eq!(before.is_another(&now), another, "{now:?}");
        }
        assert!(cluster("https://a", "").is_another(&cluster("https://b", "")));
    }
}
