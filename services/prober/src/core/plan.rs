//! Which probes of a pod must run.

use std::sync::Arc;

use jiff::Timestamp;
use polylet_model::ids::{ContainerId, PodUid};
use polylet_model::probe::ProbeKind;

use super::types::{Observed, PodProbes, Probe, ProbeId};

/// A probe that must run.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Wanted {
    pub(crate) id: ProbeId,
    pub(crate) probe: Arc<Probe>,
    pub(crate) container: Arc<str>,
    pub(crate) attempt: u32,
    pub(crate) started_at: Timestamp,
}

/// The probes of a pod's running containers. Of a pod that is `gone` from the node's pods, or being
/// deleted, readiness alone goes on: nothing of it is restarted any more.
pub(crate) fn wanted(
    uid: &PodUid,
    pod: &PodProbes,
    gone: bool,
    observed: &Observed,
    now: Timestamp,
) -> Vec<Wanted> {
    let leaving = gone || pod.deleting;
    let mut all = Vec::new();
    for spec in &pod.containers {
        // The first of its name is the newest; older ones are remains.
        let Some(container) = observed.containers.iter().find(|c| *c.name == *spec.name) else {
            continue;
        };
        if !container.running {
            continue;
        }
        for probe in &spec.probes {
            if leaving && probe.kind != ProbeKind::Readiness {
                continue;
            }
            all.push(Wanted {
                id: id_of(uid, &container.id, probe.kind),
                probe: Arc::clone(probe),
                container: spec.name.clone(),
                attempt: container.attempt,
                started_at: container.started_at.unwrap_or(now),
            });
        }
    }
    all
}

/// Whether a container has a startup probe, which holds its other probes back.
pub(crate) fn has_startup(pod: &PodProbes, container: &str) -> bool {
    let mut probes = pod
        .containers
        .iter()
        .filter(|c| *c.name == *container)
        .flat_map(|c| &c.probes);
    probes.any(|probe| probe.kind == ProbeKind::Startup)
}

pub(crate) fn id_of(pod: &PodUid, container: &ContainerId, kind: ProbeKind) -> ProbeId {
    ProbeId {
        pod: pod.clone(),
        container: container.clone(),
        kind,
    }
}
