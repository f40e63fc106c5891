//! Persisted state of the API server's objects.

use bytes::Bytes;
use jiff::Timestamp;
use polylet_model::PodUid;
use serde::{Deserialize, Serialize};

use super::super::json_text;
use super::super::state::PersistedCause;
use super::service::ServiceSummary;

/// Version of the files that are written as a whole.
pub const VERSION: u32 = 2;

/// The cluster that all other state files belong to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PersistedCluster {
    /// URL of the API server.
    pub server: String,
    /// The cluster's CA certificates as PEM; empty when the system's are used.
    pub authority: String,
}

impl PersistedCluster {
    /// Whether the node belongs to another cluster now. A server can get another URL, and a CA can
    /// be renewed; when both differ, or the URL differs and there is no CA, it is another cluster.
    pub fn is_another(&self, now: &PersistedCluster) -> bool {
        self.server != now.server && (self.authority != now.authority || self.authority.is_empty())
    }
}

/// Key of a record in the log of pods.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PodRecordKey {
    /// Start of the present outage of the API server.
    Outage,
    /// The pod with a uid.
    Pod(PodUid),
}

/// Record in the log of pods.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PodRecord {
    /// Start of the present outage.
    Outage(Timestamp),
    /// A pod with its status.
    Pod(Box<PersistedPod>),
}

/// A pod that was bound to this node when the API server last answered.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PersistedPod {
    /// Node name; the pods of another node are not used.
    pub node: String,
    /// Pod uid.
    pub uid: String,
    /// Pod namespace.
    pub namespace: String,
    /// Pod name.
    pub name: String,
    /// See [`super::pod::ApiPod`].
    #[serde(with = "json_text")]
    pub manifest: Bytes,
    /// `v1.PodStatus` of the API server.
    #[serde(with = "json_text")]
    pub status: Bytes,
    /// Cause and digest of the pod.
    pub cause: PersistedCause,
}

/// The Node object.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PersistedNode {
    /// Name of the node.
    pub name: String,
    /// Published JSON; `None` when the object did not exist.
    pub manifest: Option<String>,
}

/// Services with a cluster IP.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PersistedServices {
    /// All such Services.
    pub services: Vec<ServiceSummary>,
}

#[cfg(test)]
mod tests {
    use super::PersistedCluster;

    #[test]
    fn another_cluster_has_another_url_and_another_ca() {
        let cluster = |server: &str, authority: &str| PersistedCluster {
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
