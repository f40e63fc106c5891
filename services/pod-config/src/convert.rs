//! From the domain to the wire.

use bytes::Bytes;
use jiff::Timestamp;
use polylet_wire::common::v1::{Cause, PodRef};
use polylet_wire::podconfig::v1::{
    Mirror, Pod, PodSource, Problem, Service, ServicePort, TerminalPhase,
};
use polylet_wire::time::{from_wire_opt, to_wire};

use crate::core::cluster::pod::{self, ApiMirror, ApiPod};
use crate::core::cluster::service::{Port, Reduced};
use crate::core::kept::KeptCause;
use crate::core::{Finding, PodItem, Source};

impl From<Source> for PodSource {
    fn from(source: Source) -> PodSource {
        match source {
            Source::File => PodSource::File,
            Source::Http => PodSource::Http,
        }
    }
}

pub(crate) fn pod(
    item: &PodItem,
    source: Source,
    cause: &KeptCause,
    stale_since: Option<Timestamp>,
) -> Pod {
    Pod {
        r#ref: Some(PodRef {
            uid: item.uid.clone(),
            namespace: item.namespace.clone(),
            name: item.name.clone(),
        }),
        source: PodSource::from(source).into(),
        digest: item.digest.clone(),
        manifest: Bytes::copy_from_slice(item.manifest.as_bytes()),
        cause: Some(Cause {
            traceparent: cause.traceparent.clone(),
            observed_at: cause.observed_at.map(to_wire),
            links: Vec::new(),
        }),
        stale_since: stale_since.map(to_wire),
        reported_status: Bytes::new(),
        terminal_phase: 0,
    }
}

pub(crate) fn kept_cause(cause: &Cause, digest: &str) -> KeptCause {
    KeptCause {
        digest: digest.to_owned(),
        traceparent: cause.traceparent.clone(),
        observed_at: from_wire_opt(cause.observed_at.as_ref()),
    }
}

pub(crate) fn api_pod(pod: ApiPod, cause: Cause) -> Pod {
    let terminal = match pod::phase_in(&pod.status).as_deref() {
        Some("Succeeded") => TerminalPhase::Succeeded,
        Some("Failed") => TerminalPhase::Failed,
        _ => TerminalPhase::Unspecified,
    };
    Pod {
        r#ref: Some(PodRef {
            uid: pod.uid,
            namespace: pod.namespace,
            name: pod.name,
        }),
        source: PodSource::Api.into(),
        digest: pod.digest,
        manifest: pod.manifest,
        cause: Some(cause),
        stale_since: None,
        reported_status: pod.status,
        terminal_phase: terminal.into(),
    }
}

pub(crate) fn mirror(mirror: ApiMirror) -> Mirror {
    Mirror {
        r#ref: Some(PodRef {
            uid: mirror.uid,
            namespace: mirror.namespace,
            name: mirror.name,
        }),
        of: mirror.of,
        deleting: mirror.deleting,
        reported_status: mirror.status.into(),
        owner_node_uid: mirror.owner_node_uid,
    }
}

pub(crate) fn service(service: Reduced) -> Service {
    let port = |port: Port| ServicePort {
        name: port.name,
        protocol: port.protocol,
        port: port.port,
    };
    Service {
        namespace: service.namespace,
        name: service.name,
        cluster_ip: service.cluster_ip,
        ports: service.ports.into_iter().map(port).collect(),
    }
}

pub(crate) fn kept_service(service: Service) -> Reduced {
    let port = |port: ServicePort| Port {
        name: port.name,
        protocol: port.protocol,
        port: port.port,
    };
    Reduced {
        namespace: service.namespace,
        name: service.name,
        cluster_ip: service.cluster_ip,
        ports: service.ports.into_iter().map(port).collect(),
    }
}

pub(crate) fn problem(
    source: impl Into<PodSource>,
    origin: &str,
    finding: &Finding,
    since: Timestamp,
) -> Problem {
    let origin = match finding.place.as_str() {
        "" => origin.to_owned(),
        place => format!("{origin} ({place})"),
    };
    Problem {
        source: i32::from(source.into()),
        origin,
        field: finding.field.clone(),
        message: finding.message.clone(),
        since: Some(to_wire(since)),
    }
}
