//! `Killing` events: upstream's message tells why a container is killed.

use polylet_model::ContainerKind;

use super::{PodEvent, field_path};
use crate::core::plan::{Plan, SyncPhase};
use crate::core::pod_spec::PodSpecView;
use crate::core::pod_worker::{replacement, restart, restart_all_containers};
use crate::core::resize;
use crate::core::runtime_state::{ContainerRecord, ContainerState};
use crate::core::view::{PostStartState, View};

/// Events of kills that begin with this plan.
pub(super) fn killing(
    view: &View<'_>,
    spec: &PodSpecView,
    plan: &Plan,
    events: &mut Vec<PodEvent>,
) {
    for (id, _) in &plan.stops {
        let Some(container) = view.observed().container(id) else {
            continue;
        };
        if view.pod.lifecycle.stops.contains_key(id) {
            continue;
        }
        let is_syncing = plan.phase == SyncPhase::Syncing;
        let message = is_syncing
            .then(|| kill_message(view, spec, container))
            .flatten();
        let message = message.unwrap_or_else(|| format!("Stopping container {}", container.name));
        let path = field_path(&spec.manifest, &container.name);
        events.push(PodEvent::normal("Killing", message).in_container(&path));
    }
}

/// Why a container of a pod that keeps running is killed.
fn kill_message(view: &View<'_>, pod: &PodSpecView, container: &ContainerRecord) -> Option<String> {
    let name = &container.name;
    let spec = pod.container(name)?;
    let post_start = view.pod.lifecycle.post_starts.get(&container.id);
    if let Some(PostStartState::Failed { .. }) = post_start {
        return Some("FailedPostStartHook".to_owned());
    }
    if restart_all_containers::is_in_progress(view, pod) {
        return Some("killing".to_owned());
    }
    let is_init = matches!(spec.kind, ContainerKind::Init | ContainerKind::Sidecar);
    let subject = if is_init {
        "Init container"
    } else {
        "Container"
    };
    if container.state == ContainerState::Unknown {
        return Some(format!(
            "{subject} is in \"unknown\" state, try killing it before restart"
        ));
    }
    let spec_changed = !container.hash.is_empty() && container.hash != spec.hash;
    let (cause, restarts) = match view.pod.probe_failures.get(&container.id) {
        _ if spec_changed => ("definition changed", true),
        Some(failure) => {
            let restarts = restart::after_kill(pod, spec);
            if !restarts && !keeps_running(view, pod) {
                return None;
            }
            let cause = if failure.startup {
                "failed startup probe"
            } else {
                "failed liveness probe"
            };
            (cause, restarts)
        }
        // The same message for every kind of container.
        None if resize::requires_restart(view, spec, container) => {
            return Some(format!("Container {name} resize requires restart"));
        }
        None => return None,
    };
    // Upstream adds this for regular containers only.
    let suffix = if restarts && !is_init {
        ", will be restarted"
    } else {
        ""
    };
    Some(format!("{subject} {name} {cause}{suffix}"))
}

/// Whether any regular container keeps running or restarts. Without one the pod terminates, and
/// upstream's message does not mention probes.
fn keeps_running(view: &View<'_>, pod: &PodSpecView) -> bool {
    pod.containers_of_kind(ContainerKind::Regular).any(|spec| {
        let newest = view.observed().newest_container(&spec.name);
        match newest {
            Some(newest) if newest.may_run() => {
                !view.pod.probe_failures.contains_key(&newest.id) || restart::after_kill(pod, spec)
            }
            _ => replacement::should_restart(view, pod, spec, newest),
        }
    })
}
