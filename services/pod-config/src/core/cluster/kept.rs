//! What outlives the process of what the cluster said.

use std::sync::Arc;

use bytes::Bytes;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::super::kept::KeptCause;
use super::super::{ObjectItem, ObjectKey};
use super::service::Reduced;

/// Version of the files that are written whole.
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

/// What is kept of the pods that are bound to this node, by itself.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PodKey {
    /// Since when the server has been away, when it is.
    Away,
    /// The pod of a uid.
    Pod(String),
}

/// What is kept under such a key.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PodEntry {
    /// Since then.
    Away(Timestamp),
    /// A pod.
    Pod(Box<KeptPod>),
}

/// A pod that was bound to this node when the server was last heard.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct KeptPod {
    /// The node: the pods of another one are no use.
    #[serde(default)]
    pub of: String,
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

/// All of them in one: how builds before this one kept them.
pub fn whole_pods(data: &[u8]) -> Option<Vec<(PodKey, PodEntry)>> {
    #[derive(Deserialize)]
    struct Whole {
        of: String,
        away_since: Option<Timestamp>,
        pods: Vec<KeptPod>,
    }
    let Whole {
        of,
        away_since,
        pods,
    } = serde_json::from_slice(data).ok()?;
    let pod = |pod: KeptPod| {
        let of = of.clone();
        let key = PodKey::Pod(pod.uid.clone());
        (key, PodEntry::Pod(Box::new(KeptPod { of, ..pod })))
    };
    let away = away_since.map(|since| (PodKey::Away, PodEntry::Away(since)));
    Some(pods.into_iter().map(pod).chain(away).collect())
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

/// All objects that pods refer to in one: how builds before this one kept them.
pub fn whole_objects(data: &[u8]) -> Option<Vec<(ObjectKey, Arc<str>)>> {
    #[derive(Deserialize)]
    struct Whole {
        objects: Vec<ObjectItem>,
    }
    let whole: Whole = serde_json::from_slice(data).ok()?;
    let objects = whole.objects.into_iter();
    Some(objects.map(|item| (item.key, item.manifest)).collect())
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
