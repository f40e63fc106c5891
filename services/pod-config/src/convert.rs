//! Conversion between the domain and the wire.

use jiff::Timestamp;
use polylet_wire::common::v1::{Cause, PodRef};
use polylet_wire::podconfig::v1::{
    ManifestError, MirrorPod, Pod, PodSource, Service, ServicePort, TerminalPhase,
};
use polylet_wire::time::{from_wire_opt, to_wire};

use crate::core::cluster::pod::{self, ApiMirrorPod, ApiPod};
use crate::core::cluster::service::{ServicePortSummary, ServiceSummary};
use crate::core::state::PersistedCause;
use crate::core::{StaticPod, StaticPodSource, field};

impl From<StaticPodSource> for PodSource {
    fn from(source: StaticPodSource) -> PodSource {
        match source {
            StaticPodSource::File => PodSource::File,
            StaticPodSource::Http => PodSource::Http,
        }
    }
}

pub(crate) fn pod(
    pod: &StaticPod,
    source: StaticPodSource,
    cause: &PersistedCause,
    stale_since: Option<Timestamp>,
) -> Pod {
    Pod {
        r#ref: Some(PodRef {
            uid: pod.uid.clone(),
            namespace: pod.namespace.clone(),
            name: pod.name.clone(),
        }),
        source: PodSource::from(source).into(),
        digest: pod.digest.clone(),
        manifest: pod.manifest.clone(),
        cause: Some(Cause {
            traceparent: cause.traceparent.clone(),
            observed_at: cause.observed_at.map(to_wire),
            links: Vec::new(),
        }),
        stale_since: stale_since.map(to_wire),
        removed_at: pod.removed_at.map(to_wire),
        ..Pod::default()
    }
}

pub(crate) fn persisted_cause(cause: &Cause, digest: &str) -> PersistedCause {
    PersistedCause {
        digest: digest.to_owned(),
        traceparent: cause.traceparent.clone(),
        observed_at: from_wire_opt(cause.observed_at.as_ref()),
        removed_at: None,
    }
}

pub(crate) fn api_pod(pod: ApiPod, cause: Cause) -> Pod {
    let terminal_phase = match pod::parse_phase(&pod.status).as_deref() {
        Some("Succeeded") => TerminalPhase::Succeeded,
        Some("Failed") => TerminalPhase::Failed,
        _ => TerminalPhase::Unspecified,
    };
    let start_time = pod::parse_start_time(&pod.status).map(to_wire);
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
        terminal_phase: terminal_phase.into(),
        start_time,
        removed_at: None,
    }
}

pub(crate) fn mirror_pod(mirror: ApiMirrorPod) -> MirrorPod {
    MirrorPod {
        r#ref: Some(PodRef {
            uid: mirror.uid,
            namespace: mirror.namespace,
            name: mirror.name,
        }),
        source_pod_uid: mirror.source_pod_uid,
        deleting: mirror.deleting,
        reported_status: mirror.status,
        owner_node_uid: mirror.owner_node_uid,
    }
}

pub(crate) fn service(service: ServiceSummary) -> Service {
    let port = |port: ServicePortSummary| ServicePort {
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

pub(crate) fn service_summary(service: Service) -> ServiceSummary {
    let port = |port: ServicePort| ServicePortSummary {
        name: port.name,
        protocol: port.protocol,
        port: port.port,
    };
    ServiceSummary {
        namespace: service.namespace,
        name: service.name,
        cluster_ip: service.cluster_ip,
        ports: service.ports.into_iter().map(port).collect(),
    }
}

pub(crate) fn manifest_error(
    source: impl Into<PodSource>,
    origin: &str,
    error: &field::Error,
    since: Timestamp,
) -> ManifestError {
    let origin = match error.location.as_str() {
        "" => origin.to_owned(),
        location => format!("{origin} ({location})"),
    };
    ManifestError {
        source: i32::from(source.into()),
        origin,
        field: error.field.clone(),
        message: error.message.clone(),
        since: Some(to_wire(since)),
    }
}
