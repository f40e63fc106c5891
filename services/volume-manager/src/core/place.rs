//! What this node's object in the cluster says, as far as volumes ask for it.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Node;

/// This node, as the cluster has it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Place {
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// The attachable volumes that its status says are in use.
    pub in_use: BTreeSet<String>,
}

impl Place {
    /// Reads a `v1.Node`.
    ///
    /// # Errors
    /// When it is none.
    pub fn read(json: &[u8]) -> Result<Self, serde_json::Error> {
        let node: Node = serde_json::from_slice(json)?;
        let status = node.status.unwrap_or_default();
        Ok(Place {
            labels: node.metadata.labels.unwrap_or_default(),
            in_use: status
                .volumes_in_use
                .unwrap_or_default()
                .into_iter()
                .collect(),
        })
    }
}
