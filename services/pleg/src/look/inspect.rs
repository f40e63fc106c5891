use futures::future::join_all;
use polylet_cri::{CriError, Runtime};
use polylet_wire::pleg::v1::{Container, ContainerPhase, Sandbox};

use super::list::list_pod;
use super::{STATUS_LIMIT, last_words, tell};
use crate::convert;
use crate::core::{Fresh, Known, PodView, Seen, missing};

/// Looks at one pod: lists it unless a list is given, and asks about what is not known. Fails only
/// when the runtime is away; a single answer that is missing is part of what was seen.
pub(crate) async fn inspect(
    runtime: &Runtime,
    uid: &str,
    view: Option<PodView>,
    known: &Known,
) -> Result<Seen, String> {
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
        let in_sandbox = view.containers.get(&id).map(|c| c.sandbox_id.clone());
        let answer = container(&runtime, &id, in_sandbox.unwrap_or_default()).await;
        (id, answer)
    }));
    let (sandboxes, containers) = futures::join!(sandboxes, containers);
    let mut fresh = Fresh::default();
    for (id, answer) in sandboxes {
        match sift(answer)? {
            Some(answer) => drop(fresh.sandboxes.insert(id, answer)),
            None => drop(view.sandboxes.remove(&id)),
        }
    }
    for (id, answer) in containers {
        match sift(answer)? {
            Some(answer) => drop(fresh.containers.insert(id, answer)),
            None => drop(view.containers.remove(&id)),
        }
    }
    Ok(Seen { view, fresh })
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

async fn container(runtime: &Runtime, id: &str, sandbox: String) -> Result<Container, CriError> {
    let mut status = runtime.container_status(id).await?;
    let mounts = std::mem::take(&mut status.mounts);
    let mut container = convert::container(status, sandbox);
    if container.phase() == ContainerPhase::Exited {
        last_words::add(&mut container, &mounts).await;
    }
    Ok(container)
}
