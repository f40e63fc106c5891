//! Pods to and from their persisted form.

use std::collections::BTreeMap;

use jiff::Timestamp;
use polylet_model::PodUid;
use polylet_wire::common::v1::Cause;
use polylet_wire::podconfig::v1::Pod;
use polylet_wire::time::{from_wire_opt, to_wire};

use super::super::api_health::ApiHealth;
use super::PodStores;
use crate::convert;
use crate::core::cluster::pod::ApiPod;
use crate::core::cluster::state::{PersistedPod, PodRecord, PodRecordKey};
use crate::core::state::PersistedCause;
use crate::persist::{KeyedLog, RecordSource};

/// State of an earlier process.
#[derive(Default)]
pub(super) struct RestoredPods {
    /// Pods by uid.
    pub(super) pods: BTreeMap<PodUid, PersistedPod>,
    pub(super) outage_since: Option<Timestamp>,
}

impl RestoredPods {
    /// Loads the pods of a node.
    pub(super) fn load(log: &KeyedLog<PodRecordKey>, node: &str) -> RestoredPods {
        let filter = |_: &PodRecordKey, record: &PodRecord| match record {
            PodRecord::Outage(_) => true,
            PodRecord::Pod(pod) => pod.node == node,
        };
        let mut restored = RestoredPods::default();
        for record in log.load(filter).into_values() {
            match record {
                PodRecord::Outage(since) => restored.outage_since = Some(since),
                PodRecord::Pod(pod) => drop(restored.pods.insert(pod.uid.as_str().into(), *pod)),
            }
        }
        restored
    }
}

/// The part of a pod that changed, which decides how soon it is persisted.
#[derive(Clone, Copy)]
pub(super) enum ChangeKind {
    None,
    Status,
    Manifest,
}

impl ChangeKind {
    pub(super) fn new(pod: &Pod, current: Option<&Pod>) -> ChangeKind {
        match current {
            Some(current) if current.manifest != pod.manifest => ChangeKind::Manifest,
            Some(current) if current.reported_status != pod.reported_status => ChangeKind::Status,
            Some(_) => ChangeKind::None,
            None => ChangeKind::Manifest,
        }
    }
}

/// The records to persist.
pub(crate) struct PodPersister {
    pub(crate) stores: PodStores,
    pub(crate) health: ApiHealth,
    pub(crate) node: String,
}

impl RecordSource<PodRecordKey> for PodPersister {
    type Record = PodRecord;

    fn keys(&self) -> Vec<PodRecordKey> {
        let uids = self.stores.pods_with_status.keys().into_iter();
        uids.map(PodRecordKey::Pod)
            .chain([PodRecordKey::Outage])
            .collect()
    }

    fn record(&self, key: &PodRecordKey) -> Option<PodRecord> {
        match key {
            PodRecordKey::Outage => self.health.outage_since().map(PodRecord::Outage),
            PodRecordKey::Pod(uid) => {
                let pod = self.stores.pods_with_status.get(uid)?;
                to_persisted(pod, &self.node).map(|pod| PodRecord::Pod(Box::new(pod)))
            }
        }
    }
}

fn to_persisted(pod: Pod, node: &str) -> Option<PersistedPod> {
    let pod_ref = pod.r#ref?;
    let cause = pod.cause.unwrap_or_default();
    Some(PersistedPod {
        node: node.to_owned(),
        uid: pod_ref.uid,
        namespace: pod_ref.namespace,
        name: pod_ref.name,
        manifest: pod.manifest,
        status: pod.reported_status,
        cause: PersistedCause {
            removed_at: None,
            digest: pod.digest,
            traceparent: cause.traceparent,
            observed_at: from_wire_opt(cause.observed_at.as_ref()),
        },
    })
}

pub(super) fn from_persisted(persisted: &PersistedPod, stale_since: Option<Timestamp>) -> Pod {
    let cause = Cause {
        traceparent: persisted.cause.traceparent.clone(),
        observed_at: persisted.cause.observed_at.map(to_wire),
        links: Vec::new(),
    };
    let pod = ApiPod {
        uid: persisted.uid.clone(),
        namespace: persisted.namespace.clone(),
        name: persisted.name.clone(),
        digest: persisted.cause.digest.clone(),
        manifest: persisted.manifest.clone(),
        status: persisted.status.clone(),
    };
    Pod {
        stale_since: stale_since.map(to_wire),
        ..convert::api_pod(pod, cause)
    }
}
