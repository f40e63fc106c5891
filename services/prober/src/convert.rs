//! Wire to domain, and back.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, EnvVar};
use polylet_model::env;
use polylet_model::pod::{ContainerKind, Manifest, ManifestError};
use polylet_model::probe::{self, Action, ProbeKind, ProbeSpec};
use polylet_wire::common::v1::{Cause, PodRef};
use polylet_wire::{pleg, prober, time};

use crate::core::tally::{self, Tallies};
use crate::core::types::{
    Ask, ContainerProbes, HttpAsk, Judged, Observed, ObservedContainer, Outcome, PodProbes, Probe,
    ProbeId, Timing,
};

/// An attempt over the network costs next to nothing, least of all a refused connection.
const FIRST_RETRY: Duration = Duration::from_millis(10);
/// A command in a container costs the runtime tens of milliseconds of work.
const FIRST_RETRY_EXEC: Duration = Duration::from_millis(100);

/// What the prober needs of a pod's manifest.
pub(crate) fn pod_probes(manifest: &[u8]) -> Result<PodProbes, ManifestError> {
    let manifest = Manifest::from_json(manifest)?;
    let mut containers = Vec::new();
    for (part, container) in manifest.all_containers() {
        let probes: Vec<_> = probe::all(part, container)
            .into_iter()
            .map(|spec| Arc::new(to_probe(spec, part, container)))
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

fn to_probe(spec: ProbeSpec, kind: ContainerKind, container: &Container) -> Probe {
    let list = match kind {
        ContainerKind::Init | ContainerKind::Sidecar => "initContainers",
        ContainerKind::Regular => "containers",
        ContainerKind::Ephemeral => "ephemeralContainers",
    };
    let first_retry = match spec.action {
        Action::Exec { .. } => FIRST_RETRY_EXEC,
        _ => FIRST_RETRY,
    };
    Probe {
        part: format!("spec.{list}{{{}}}", container.name).into(),
        kind: spec.kind,
        timing: Timing {
            initial_delay: spec.initial_delay,
            period: spec.period,
            success_threshold: spec.success_threshold,
            failure_threshold: spec.failure_threshold,
            first_retry,
        },
        timeout: spec.timeout,
        ask: to_ask(spec.action, container),
    }
}

fn to_ask(action: Action, container: &Container) -> Ask {
    let ports = container.ports.as_deref().unwrap_or_default();
    let port_of = |port| {
        probe::port_number(port, ports)
            .ok_or_else(|| Ask::Impossible(format!("there is no port {port:?}")))
    };
    let ask = match action {
        Action::Exec { command } => {
            let vars = literal(container.env.as_deref().unwrap_or_default());
            let expand = |word: &String| env::expand(word, |name| vars.get(name).copied());
            Ok(Ask::Exec {
                command: command.iter().map(expand).collect(),
            })
        }
        Action::HttpGet {
            host,
            port,
            path,
            https,
            headers,
        } => port_of(&port).map(|port| {
            Ask::Http(HttpAsk {
                host,
                port,
                path,
                https,
                headers,
            })
        }),
        Action::TcpSocket { host, port } => port_of(&port).map(|port| Ask::Tcp { host, port }),
        Action::Grpc { port, service } => u16::try_from(port)
            .map(|port| Ask::Grpc { port, service })
            .map_err(|_| Ask::Impossible(format!("there is no port {port}"))),
    };
    ask.unwrap_or_else(|impossible| impossible)
}

/// As upstream: a probe's command sees the values that stand in the manifest; a variable whose value
/// comes from elsewhere is empty.
fn literal(vars: &[EnvVar]) -> BTreeMap<&str, &str> {
    vars.iter()
        .map(|var| (var.name.as_str(), var.value.as_deref().unwrap_or_default()))
        .collect()
}

/// What the prober needs of what the runtime holds. `node` gives the address of the host's network,
/// `own` a moment of the node's clock on the prober's.
pub(crate) fn observed(
    state: &pleg::v1::PodState,
    node: impl FnOnce() -> String,
    own: impl Fn(Timestamp) -> Timestamp,
) -> Observed {
    let sandbox = state.sandboxes.first();
    let host = match sandbox.and_then(|sandbox| sandbox.ips.first()) {
        Some(ip) => ip.as_str().into(),
        None => node().into(),
    };
    let containers = state.containers.iter().map(|container| ObservedContainer {
        id: container.id.as_str().into(),
        name: container.name.clone(),
        attempt: container.attempt,
        running: container.phase() == pleg::v1::ContainerPhase::Running,
        started_at: time::from_wire_opt(container.started_at.as_ref()).map(&own),
    });
    Observed {
        host,
        containers: containers.collect(),
    }
}

/// A probe's kind on the wire.
pub(crate) fn kind_to_wire(kind: ProbeKind) -> prober::v1::ProbeKind {
    match kind {
        ProbeKind::Startup => prober::v1::ProbeKind::Startup,
        ProbeKind::Liveness => prober::v1::ProbeKind::Liveness,
        ProbeKind::Readiness => prober::v1::ProbeKind::Readiness,
    }
}

/// A probe's kind off the wire.
pub(crate) fn kind_from_wire(kind: i32) -> Option<ProbeKind> {
    match prober::v1::ProbeKind::try_from(kind).ok()? {
        prober::v1::ProbeKind::Unspecified => None,
        prober::v1::ProbeKind::Startup => Some(ProbeKind::Startup),
        prober::v1::ProbeKind::Liveness => Some(ProbeKind::Liveness),
        prober::v1::ProbeKind::Readiness => Some(ProbeKind::Readiness),
    }
}

/// The key of a verdict in the store.
pub(crate) fn key_of(id: &ProbeId) -> (String, String, i32) {
    (
        id.pod.to_string(),
        id.container.to_string(),
        kind_to_wire(id.kind) as i32,
    )
}

/// A verdict that was just reached.
pub(crate) fn verdict(id: &ProbeId, judged: Judged, cause: Cause) -> prober::v1::Verdict {
    let outcome = match judged.outcome {
        Outcome::Success => prober::v1::Outcome::Success,
        Outcome::Failure => prober::v1::Outcome::Failure,
    };
    let (pod_uid, container_id, kind) = key_of(id);
    prober::v1::Verdict {
        key: Some(prober::v1::VerdictKey {
            pod_uid,
            container_id,
            kind,
        }),
        outcome: outcome as i32,
        run_length: judged.run_length,
        message: judged.message,
        // One moment for both: a verdict off the disk must equal the one that was told.
        since: cause.observed_at,
        cause: Some(cause),
    }
}

/// All counts of attempts.
pub(crate) fn counts(tallies: &Tallies) -> prober::v1::ListProbeCountsResponse {
    let probes = tallies.all().map(|(uid, container, kind, tally)| {
        let pod = PodRef {
            uid: uid.to_string(),
            namespace: tally.namespace.to_string(),
            name: tally.pod.to_string(),
        };
        prober::v1::ProbeCounts {
            pod: Some(pod),
            container: container.to_owned(),
            kind: kind_to_wire(kind) as i32,
            successful: tally.successful,
            failed: tally.failed,
            unknown: tally.unknown,
            classes: tally.classes.to_vec(),
            seconds: tally.time.as_secs_f64(),
        }
    });
    let bounds = tally::BOUNDS.map(|ms| f64::from(ms) / 1e3);
    prober::v1::ListProbeCountsResponse {
        probes: probes.collect(),
        bounds: bounds.to_vec(),
    }
}
