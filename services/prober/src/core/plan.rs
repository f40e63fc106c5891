//! Which probes of a pod run.

use std::sync::Arc;

use jiff::Timestamp;
use polylet_model::ids::{ContainerId, PodUid};
use polylet_model::probe::ProbeKind;

use super::types::{ObservedPod, PodProbes, ProbeConfig, ProbeId};

/// A probe that should run.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct DesiredProbe {
    pub(crate) id: ProbeId,
    pub(crate) probe: Arc<ProbeConfig>,
    pub(crate) container: Arc<str>,
    pub(crate) attempt: u32,
    pub(crate) started_at: Timestamp,
}

/// The probes of a pod's running containers. Of a pod that was `removed` from its source, or is being
/// deleted, only readiness is probed: its containers are not restarted any more. A probe that connects to
/// the pod's address does not run before that is known: it would fail, or reach something else.
pub(crate) fn desired_probes(
    uid: &PodUid,
    pod: &PodProbes,
    removed: bool,
    observed: &ObservedPod,
    now: Timestamp,
) -> Vec<DesiredProbe> {
    let terminating = removed || pod.deleting;
    let mut desired = Vec::new();
    for spec in &pod.containers {
        // The first of a name is the newest one.
        let Some(container) = observed.containers.iter().find(|c| *c.name == *spec.name) else {
            continue;
        };
        if !container.running {
            continue;
        }
        for probe in &spec.probes {
            if terminating && probe.kind != ProbeKind::Readiness {
                continue;
            }
            if observed.host.is_none() && probe.handler.uses_pod_address() {
                continue;
            }
            desired.push(DesiredProbe {
                id: probe_id(uid, &container.id, probe.kind),
                probe: Arc::clone(probe),
                container: spec.name.clone(),
                attempt: container.attempt,
                started_at: container.started_at.unwrap_or(now),
            });
        }
    }
    desired
}

/// Whether a container has a startup probe, which delays its other probes.
pub(crate) fn has_startup_probe(pod: &PodProbes, container: &str) -> bool {
    let mut probes = pod
        .containers
        .iter()
        .filter(|c| *c.name == *container)
        .flat_map(|c| &c.probes);
    probes.any(|probe| probe.kind == ProbeKind::Startup)
}

pub(crate) fn probe_id(pod: &PodUid, container: &ContainerId, kind: ProbeKind) -> ProbeId {
    ProbeId {
        pod: pod.clone(),
        container: container.clone(),
        kind,
    }
}
