use futures::future::join_all;
use polylet_cri::{CriError, Runtime};
use polylet_wire::pleg::v1::{Container, ContainerPhase, Sandbox};

use super::list::list_pod;
use super::{STATUS_LIMIT, last_words, tell};
use crate::convert;
use crate::core::{Fresh, Known, PodView, Seen, missing};

/// What was seen of a pod, and the first processes of those of its containers that were asked
/// about and run.
pub(crate) struct Look {
    pub(crate) seen: Seen,
    pub(crate) pids: Vec<(String, i32)>,
}

/// Looks at one pod: lists it unless a list is given, and asks about what is not known. Fails only
/// when the runtime is away; a single answer that is missing is part of what was seen.
pub(crate) async fn inspect(
    runtime: &Runtime,
    uid: &str,
    view: Option<PodView>,
    known: &Known,
) -> Result<Look, String> {
    let mut view = match view {
        Some(view) => view,
        None => list_pod(runtime, uid).await?,
    };
    let wanted = missing(&view, known);
    let runtime = runtime.with_timeout(STATUS_LIMIT.min(runtime.timeout()));
    let sandboxes = join_all(wanted.sandboxes.into_iter().map(|id| async {
        let answer = sandbox(&runtime, &id).await;
        (id, answer)
    }));
    let containers = join_all(wanted.containers.into_iter().map(|id| async {
        let listed = view.containers.get(&id);
        // What was only made by then may run by now.
        let verbose = listed.is_none_or(|c| c.phase != ContainerPhase::Exited);
        let in_sandbox = listed.map(|c| c.sandbox_id.clone()).unwrap_or_default();
        let answer = container(&runtime, &id, in_sandbox, verbose).await;
        (id, answer)
    }));
    let (sandboxes, containers) = futures::join!(sandboxes, containers);
    let mut fresh = Fresh::default();
    let mut pids = Vec::new();
    for (id, answer) in sandboxes {
        match sift(answer)? {
            Some(answer) => drop(fresh.sandboxes.insert(id, answer)),
            None => drop(view.sandboxes.remove(&id)),
        }
    }
    for (id, answer) in containers {
        match sift(answer)? {
            Some(Ok((container, pid))) => {
                pids.extend(pid.map(|pid| (id.clone(), pid)));
                fresh.containers.insert(id, Ok(container));
            }
            Some(Err(error)) => drop(fresh.containers.insert(id, Err(error))),
            None => drop(view.containers.remove(&id)),
        }
    }
    let seen = Seen { view, fresh };
    Ok(Look { seen, pids })
}

// What is gone since the list is no error, and a runtime that is away is not this pod's.
fn sift<T>(answer: Result<T, CriError>) -> Result<Option<Result<T, String>>, String> {
    match answer {
        Ok(answer) => Ok(Some(Ok(answer))),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) if error.is_unavailable() => Err(tell(&error)),
        Err(error) => Ok(Some(Err(tell(&error)))),
    }
}

async fn sandbox(runtime: &Runtime, id: &str) -> Result<Sandbox, CriError> {
    let answer = runtime.pod_sandbox_status(id).await?;
    Ok(convert::sandbox(answer.status.unwrap_or_default()))
}

// With the first process where it runs and the runtime tells.
async fn container(
    runtime: &Runtime,
    id: &str,
    sandbox: String,
    verbose: bool,
) -> Result<(Container, Option<i32>), CriError> {
    let answer = match runtime.container_status_raw(id, verbose).await {
        Err(error) if verbose && is_of_words(&error) => {
            runtime.container_status_raw(id, false).await?
        }
        answer => answer?,
    };
    let mut status = answer.status.unwrap_or_default();
    let mounts = std::mem::take(&mut status.mounts);
    let mut container = convert::container(status, sandbox);
    let running = container.phase() == ContainerPhase::Running;
    if container.phase() == ContainerPhase::Exited {
        last_words::add(&mut container, &mounts).await;
    }
    Ok((container, convert::pid(&answer.info).filter(|_| running)))
}

// Whether the status alone may still be told: more words come from more places that can fail.
fn is_of_words(error: &CriError) -> bool {
    !error.is_not_found() && !error.is_unavailable() && !error.is_deadline()
}
