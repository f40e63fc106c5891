//! After an act of ours: what the runtime holds now.

use std::rc::Rc;
use std::time::Duration;

use polylet_wire::pleg::v1::{PodState, RefreshPodRequest};

use super::Hands;

/// The longest pause between two tries.
const LONGEST: Duration = Duration::from_secs(2);

/// Asks pleg until it answers. `None` when the process is ending.
pub async fn until_answered(hands: &Rc<Hands>, uid: &str) -> Option<PodState> {
    let drain = hands.ctx.drain();
    let mut pause = Duration::from_millis(50);
    loop {
        match once(hands, uid).await {
            Ok(state) => return state,
            Err(status) => tracing::debug!(k8s.pod.uid = uid, %status, "refresh failed"),
        }
        tokio::select! {
            () = drain.cancelled() => return None,
            () = tokio::time::sleep(pause) => pause = (pause * 2).min(LONGEST),
        }
    }
}

/// Asks pleg once.
pub async fn once(hands: &Rc<Hands>, uid: &str) -> Result<Option<PodState>, tonic::Status> {
    ask(hands, uid, false).await
}

/// Asks pleg once, and has it ask also for what it knows.
pub async fn anew(hands: &Rc<Hands>, uid: &str) -> Result<Option<PodState>, tonic::Status> {
    ask(hands, uid, true).await
}

async fn ask(hands: &Rc<Hands>, uid: &str, anew: bool) -> Result<Option<PodState>, tonic::Status> {
    let request = RefreshPodRequest {
        uid: uid.to_owned(),
        anew,
    };
    Ok(hands
        .pleg
        .clone()
        .refresh_pod(request)
        .await?
        .into_inner()
        .state)
}
