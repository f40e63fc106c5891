//! Wire messages to domain types, and back.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, EnvVar};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use polylet_kit::report;
use polylet_model::env;
use polylet_model::ids::PodUid;
use polylet_model::pod::{ContainerKind, Manifest, ManifestParseError};
use polylet_model::probe::{self, ProbeHandler, ProbeKind, ProbeSpec};
use polylet_watch::Update;
use polylet_wire::common::v1::{Cause, PodRef};
use polylet_wire::podconfig::v1 as podconfig;
use polylet_wire::{pleg, prober, time};

use crate::core::metrics::{BUCKET_BOUNDS_MS, ProbeMetrics};
use crate::core::types::{
    ContainerProbes, HttpGet, ObservedChange, ObservedContainer, ObservedPod, PodChange, PodProbes,
    PodSource, ProbeConfig, ProbeId, ProbeOutcome, ProbeResult, ProbeTiming, ResolvedHandler,
};

/// Pod uid, container id and wire value of the kind.
pub type ProbeStatusKey = (String, String, i32);

/// A network probe costs little, least of all one that is refused.
const FIRST_RETRY: Duration = Duration::from_millis(10);
/// A command in a container costs the runtime tens of milliseconds of work.
const FIRST_RETRY_EXEC: Duration = Duration::from_millis(100);

/// A change of the desired pods; `None` when the update carries none. A pod whose manifest cannot be
/// parsed is not probed.
pub fn pod_change(
    source: podconfig::PodSource,
    update: Update<String, podconfig::Pod>,
) -> Option<PodChange> {
    let (uid, probes) = match update {
        Update::Upsert(uid, pod) => {
            let probes = pod_probes(&pod.manifest).unwrap_or_else(|error| {
                tracing::warn!(
                    pod_uid = uid,
                    error = report(&error),
                    "failed to parse pod manifest; not probing it"
                );
                PodProbes::default()
            });
            (uid, Some(probes))
        }
        Update::Remove(uid) => (uid, None),
        Update::Synced | Update::Stale(_) => return None,
    };
    let source = match source {
        podconfig::PodSource::File => PodSource::File,
        podconfig::PodSource::Http => PodSource::Http,
        podconfig::PodSource::Api | podconfig::PodSource::Unspecified => PodSource::Api,
    };
    let uid = PodUid::from(uid);
    Some(PodChange {
        source,
        uid,
        probes,
    })
}

fn pod_probes(manifest: &[u8]) -> Result<PodProbes, ManifestParseError> {
    let manifest = Manifest::from_json(manifest)?;
    let mut containers = Vec::new();
    for (kind, container) in manifest.all_containers() {
        let probes: Vec<_> = probe::specs(kind, container)
            .into_iter()
            .map(|spec| Arc::new(probe_config(spec, kind, container)))
            .collect();
        if !probes.is_empty() {
            containers.push(ContainerProbes {
                name: container.name.as_str().into(),
                probes,
            });
        }
    }
    Ok(PodProbes {
        namespace: manifest.namespace().into(),
        name: manifest.name().into(),
        deleting: manifest.deletion_timestamp().is_some(),
        containers,
    })
}

fn probe_config(spec: ProbeSpec, kind: ContainerKind, container: &Container) -> ProbeConfig {
    let list = match kind {
        ContainerKind::Init | ContainerKind::Sidecar => "initContainers",
        ContainerKind::Regular => "containers",
        ContainerKind::Ephemeral => "ephemeralContainers",
    };
    let first_retry = match spec.handler {
        ProbeHandler::Exec { .. } => FIRST_RETRY_EXEC,
        _ => FIRST_RETRY,
    };
    ProbeConfig {
        field_path: format!("spec.{list}{{{}}}", container.name).into(),
        kind: spec.kind,
        timing: ProbeTiming {
            initial_delay: spec.initial_delay,
            period: spec.period,
            success_threshold: spec.success_threshold,
            failure_threshold: spec.failure_threshold,
            first_retry,
        },
        timeout: spec.timeout,
        handler: resolve(spec.handler, container),
    }
}

fn resolve(handler: ProbeHandler, container: &Container) -> ResolvedHandler {
    let ports = container.ports.as_deref().unwrap_or_default();
    let port_number = |port| {
        probe::port_number(port, ports).ok_or_else(|| ResolvedHandler::Invalid(port_error(port)))
    };
    let resolved = match handler {
        ProbeHandler::Exec { command } => {
            let vars = literal_values(container.env.as_deref().unwrap_or_default());
            let expand = |arg: &String| env::expand(arg, |name| vars.get(name).copied());
            Ok(ResolvedHandler::Exec {
                command: command.iter().map(expand).collect(),
            })
        }
        ProbeHandler::HttpGet {
            host,
            port,
            path,
            https,
            headers,
        } => port_number(&port).map(|port| {
            ResolvedHandler::Http(HttpGet {
                host,
                port,
                path,
                https,
                headers,
            })
        }),
        ProbeHandler::TcpSocket { host, port } => {
            port_number(&port).map(|port| ResolvedHandler::Tcp { host, port })
        }
        ProbeHandler::Grpc { port, service } => u16::try_from(port)
            .map(|port| ResolvedHandler::Grpc { port, service })
            .map_err(|_| ResolvedHandler::Invalid(port_error(&IntOrString::Int(port)))),
    };
    resolved.unwrap_or_else(|invalid| invalid)
}

