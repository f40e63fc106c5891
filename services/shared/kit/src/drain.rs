use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

use crate::ctx::Ctx;
use crate::health::Health;
use crate::service::OnDrain;

/// Requests the drain; later requests get the result of the first.
#[derive(Clone)]
pub(crate) struct Drain {
    requests: mpsc::UnboundedSender<(Duration, oneshot::Sender<Vec<String>>)>,
}

impl Drain {
    /// Starts the task that drains on request.
    pub(crate) fn start(ctx: &Ctx, health: Health, on_drain: Vec<OnDrain>) -> Drain {
        let (requests, mut received) = mpsc::unbounded_channel::<(Duration, oneshot::Sender<_>)>();
        let ctx = ctx.clone();
        tokio::task::spawn_local(async move {
            let Some((deadline, reply)) = received.recv().await else {
                return;
            };
            let unfinished = drain(&ctx, &health, on_drain, deadline).await;
            let _ = reply.send(unfinished.clone());
            while let Some((_, reply)) = received.recv().await {
                let _ = reply.send(unfinished.clone());
            }
        });
        Drain { requests }
    }

    /// Starts no new side effect and finishes those in progress; returns what is unfinished at the
    /// deadline.
    pub(crate) async fn run(&self, deadline: Duration) -> Vec<String> {
        let (reply, result) = oneshot::channel();
        if self.requests.send((deadline, reply)).is_err() {
            return vec!["the process is ending".to_owned()];
        }
        result.await.unwrap_or_default()
    }
}

async fn drain(
    ctx: &Ctx,
    health: &Health,
    on_drain: Vec<OnDrain>,
    deadline: Duration,
) -> Vec<String> {
    let inner = ctx.inner();
    health.not_serving().await;
    inner.drain.cancel();
    inner.background.close();
    let background = inner.background.clone();
    let work = async move {
        let (unfinished, ()) =
            futures::join!(futures::future::join_all(on_drain), background.wait());
        unfinished.concat()
    };
    match tokio::time::timeout(deadline, work).await {
        Ok(unfinished) => unfinished,
        Err(_) => {
            let running = inner.background.len();
            vec![format!(
                "deadline of {deadline:?} exceeded, {running} background tasks still running"
            )]
        }
    }
}
