//! Events of in-place resizes.

use k8s_openapi::api::core::v1::{Container, ResourceRequirements};
use polylet_model::Manifest;
use polylet_model::constants::condition_reason;
use serde::Serialize;

use super::PodEvent;
use crate::core::admission;
use crate::core::plan::{Plan, ResizeDecision, SyncPhase};
use crate::core::pod_spec::PodSpecView;
use crate::core::step::{Step, StepKey};
use crate::core::view::View;

pub(super) fn resize(
    view: &View<'_>,
    spec: &PodSpecView,
    before: &Plan,
    plan: &Plan,
    events: &mut Vec<PodEvent>,
) {
    let manifest = &spec.manifest;
    let generation = manifest.generation().unwrap_or_default();
    pending(view, spec, before, plan, events);
    let accepts = plan
        .steps
        .iter()
        .any(|step| matches!(step, Step::CheckpointAllocation { .. }));
    if accepts && !view.pod.failures.contains_key(&StepKey::Checkpoint) {
        let message = summary(manifest, "Pod resize started", generation, "");
        events.push(PodEvent::normal("ResizeStarted", message));
    }
    let previous_error = before.resize_progress.as_ref().map(|r| &r.error);
    match (&before.resize_progress, &plan.resize_progress) {
        (Some(completed), None) if view.pod.checkpoint.termination.is_none() => {
            let generation = completed.generation;
            let message = summary(manifest, "Pod resize completed", generation, "");
            events.push(PodEvent::normal("ResizeCompleted", message));
        }
        (_, Some(progress))
            if !progress.error.is_empty() && previous_error != Some(&progress.error) =>
        {
            let generation = progress.generation;
            let message = summary(manifest, "Pod resize error", generation, &progress.error);
            events.push(PodEvent::warning("ResizeError", message));
        }
        _ => {}
    }
}

fn pending(
    view: &View<'_>,
    spec: &PodSpecView,
    before: &Plan,
    plan: &Plan,
    events: &mut Vec<PodEvent>,
) {
    let ResizeDecision::Pending { reason, message } = &plan.resize else {
        return;
    };
    // The previous instance has reported a resize that was pending at its end.
    if before.phase == SyncPhase::Pending || before.resize == plan.resize {
        return;
    }
    let is_infeasible = *reason == condition_reason::INFEASIBLE;
    let event = if is_infeasible {
        "ResizeInfeasible"
    } else {
        "ResizeDeferred"
    };
    // A deferred resize has the reason of the admission failure in its message.
    let rejection = admission::check_resize(view, spec).filter(|_| !is_infeasible);
    let cause = rejection.map_or((*reason).to_owned(), |rejection| rejection.reason);
    let generation = spec.manifest.generation().unwrap_or_default();
    let prefix = format!("Pod resize {cause}");
    let message = summary(&spec.manifest, &prefix, generation, message);
    events.push(PodEvent::warning(event, message));
}

#[derive(Serialize)]
struct ContainerSummary<'a> {
    name: &'a str,
    resources: ResourceRequirements,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ResizeSummary<'a> {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    init_containers: Vec<ContainerSummary<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    containers: Vec<ContainerSummary<'a>>,
    generation: i64,
    #[serde(skip_serializing_if = "str::is_empty")]
    error: &'a str,
}

/// The containers' resources as JSON, after upstream's events.
fn summary(manifest: &Manifest, prefix: &str, generation: i64, error: &str) -> String {
    fn container(container: &Container) -> ContainerSummary<'_> {
        ContainerSummary {
            name: &container.name,
            resources: container.resources.clone().unwrap_or_default(),
        }
    }
    let spec = manifest.spec();
    let init_containers = spec.init_containers.iter().flatten();
    let summary = ResizeSummary {
        init_containers: init_containers.map(container).collect(),
        containers: spec.containers.iter().map(container).collect(),
        generation,
        error,
    };
    match serde_json::to_string(&summary) {
        Ok(summary) => format!("{prefix}: {summary}"),
        Err(_) => prefix.to_owned(),
    }
}
