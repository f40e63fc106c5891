//! Pods as they are kept, and back.

use std::collections::BTreeMap;

use jiff::Timestamp;
use polylet_wire::common::v1::Cause;
use polylet_wire::podconfig::v1::Pod;
use polylet_wire::time::{from_wire_opt, to_wire};

use super::super::trouble::Trouble;
use super::Stores;
use crate::convert;
use crate::core::cluster::kept::{KeptPod, PodEntry, PodKey, whole_pods};
use crate::core::cluster::pod::ApiPod;
use crate::core::kept::KeptCause;
use crate::keep::{Entries, Form, Source};

/// What a former life kept.
#[derive(Default)]
pub(super) struct Former {
    /// By uid.
    pub(super) pods: BTreeMap<String, KeptPod>,
    pub(super) away_since: Option<Timestamp>,
}

impl Former {
    /// Of this node.
    pub(super) fn load(keep: &Entries<PodKey>, node: &str) -> Former {
        let form = Form { whole: whole_pods };
        let wanted = |_: &PodKey, entry: &PodEntry| match entry {
            PodEntry::Away(_) => true,
            PodEntry::Pod(pod) => pod.of == node,
        };
        let mut former = Former::default();
        for entry in keep.load(&form, wanted).into_values() {
            match entry {
                PodEntry::Away(since) => former.away_since = Some(since),
                PodEntry::Pod(pod) => drop(former.pods.insert(pod.uid.clone(), *pod)),
            }
        }
        former
    }
}

/// What of a pod is to be kept anew.
#[derive(Clone, Copy)]
pub(super) enum News {
    None,
    Status,
    Manifest,
}

impl News {
    pub(super) fn of(pod: &Pod, known: Option<&Pod>) -> News {
        match known {
            Some(known) if known.manifest != pod.manifest => News::Manifest,
            Some(known) if known.reported_status != pod.reported_status => News::Status,
            Some(_) => News::None,
            None => News::Manifest,
        }
    }
}

/// What is to outlive the process.
pub(crate) struct Keeping {
    pub(crate) stores: Stores,
    pub(crate) trouble: Trouble,
    pub(crate) node: String,
}

impl Source<PodKey> for Keeping {
    type Entry = PodEntry;

    fn keys(&self) -> Vec<PodKey> {
        let pods = self.stores.reported.keys().into_iter().map(PodKey::Pod);
        pods.chain([PodKey::Away]).collect()
    }

    fn entry(&self, key: &PodKey) -> Option<PodEntry> {
        match key {
            PodKey::Away => self.trouble.since().map(PodEntry::Away),
            PodKey::Pod(uid) => {
                let pod = self.stores.reported.get(uid)?;
                kept_of(pod, &self.node).map(|pod| PodEntry::Pod(Box::new(pod)))
            }
        }
    }
}

fn kept_of(pod: Pod, node: &str) -> Option<KeptPod> {
    let of = pod.r#ref?;
    let cause = pod.cause.unwrap_or_default();
    Some(KeptPod {
        of: node.to_owned(),
        uid: of.uid,
        namespace: of.namespace,
        name: of.name,
        manifest: pod.manifest,
        status: pod.reported_status,
        cause: KeptCause {
            digest: pod.digest,
            traceparent: cause.traceparent,
            observed_at: from_wire_opt(cause.observed_at.as_ref()),
        },
    })
}

pub(super) fn wire_of(kept: &KeptPod, stale_since: Option<Timestamp>) -> Pod {
    let cause = Cause {
        traceparent: kept.cause.traceparent.clone(),
        observed_at: kept.cause.observed_at.map(to_wire),
        links: Vec::new(),
    };
    let pod = ApiPod {
        uid: kept.uid.clone(),
        namespace: kept.namespace.clone(),
        name: kept.name.clone(),
        digest: kept.cause.digest.clone(),
        manifest: kept.manifest.clone(),
        status: kept.status.clone(),
    };
    Pod {
        stale_since: stale_since.map(to_wire),
        ..convert::api_pod(pod, cause)
    }
}
