//! Pods as they are kept, and back.

use jiff::Timestamp;
use polylet_wire::common::v1::Cause;
use polylet_wire::podconfig::v1::Pod;
use polylet_wire::time::{from_wire_opt, to_wire};

use crate::convert;
use crate::core::cluster::kept::KeptPod;
use crate::core::cluster::pod::ApiPod;
use crate::core::kept::KeptCause;

pub(super) fn kept_of(pod: Pod) -> Option<KeptPod> {
    let of = pod.r#ref?;
    let cause = pod.cause.unwrap_or_default();
    Some(KeptPod {
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
