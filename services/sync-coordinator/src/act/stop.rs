//! Stops and removals.

use std::rc::Rc;
use std::time::Duration;

use polylet_cri::CriError;
use polylet_model::constants::reason;

use super::{Hands, Job, files, runtime_said, said};
use crate::core::learn::{Outcome, Trouble};

/// Stops a container: asks, waits out the grace, kills.
pub async fn container(
    hands: &Rc<Hands>,
    job: &Job,
    id: &str,
    grace: u32,
) -> Result<Outcome, Trouble> {
    tracing::info!(
        k8s.pod.uid = job.pod.uid,
        container.id = id,
        grace,
        "stopping a container"
    );
    let grace = Duration::from_secs(u64::from(grace));
    let stopped = job.runtime(hands).stop_container(id, grace).await;
    stopped.map_err(|error| not_killed(reason::KILL_CONTAINER_ERROR, &error))?;
    Ok(Outcome::Done)
}

/// Stops a sandbox and gives its network back.
pub async fn sandbox(hands: &Rc<Hands>, job: &Job, id: &str) -> Result<Outcome, Trouble> {
    let _place = hands
        .teardowns
        .acquire()
        .await
        .map_err(|_| said("Draining", "the process is ending"))?;
    let stopped = job.runtime(hands).stop_pod_sandbox(id).await;
    stopped.map_err(|error| not_killed(reason::KILL_POD_SANDBOX_ERROR, &error))?;
    Ok(Outcome::Done)
}

/// A stop that failed is told with the whole error, its code too.
fn not_killed(reason: &str, error: &CriError) -> Trouble {
    Trouble {
        message: error.in_words(),
        ..runtime_said(reason, error)
    }
}

/// Drops a container's record and the link to its log.
pub async fn remove_container(
    hands: &Rc<Hands>,
    job: &Job,
    id: &str,
    container: &str,
) -> Result<Outcome, Trouble> {
    let _place = hands
        .teardowns
        .acquire()
        .await
        .map_err(|_| said("Draining", "the process is ending"))?;
    // The record goes last: it alone brings a later life of this process back here.
    files::unlink_log(hands, &job.pod, container, id);
    if let Some(seen) = job.observed.container(id) {
        files::remove_attempt(hands, job, container, seen.attempt);
    }
    let removed = job.runtime(hands).remove_container(id).await;
    removed.map_err(|error| runtime_said("RemoveContainerError", &error))?;
    Ok(Outcome::Done)
}

/// Drops the record of a container that starts anew. What it wrote stays.
pub async fn reset_container(
    hands: &Rc<Hands>,
    job: &Job,
    id: &str,
    container: &str,
) -> Result<Outcome, Trouble> {
    files::unlink_log(hands, &job.pod, container, id);
    let removed = job.runtime(hands).remove_container(id).await;
    removed.map_err(|error| runtime_said("RemoveContainerError", &error))?;
    Ok(Outcome::Done)
}

/// Drops a sandbox's record.
pub async fn remove_sandbox(hands: &Rc<Hands>, job: &Job, id: &str) -> Result<Outcome, Trouble> {
    let _place = hands
        .teardowns
        .acquire()
        .await
        .map_err(|_| said("Draining", "the process is ending"))?;
    let removed = job.runtime(hands).remove_pod_sandbox(id).await;
    removed.map_err(|error| runtime_said("RemoveSandboxError", &error))?;
    Ok(Outcome::Done)
}
