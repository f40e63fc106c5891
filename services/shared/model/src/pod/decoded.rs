//! The typed objects of a manifest.

use k8s_openapi::api::core::v1::{Container, PodSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::as_container;

/// All that is read of the JSON.
#[derive(Default)]
pub(super) struct DecodedManifest {
    pub(super) metadata: ObjectMeta,
    pub(super) spec: PodSpec,
    pub(super) ephemeral: Vec<Container>,
}

impl DecodedManifest {
    pub(super) fn new(metadata: ObjectMeta, spec: PodSpec) -> Self {
        let ephemeral = spec.ephemeral_containers.iter().flatten();
        let ephemeral = ephemeral.map(as_container).collect();
        Self {
            metadata,
            spec,
            ephemeral,
        }
    }
}
