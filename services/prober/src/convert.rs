//! Wire messages to domain types, and back.

mod observed;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, EnvVar};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use polylet_kit::report;
use polylet_model::env;
use polylet_model::ids::PodUid;
use polylet_model::pod::{ContainerKind, Manifest, ManifestParseError};
use polylet_model::probe::{self, ProbeHandler, ProbeKind, ProbeSpec};
use polylet_watch::{ProbeItemKey, Update};
use polylet_wire::common::v1::{Cause, PodRef};
use polylet_wire::podconfig::v1 as podconfig;
use polylet_wire::{prober, time};

use crate::core::metrics::{BUCKET_BOUNDS_MS, ProbeMetrics};
use crate::core::types::{
    ContainerProbes, HttpGet, PodChange, PodProbes, PodSource, ProbeConfig, ProbeId, ProbeOutcome,
    ProbeResult, ProbeTiming, ResolvedHandler,
};
pub use observed::observed_change;

/// A network probe costs little, least of all one that is refused.
const FIRST_RETRY: Duration = Duration::from_millis(10);
/// A command in a container costs the runtime tens of milliseconds of work.
const FIRST_RETRY_EXEC: Duration = Duration::from_millis(100);

/// The most bytes of the commands of all probes of a pod, expanded: what Linux usually allows for one
/// program (a quarter of the stack limit of 8 MiB). They are kept as long as the pod.
const MAX_COMMAND_BYTES: usize = 2 << 20;

/// A change of the desired pods; `None` when the update carries none. A pod whose manifest cannot be
/// parsed is not probed.
pub fn pod_change(
    source: podconfig::PodSource,
    update: Update<PodUid, podconfig::Pod>,
) -> Option<PodChange> {
    let (uid, probes) = match update {
        Update::Upsert(uid, pod) => {
            let probes = pod_probes(&pod.manifest).unwrap_or_else(|error| {
                tracing::warn!(
                    pod_uid = uid.as_str(),
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
    Some(PodChange {
        source,
        uid,
        probes,
    })
}

fn pod_probes(manifest: &[u8]) -> Result<PodProbes, ManifestParseError> {
    let manifest = Manifest::from_json(manifest)?;
    let mut containers = Vec::new();
    let mut command_bytes = MAX_COMMAND_BYTES;
    for (kind, container) in manifest.all_containers() {
        let probes: Vec<_> = probe::specs(kind, container)
            .into_iter()
            .map(|spec| Arc::new(probe_config(spec, kind, container, &mut command_bytes)))
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

fn probe_config(
    spec: ProbeSpec,
    kind: ContainerKind,
    container: &Container,
    command_bytes: &mut usize,
) -> ProbeConfig {
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
        handler: resolve(spec.handler, container, command_bytes),
    }
}

fn resolve(
    handler: ProbeHandler,
    container: &Container,
    command_bytes: &mut usize,
) -> ResolvedHandler {
    let ports = container.ports.as_deref().unwrap_or_default();
    let port_number = |port| {
        probe::port_number(port, ports).ok_or_else(|| ResolvedHandler::Invalid(port_error(port)))
    };
    let resolved = match handler {
        ProbeHandler::Exec { command } => {
            let vars = literal_values(container.env.as_deref().unwrap_or_default());
            expand(&command, &vars, command_bytes)
                .map(|command| ResolvedHandler::Exec { command })
                .map_err(ResolvedHandler::Invalid)
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

/// Expands a command, and takes its bytes from those that are left.
fn expand(
    command: &[String],
    vars: &BTreeMap<&str, &str>,
    command_bytes: &mut usize,
) -> Result<Vec<String>, String> {
    let mut expanded = Vec::with_capacity(command.len());
    for arg in command {
        let lookup = |name: &str| vars.get(name).map(|value| value.as_bytes());
        let arg = env::expand(arg, *command_bytes, lookup).map_err(|_| {
            format!("the expanded commands of the pod's probes exceed {MAX_COMMAND_BYTES} bytes")
        })?;
        *command_bytes -= arg.len();
        // Made of texts at the boundaries of their characters.
        expanded.push(String::from_utf8_lossy(&arg).into_owned());
    }
    Ok(expanded)
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

fn kind_to_wire(kind: ProbeKind) -> prober::v1::ProbeKind {
    match kind {
        ProbeKind::Startup => prober::v1::ProbeKind::Startup,
        ProbeKind::Liveness => prober::v1::ProbeKind::Liveness,
        ProbeKind::Readiness => prober::v1::ProbeKind::Readiness,
    }
}

/// The key of a probe's result in the state stream.
pub(crate) fn probe_item_key(id: &ProbeId) -> ProbeItemKey {
    let kind = kind_to_wire(id.kind) as i32;
    (id.pod.clone(), id.container.to_string(), kind)
}

/// A result as an item of the state stream.
pub(crate) fn probe_status(
    (id, result): (&ProbeId, &ProbeResult),
) -> (ProbeItemKey, prober::v1::ProbeStatus) {
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
    (probe_item_key(id), status)
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
            // As upstream, which never counts one.
            unknown: 0,
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

#[cfg(test)]
mod tests {
    use super::*;

    fn handlers(probes: &PodProbes) -> Vec<&ResolvedHandler> {
        let probes = probes.containers.iter().flat_map(|c| &c.probes);
        probes.map(|probe| &probe.handler).collect()
    }

    /// A command of 100 KB in the manifest that would have 10 GB.
    #[test]
    fn expanded_commands_are_bounded() {
        let pod = |references: usize| {
            let probe = serde_json::json!({"exec": {"command": ["a", "$(A)".repeat(references)]}});
            let container = serde_json::json!({
                "name": "c",
                "image": "i",
                "env": [{"name": "A", "value": "x".repeat(100_000)}],
                "livenessProbe": probe,
                "readinessProbe": probe,
            });
            let pod = serde_json::json!({
                "metadata": {"name": "p", "namespace": "n", "uid": "u"},
                "spec": {"containers": [container]},
            });
            pod_probes(pod.to_string().as_bytes()).unwrap()
        };
        let message = "the expanded commands of the pod's probes exceed 2097152 bytes";
        let is_exec = |handler: &ResolvedHandler| match handler {
            ResolvedHandler::Exec { .. } => true,
            ResolvedHandler::Invalid(reason) => {
                assert_eq!(reason, message);
                false
            }
            other => panic!("{other:?}"),
        };
        let valid = |references| {
            let pod = pod(references);
            let valid = handlers(&pod)
                .into_iter()
                .filter(|handler| is_exec(handler));
            valid.count()
        };
        assert_eq!((valid(10), valid(15), valid(25_000)), (2, 1, 0));
    }
}
