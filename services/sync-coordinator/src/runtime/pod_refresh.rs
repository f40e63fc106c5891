//! Refreshes of a pod's state in pleg, after steps that have changed it.

use std::rc::Rc;
use std::time::Duration;

use polylet_schedule::Backoff;
use polylet_wire::common::v1::PodRef;
use polylet_wire::pleg::v1::{PodState, RefreshPodRequest, RuntimeChange};

use super::RuntimeManager;

/// Delays between attempts.
const MIN_DELAY: Duration = Duration::from_millis(50);
const MAX_DELAY: Duration = Duration::from_secs(2);

/// Requests the state until pleg responds. `None` when the process drains before.
pub async fn refresh_with_retry(
    manager: &Rc<RuntimeManager>,
    pod: &PodRef,
    changes: &[RuntimeChange],
) -> Option<PodState> {
    let drain = manager.ctx.drain();
    let mut backoff = Backoff::new(MIN_DELAY, MAX_DELAY);
    loop {
        match refresh(manager, pod, changes.to_vec()).await {
            Ok(state) => return state,
            Err(status) => {
                tracing::debug!(pod_uid = pod.uid, error = %status, "failed to refresh pod state; retrying");
            }
        }
        tokio::select! {
            () = drain.cancelled() => return None,
            () = tokio::time::sleep(backoff.next_delay()) => {}
        }
    }
}

/// Requests the state once: pleg inspects what these changes concern, or everything without any.
pub async fn refresh(
    manager: &Rc<RuntimeManager>,
    pod: &PodRef,
    changes: Vec<RuntimeChange>,
) -> Result<Option<PodState>, tonic::Status> {
    let request = RefreshPodRequest {
        uid: pod.uid.clone(),
        force: false,
        changes,
        pod: Some(pod.clone()),
    };
    request_state(manager, request).await
}

/// Requests the state once: pleg also inspects what has not changed since its last inspection.
pub async fn force(
    manager: &Rc<RuntimeManager>,
    uid: &str,
) -> Result<Option<PodState>, tonic::Status> {
    let request = RefreshPodRequest {
        uid: uid.to_owned(),
        force: true,
        ..Default::default()
    };
    request_state(manager, request).await
}

async fn request_state(
    manager: &Rc<RuntimeManager>,
    request: RefreshPodRequest,
) -> Result<Option<PodState>, tonic::Status> {
    let response = manager.pleg.clone().refresh_pod(request).await?;
    Ok(response.into_inner().state)
}