/// Worded as upstream.
fn port_error(port: &IntOrString) -> String {
    match port {
        IntOrString::Int(number) => format!("invalid port number: {number}"),
        IntOrString::String(name) => format!("port {name} not found"),
    }
}

/// As upstream: a probe's command sees the values in the manifest; a variable with a `valueFrom` is
/// empty.
fn literal_values(vars: &[EnvVar]) -> BTreeMap<&str, &str> {
    vars.iter()
        .map(|var| (var.name.as_str(), var.value.as_deref().unwrap_or_default()))
        .collect()
}

/// A change of the pods in the runtime; `None` when the update carries none. `node_address` is for
/// pods on the host's network, `to_probe_clock` converts a time of the wall clock.
pub fn observed_change(
    update: Update<String, pleg::v1::PodState>,
    node_address: impl FnOnce() -> String,
    to_probe_clock: impl Fn(Timestamp) -> Timestamp,
) -> Option<ObservedChange> {
    match update {
        Update::Upsert(uid, state) => {
            let observed = observed_pod(&state, node_address, to_probe_clock);
            Some(ObservedChange::Upsert(PodUid::from(uid), observed))
        }
        Update::Remove(uid) => Some(ObservedChange::Remove(PodUid::from(uid))),
        Update::Synced => Some(ObservedChange::Synced),
        Update::Stale(_) => None,
    }
}

fn observed_pod(
    state: &pleg::v1::PodState,
    node_address: impl FnOnce() -> String,
    to_probe_clock: impl Fn(Timestamp) -> Timestamp,
) -> ObservedPod {
    let sandbox = state.sandboxes.first();
    let host = match sandbox.and_then(|sandbox| sandbox.ips.first()) {
        Some(ip) => ip.as_str().into(),
        None => node_address().into(),
    };
    let containers = state.containers.iter().map(|container| ObservedContainer {
        id: container.id.as_str().into(),
        name: container.name.clone(),
        attempt: container.attempt,
        running: container.phase() == pleg::v1::ContainerPhase::Running,
        started_at: time::from_wire_opt(container.started_at.as_ref()).map(&to_probe_clock),
    });
    ObservedPod {
        host,
        containers: containers.collect(),
    }
}

fn kind_to_wire(kind: ProbeKind) -> prober::v1::ProbeKind {
    match kind {
        ProbeKind::Startup => prober::v1::ProbeKind::Startup,
        ProbeKind::Liveness => prober::v1::ProbeKind::Liveness,
        ProbeKind::Readiness => prober::v1::ProbeKind::Readiness,
    }
}

/// A result as an item of the state stream.
pub(crate) fn probe_status(
    (id, result): (&ProbeId, &ProbeResult),
) -> (ProbeStatusKey, prober::v1::ProbeStatus) {
    let outcome = match result.outcome {
        ProbeOutcome::Success => prober::v1::Outcome::Success,
        ProbeOutcome::Failure => prober::v1::Outcome::Failure,
    };
    let key = prober::v1::ProbeStatusKey {
        pod_uid: id.pod.to_string(),
        container_id: id.container.to_string(),
        kind: kind_to_wire(id.kind) as i32,
    };
    let since = result.since.map(time::to_wire);
    let store_key = (key.pod_uid.clone(), key.container_id.clone(), key.kind);
    let status = prober::v1::ProbeStatus {
        key: Some(key),
        outcome: outcome as i32,
        run_length: result.run_length,
        message: result.message.clone(),
        since,
        cause: Some(Cause {
            traceparent: result.traceparent.clone(),
            observed_at: since,
            links: Vec::new(),
        }),
    };
    (store_key, status)
}

/// The response to `ListProbeCounts`.
pub(crate) fn counts(metrics: &ProbeMetrics) -> prober::v1::ListProbeCountsResponse {
    let probes = metrics.iter().map(|(uid, container, kind, counter)| {
        let pod = PodRef {
            uid: uid.to_string(),
            namespace: counter.namespace.to_string(),
            name: counter.pod.to_string(),
        };
        prober::v1::ProbeCounts {
            pod: Some(pod),
            container: container.to_owned(),
            kind: kind_to_wire(kind) as i32,
            successful: counter.successful,
            failed: counter.failed,
            unknown: counter.unknown,
            bucket_counts: counter.buckets.to_vec(),
            duration_seconds_sum: counter.duration.as_secs_f64(),
        }
    });
    let bounds = BUCKET_BOUNDS_MS.map(|ms| f64::from(ms) / 1e3);
    prober::v1::ListProbeCountsResponse {
        probes: probes.collect(),
        bucket_bounds: bounds.to_vec(),
    }
}
