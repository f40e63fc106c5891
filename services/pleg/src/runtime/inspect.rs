use futures::future::join_all;
use polylet_cri::v1::Mount;
use polylet_cri::{CriError, RuntimeClient};
use polylet_kit::report;
use polylet_model::status::ContainerPhase;

use polylet_model::PodUid;

use super::STATUS_TIMEOUT;
use super::list::list_pod;
use super::termination_message::TerminationMessageReader;
use crate::convert;
use crate::core::{
    CachedStatuses, ContainerStatus, FreshStatuses, Inspected, ListedPod, SandboxStatus,
    inspect_targets,
};

/// The result of inspecting a pod, and the first process of each running container whose status was
/// requested.
pub(crate) struct InspectResult {
    pub(crate) inspected: Inspected,
    pub(crate) pids: Vec<(String, i32)>,
}

/// Inspects one pod: lists it unless its list entries are given, and requests the statuses that are
/// not cached.
///
/// # Errors
/// Only when the runtime is unavailable. The error of a single status call is part of the result.
pub(crate) async fn inspect(
    runtime: &RuntimeClient,
    messages: &TerminationMessageReader,
    uid: &PodUid,
    listed: Option<ListedPod>,
    cached: &CachedStatuses,
) -> Result<InspectResult, String> {
    let mut listed = match listed {
        Some(listed) => listed,
        None => list_pod(runtime, uid).await?,
    };
    let targets = inspect_targets(&listed, cached);
    let runtime = runtime.with_timeout(STATUS_TIMEOUT.min(runtime.timeout()));
    let sandboxes = join_all(targets.sandboxes.into_iter().map(|id| async {
        let result = sandbox_status(&runtime, &id).await;
        (id, result)
    }));
    let containers = join_all(targets.containers.into_iter().map(|id| async {
        let entry = listed.containers.get(&id);
        // A container that was listed as created may run by now.
        let verbose = entry.is_none_or(|c| c.phase != ContainerPhase::Exited);
        let sandbox_id = entry.map(|c| c.sandbox_id.clone()).unwrap_or_default();
        let mut result = container_status(&runtime, &id, sandbox_id, verbose).await;
        if let Ok((status, _, mounts)) = &mut result
            && status.phase == ContainerPhase::Exited
        {
            messages.append(uid.as_str(), status, mounts).await;
        }
        let result = result.map(|(status, pid, _)| (status, pid));
        (id, result)
    }));
    let (sandboxes, containers) = futures::join!(sandboxes, containers);
    let mut fresh = FreshStatuses::default();
    let mut pids = Vec::new();
    for (id, result) in sandboxes {
        match classify(result)? {
            Some(status) => drop(fresh.sandboxes.insert(id, status)),
            None => drop(listed.sandboxes.remove(&id)),
        }
    }
    for (id, result) in containers {
        match classify(result)? {
            Some(Ok((status, pid))) => {
                pids.extend(pid.map(|pid| (id.clone(), pid)));
                fresh.containers.insert(id, Ok(status));
            }
            Some(Err(error)) => drop(fresh.containers.insert(id, Err(error))),
            None => drop(listed.containers.remove(&id)),
        }
    }
    let inspected = Inspected { listed, fresh };
    Ok(InspectResult { inspected, pids })
}

/// `None` for what is gone since the list, which is no error. An unavailable runtime is an error of
/// the whole inspection.
fn classify<T>(result: Result<T, CriError>) -> Result<Option<Result<T, String>>, String> {
    match result {
        Ok(status) => Ok(Some(Ok(status))),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) if error.is_unavailable() => Err(report(&error)),
        Err(error) => Ok(Some(Err(report(&error)))),
    }
}

async fn sandbox_status(runtime: &RuntimeClient, id: &str) -> Result<SandboxStatus, CriError> {
    let response = runtime.pod_sandbox_status(id).await?;
    Ok(convert::sandbox(response.status.unwrap_or_default()))
}

/// The status, the first process of a running container where the runtime reports it, and the mounts.
async fn container_status(
    runtime: &RuntimeClient,
    id: &str,
    sandbox_id: String,
    verbose: bool,
) -> Result<(ContainerStatus, Option<i32>, Vec<Mount>), CriError> {
    let response = match runtime.container_status_raw(id, verbose).await {
        Err(error) if verbose && is_verbose_only(&error) => {
            runtime.container_status_raw(id, false).await?
        }
        response => response?,
    };
    let mut status = response.status.unwrap_or_default();
    let mounts = std::mem::take(&mut status.mounts);
    let status = convert::container(status, sandbox_id);
    let running = status.phase == ContainerPhase::Running;
    let pid = convert::pid(&response.info).filter(|_| running);
    Ok((status, pid, mounts))
}

/// Whether a call may succeed without verbose information, which the runtime collects from more
/// places that can fail.
fn is_verbose_only(error: &CriError) -> bool {
    !error.is_not_found() && !error.is_unavailable() && !error.is_deadline()
}
