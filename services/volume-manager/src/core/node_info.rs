//! The parts of this node's Node object that volumes depend on.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Node;

/// This node, as the API server has it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodeInfo {
    /// Labels, for node affinity of persistent volumes.
    pub labels: BTreeMap<String, String>,
    /// The names in `status.volumesInUse`.
    pub volumes_in_use: BTreeSet<String>,
}

impl NodeInfo {
    /// Parses a `v1.Node`.
    pub fn from_json(json: &[u8]) -> Result<Self, serde_json::Error> {
        let node: Node = serde_json::from_slice(json)?;
        let status = node.status.unwrap_or_default();
        Ok(NodeInfo {
            labels: node.metadata.labels.unwrap_or_default(),
            volumes_in_use: status
                .volumes_in_use
                .unwrap_or_default()
                .into_iter()
                .collect(),
        })
    }
}
