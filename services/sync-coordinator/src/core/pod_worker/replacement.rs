//! Whether a container gets a successor. One that is stopped to be replaced gets it whatever its exit code: upstream
//! starts it in the same synchronization, and publishes no status in between. After any other stop the exit code
//! decides, by rules and policy, as after an exit without one.

use polylet_model::ContainerKind;
use polylet_model::constants::reason;

use super::restart;
use crate::core::plan::Plan;
use crate::core::pod_spec::{ContainerSpecView, PodSpecView};
use crate::core::runtime_state::{ContainerRecord, ContainerState};
use crate::core::step::StepKey;
use crate::core::view::View;

/// Whether a container that is not running is to be started.
pub fn should_restart(
    view: &View<'_>,
    pod: &PodSpecView,
    spec: &ContainerSpecView,
    container: Option<&ContainerRecord>,
) -> bool {
    let Some(container) = container else {
        return true;
    };
    match container.state {
        ContainerState::Running => false,
        ContainerState::Created => true,
        ContainerState::Unknown => spec.kind != ContainerKind::Ephemeral,
        ContainerState::Exited if container.aborted => true,
        ContainerState::Exited if is_pending(view, spec, container) => true,
        // The OOM killer ended one of its processes, and the container exited with zero.
        ContainerState::Exited
            if spec.kind == ContainerKind::Init
                && container.exit_code == 0
                && container.reason == "OOMKilled" =>
        {
            restart::after_exit(pod, spec, restart::EXIT_CODE_KILLED)
        }
        ContainerState::Exited => restart::after_exit(pod, spec, container.exit_code),
    }
}

/// Whether a regular container has exited and is not started again, not even in another sandbox.
pub fn has_completed_for_good(
    view: &View<'_>,
    pod: &PodSpecView,
    spec: &ContainerSpecView,
    container: &ContainerRecord,
) -> bool {
    spec.kind == ContainerKind::Regular
        && container.state == ContainerState::Exited
        && !should_restart(view, pod, spec, Some(container))
}

/// Publishes that a container is stopped to be replaced.
pub fn report_stop(spec: &ContainerSpecView, container: &ContainerRecord, plan: &mut Plan) {
    plan.set_waiting(&spec.name, reason::REPLACEMENT, &container.id, None);
}

/// Publishes that a container was stopped to be replaced: until its successor runs, and beyond that, as
/// those who publish its status may hear of the successor later.
pub fn report_replaced(view: &View<'_>, spec: &ContainerSpecView, plan: &mut Plan) {
    let records = view.observed().containers.iter();
    let of_name = records.filter(|record| record.name == spec.name);
    let Some(newest) = of_name.clone().max_by_key(|record| record.attempt) else {
        return;
    };
    if newest.state == ContainerState::Created && spec.post_start.is_some() {
        // Its hook is the reason then.
        return;
    }
    let exited = of_name.filter(|record| record.state == ContainerState::Exited);
    let Some(last) = exited.max_by_key(|record| record.attempt) else {
        return;
    };
    let is_replaced = match newest.state {
        ContainerState::Running => restart::was_killed_for_restart(view, &last.id),
        _ => is_pending(view, spec, last),
    };
    if is_replaced {
        plan.set_waiting(&spec.name, reason::REPLACEMENT, &last.id, None);
    }
}

/// Publishes which regular containers are replaced together with their lost sandbox: before the stop, as an
/// exit may be reported ahead of the next plan, and until the new sandbox is ready.
pub fn report_with_sandbox(view: &View<'_>, pod: &PodSpecView, plan: &mut Plan) {
    for spec in pod.containers_of_kind(ContainerKind::Regular) {
        match view.observed().newest_container(&spec.name) {
            Some(running) if running.may_run() => {
                if restarts_with_sandbox(view, pod, running) {
                    report_stop(spec, running, plan);
                }
            }
            _ => report_replaced(view, spec, plan),
        }
    }
}

/// Publishes which regular containers are replaced after the init containers that run again in a new
/// sandbox. That may take long, so it is limited to those whose exit would be final by their policy:
/// the API server would refuse every status with their successor.
pub fn report_during_init(view: &View<'_>, pod: &PodSpecView, plan: &mut Plan) {
    for spec in pod.containers_of_kind(ContainerKind::Regular) {
        let last = view.observed().newest_container(&spec.name);
        let exited = last.filter(|last| last.state == ContainerState::Exited);
        if exited.is_some_and(|exited| !restart::after_exit(pod, spec, exited.exit_code)) {
            report_replaced(view, spec, plan);
        }
    }
}

/// Whether an exited container was stopped for a restart that is still to follow. If its successor must
/// wait for the back-off, or a step of its start fails, the exit counts as any other: upstream then ends
/// the synchronization, and the next one knows nothing of the stop.
pub fn is_pending(view: &View<'_>, spec: &ContainerSpecView, exited: &ContainerRecord) -> bool {
    restart::was_killed_for_restart(view, &exited.id)
        && !is_delayed(view, spec, exited)
        && !has_start_failed(view, spec, exited)
}

fn is_delayed(view: &View<'_>, spec: &ContainerSpecView, exited: &ContainerRecord) -> bool {
    let next = restart::next_attempt(view, spec);
    let times = next.not_before.zip(exited.finished_at);
    times.is_some_and(|(not_before, finished_at)| not_before > finished_at)
}

/// Whether a container that is killed with its lost sandbox gets a successor: always with another spec, else if
/// its policy restarts it. What an earlier stop has decided remains.
pub fn restarts_with_sandbox(
    view: &View<'_>,
    pod: &PodSpecView,
    container: &ContainerRecord,
) -> bool {
    if let Some(stop) = view.pod.lifecycle.stops.get(&container.id) {
        return stop.restart;
    }
    pod.container(&container.name)
        .is_some_and(|spec| container.hash != spec.hash || restart::after_kill(pod, spec))
}

/// Whether a step of the successor's start has failed since the exit.
fn has_start_failed(view: &View<'_>, spec: &ContainerSpecView, exited: &ContainerRecord) -> bool {
    let steps = [
        StepKey::PullImage(spec.name.clone()),
        StepKey::PrepareDevices(spec.name.clone()),
        StepKey::PrepareSubPaths(spec.name.clone()),
        StepKey::CreateContainer(spec.name.clone()),
        StepKey::StartContainer(spec.name.clone()),
    ];
    let failures = &view.pod.failures;
    let mut failures = steps.iter().filter_map(|key| failures.get(key));
    failures.any(|failure| Some(failure.last_failed_at) >= exited.finished_at)
}
