//! Stops and removals of containers and sandboxes.

use std::rc::Rc;
use std::time::Duration;

use polylet_cri::CriError;
use polylet_model::constants::reason;

use super::{RuntimeManager, StepContext, cri_failure, files};
use crate::core::concurrency_limit::CallKind;
use crate::core::step::{StepFailure, StepOutcome};

const REMOVE_CONTAINER: &str = "RemoveContainer";
const REMOVE_CONTAINER_ERROR: &str = "RemoveContainerError";

/// Stops a container: the runtime sends its stop signal, waits for the grace period in seconds, and
/// kills it.
pub async fn stop_container(
    manager: &Rc<RuntimeManager>,
    context: &StepContext,
    id: &str,
    grace: u32,
) -> Result<StepOutcome, StepFailure> {
    tracing::info!(
        pod = context.pod_name(),
        pod_uid = context.pod.uid,
        container_id = id,
        grace_seconds = grace,
        "stopping container"
    );
    let grace = Duration::from_secs(u64::from(grace));
    let stopped = context.runtime(manager).stop_container(id, grace).await;
    stopped.map_err(|error| kill_failure(reason::KILL_CONTAINER_ERROR, &error))?;
    Ok(StepOutcome::Done)
}

/// Stops a sandbox and releases its network.
pub async fn stop_sandbox(
    manager: &Rc<RuntimeManager>,
    context: &StepContext,
    id: &str,
) -> Result<StepOutcome, StepFailure> {
    let runtime = context.runtime(manager);
    let kind = call_kind(context, "StopPodSandbox");
    let stop = runtime.stop_pod_sandbox(id);
    let stopped = manager.sandbox_stops.run(kind, stop).await?;
    stopped.map_err(|error| kill_failure(reason::KILL_POD_SANDBOX_ERROR, &error))?;
    Ok(StepOutcome::Done)
}

/// A call of the step's pod, which is compared with others of its kind.
fn call_kind(context: &StepContext, operation: &'static str) -> CallKind {
    CallKind::new(operation, context.manifest.as_ref())
}

/// The failure of a stop, whose message includes the code as the kubelet's does.
fn kill_failure(reason: &str, error: &CriError) -> StepFailure {
    StepFailure {
        message: error.rpc_error(),
        ..cri_failure(reason, error)
    }
}

/// Removes a container, its log and the link to it, after the stops of sandboxes.
pub async fn remove_container(
    manager: &Rc<RuntimeManager>,
    context: &StepContext,
    id: &str,
    container: &str,
) -> Result<StepOutcome, StepFailure> {
    // The container goes last: without it nothing leads a later process instance to its files.
    files::remove_log_link(manager, &context.pod, container, id);
    if let Some(observed) = context.observed.container(id) {
        files::remove_attempt_files(manager, context, container, observed.attempt);
    }
    let runtime = context.runtime(manager);
    let removal = runtime.remove_container(id);
    let removed = after_stops(manager, context, REMOVE_CONTAINER, removal).await?;
    removed.map_err(|error| cri_failure(REMOVE_CONTAINER_ERROR, &error))?;
    Ok(StepOutcome::Done)
}

/// Removes a container that is created again, at once. Its log stays.
pub async fn remove_for_restart(
    manager: &Rc<RuntimeManager>,
    context: &StepContext,
    id: &str,
    container: &str,
) -> Result<StepOutcome, StepFailure> {
    files::remove_log_link(manager, &context.pod, container, id);
    let runtime = context.runtime(manager);
    let removal = runtime.remove_container(id);
    let kind = call_kind(context, REMOVE_CONTAINER);
    let removed = manager.removals.run(kind, removal).await?;
    removed.map_err(|error| cri_failure(REMOVE_CONTAINER_ERROR, &error))?;
    Ok(StepOutcome::Done)
}

/// Removes a sandbox, after the stops of others.
pub async fn remove_sandbox(
    manager: &Rc<RuntimeManager>,
    context: &StepContext,
    id: &str,
) -> Result<StepOutcome, StepFailure> {
    let runtime = context.runtime(manager);
    let removal = runtime.remove_pod_sandbox(id);
    let removed = after_stops(manager, context, "RemovePodSandbox", removal).await?;
    removed.map_err(|error| cri_failure("RemoveSandboxError", &error))?;
    Ok(StepOutcome::Done)
}

/// Makes a removal after the stops of sandboxes: pods are forgotten, and replaced, when those are done, and what
/// is removed holds nothing that others need.
async fn after_stops(
    manager: &RuntimeManager,
    context: &StepContext,
    operation: &'static str,
    removal: impl Future<Output = Result<(), CriError>>,
) -> Result<Result<(), CriError>, StepFailure> {
    let kind = call_kind(context, operation);
    let stops = &manager.sandbox_stops;
    manager
        .removals
        .run_after_others(stops, kind, removal)
        .await
}
