//! The latest reports about pods. Streams send each report once; the cache also applies them to pods
//! whose manifest arrives later.

use std::collections::BTreeMap;

use polylet_model::PodUid;
use polylet_watch::ProbeItemKey;
use polylet_wire::prober::v1::ProbeStatus;
use polylet_wire::volume::v1::PodVolumes;

use crate::convert;
use crate::core::apply_result;
use crate::core::checkpoint::PodTermination;
use crate::core::view::PodSyncStatus;

/// The latest reports by pod UID or probe.
#[derive(Default)]
pub(crate) struct ReportCache {
    pub(crate) evictions: BTreeMap<PodUid, PodTermination>,
    pub(crate) probes: BTreeMap<ProbeItemKey, ProbeStatus>,
    pub(crate) volumes: BTreeMap<PodUid, PodVolumes>,
}

impl ReportCache {
    /// Applies the reports about a pod that has just become known.
    pub(crate) fn apply_to(&self, pod: &mut PodSyncStatus) {
        let uid = pod.uid.clone();
        pod.eviction = self.evictions.get(&uid).cloned();
        if let Some(state) = self.volumes.get(&uid) {
            apply_result::on_volumes(pod, state.sequence, convert::observed_volumes(state));
        }
        let of_pod = self
            .probes
            .range((uid.clone(), String::new(), i32::MIN)..)
            .take_while(|((of, _, _), _)| *of == uid);
        for ((_, container, kind), status) in of_pod {
            if let Some(result) = convert::probe_update(*kind, status) {
                result.apply_to(pod, container);
            }
        }
    }
}
