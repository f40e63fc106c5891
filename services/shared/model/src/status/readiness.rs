//! `started` and `ready` of containers.

use k8s_openapi::api::core::v1::{Container, ContainerStatus};

use super::{ContainerProbeResult, RuntimeContainer, StatusInputs, lookup, state};
use crate::pod::ContainerKind;
use crate::probe::{self, ProbeKind};

/// Sets `started` and `ready`.
pub(super) fn set(
    facts: &StatusInputs<'_>,
    kind: ContainerKind,
    spec: &Container,
    status: &mut ContainerStatus,
) {
    status.ready = false;
    status.started = None;
    if kind == ContainerKind::Ephemeral {
        return;
    }
    // Not the newest one while that is still being started.
    let is_of_status = |container: &&RuntimeContainer| {
        status.container_id == Some(state::container_id(facts, container))
    };
    let running = state::is_running(status)
        .then(|| lookup::by_name(facts, &spec.name).find(is_of_status))
        .flatten();
    let started = running.is_some_and(|container| started(facts, kind, spec, container));
    status.started = Some(started);
    status.ready = match (kind, running) {
        (ContainerKind::Init, _) => {
            state::termination(status).is_some_and(|end| end.exit_code == 0)
        }
        (_, Some(container)) => {
            started
                && (probe::spec(kind, spec, ProbeKind::Readiness).is_none()
                    || is_ready(facts, kind, spec, container))
        }
        (_, None) => false,
    };
}

/// The result of the readiness probe. Before there is one, a container that was published as ready,
/// perhaps by another agent, stays ready.
fn is_ready(
    facts: &StatusInputs<'_>,
    kind: ContainerKind,
    spec: &Container,
    container: &RuntimeContainer,
) -> bool {
    if let Some(result) = probe_result(facts, container, ProbeKind::Readiness) {
        return result.success;
    }
    same_container_status(facts, kind, spec, container).is_some_and(|old| old.ready)
}

/// The previous status, if it is of the same container.
fn same_container_status<'a>(
    facts: &'a StatusInputs<'_>,
    kind: ContainerKind,
    spec: &Container,
    container: &RuntimeContainer,
) -> Option<&'a ContainerStatus> {
    let id = state::container_id(facts, container);
    lookup::previous_status(facts, kind, &spec.name)
        .filter(|old| old.container_id.as_ref() == Some(&id))
}

/// The result of a container's probe, if there is one.
pub(super) fn probe_result<'a>(
    facts: &'a StatusInputs<'_>,
    container: &RuntimeContainer,
    kind: ProbeKind,
) -> Option<&'a ContainerProbeResult> {
    facts
        .probe_results
        .iter()
        .find(|result| result.kind == kind && result.container_id == container.id)
}

/// Whether a container has started: without a startup probe it has. Before the probe has a result, a
/// container that was published as started stays started.
pub(super) fn started(
    facts: &StatusInputs<'_>,
    kind: ContainerKind,
    spec: &Container,
    container: &RuntimeContainer,
) -> bool {
    if probe::spec(kind, spec, ProbeKind::Startup).is_none() {
        return true;
    }
    if let Some(result) = probe_result(facts, container, ProbeKind::Startup) {
        return result.success;
    }
    same_container_status(facts, kind, spec, container).is_some_and(|old| old.started == Some(true))
}
