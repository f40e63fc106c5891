//! The sizes of writable layers, as the runtime measures them.

use std::collections::BTreeMap;

use polylet_cri::v1::UInt64Value;
use polylet_walk::DiskUsage;

use super::NOT_MEASURED_DURATION;
use super::pod_sampler::PodSampler;

/// The reason of the health condition.
pub(super) const UNKNOWN: &str = "WritableLayersUnknown";

/// Writable layers by container id.
pub(super) type WritableLayers = BTreeMap<String, DiskUsage>;

impl PodSampler {
    /// The writable layers of all containers; `None` while the runtime does not report them.
    pub(super) async fn writable_layers(&self) -> Option<WritableLayers> {
        let stats = match self.runtime.list_container_stats(None).await {
            Ok(stats) => stats,
            Err(error) => {
                let error = polylet_kit::report(&error);
                self.conditions
                    .set_for(UNKNOWN, "", error, NOT_MEASURED_DURATION);
                return None;
            }
        };
        self.conditions.clear(UNKNOWN, "");
        let value = |v: Option<UInt64Value>| v.map_or(0, |v| v.value);
        let layers = stats.into_iter().filter_map(|stats| {
            let (id, layer) = (stats.attributes?.id, stats.writable_layer?);
            let bytes = value(layer.used_bytes);
            let inodes = value(layer.inodes_used);
            Some((id, DiskUsage { bytes, inodes }))
        });
        Some(layers.collect())
    }
}
