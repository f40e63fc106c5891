//! ClusterTrustBundles, read from JSON as any version of the API writes them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::Deserialize;

use super::super::pem;

/// A ClusterTrustBundle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrustBundle {
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Trust anchors, DER.
    pub anchors: Arc<BTreeSet<Vec<u8>>>,
}

#[derive(Deserialize)]
struct RawTrustBundle {
    #[serde(default)]
    metadata: RawMetadata,
    spec: RawTrustBundleSpec,
}

#[derive(Deserialize, Default)]
struct RawMetadata {
    #[serde(default)]
    labels: BTreeMap<String, String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawTrustBundleSpec {
    trust_bundle: String,
}

#[derive(Deserialize)]
struct RawTrustBundleList {
    #[serde(default)]
    items: Vec<RawTrustBundle>,
}

impl From<RawTrustBundle> for TrustBundle {
    fn from(raw: RawTrustBundle) -> Self {
        let anchors = pem::blocks(raw.spec.trust_bundle.as_bytes());
        Self {
            labels: raw.metadata.labels,
            anchors: Arc::new(anchors.into_iter().collect()),
        }
    }
}

/// Parses one bundle.
pub(super) fn parse(json: &[u8]) -> Result<TrustBundle, serde_json::Error> {
    serde_json::from_slice::<RawTrustBundle>(json).map(TrustBundle::from)
}

/// Parses a list of bundles.
pub(super) fn parse_list(json: &[u8]) -> Result<Vec<TrustBundle>, serde_json::Error> {
    let list: RawTrustBundleList = serde_json::from_slice(json)?;
    Ok(list.items.into_iter().map(TrustBundle::from).collect())
}
