use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

use crate::ctx::Ctx;
use crate::health::Health;
use crate::service::OnDrain;

/// Asks for the drain; whoever asks later gets the first one's outcome.
#[derive(Clone)]
pub(crate) struct Drain {
    ask: mpsc::UnboundedSender<(Duration, oneshot::Sender<Vec<String>>)>,
}

impl Drain {
    /// Starts the task that drains when asked.
    pub(crate) fn start(ctx: &Ctx, health: Health, on_drain: Vec<OnDrain>) -> Drain {
        let (ask, mut asked) = mpsc::unbounded_channel::<(Duration, oneshot::Sender<_>)>();
        let ctx = ctx.clone();
        tokio::task::spawn_local(async move {
            let Some((deadline, answer)) = asked.recv().await else {
                return;
            };
            let left = drain(&ctx, &health, on_drain, deadline).await;
            let _ = answer.send(left.clone());
            while let Some((_, answer)) = asked.recv().await {
                let _ = answer.send(left.clone());
            }
        });
        Drain { ask }
    }

    /// Starts no new side effect, finishes those under way; tells what is left at the deadline.
    pub(crate) async fn run(&self, deadline: Duration) -> Vec<String> {
        let (answer, answered) = oneshot::channel();
        if self.ask.send((deadline, answer)).is_err() {
            return vec!["the process is ending".to_owned()];
        }
        answered.await.unwrap_or_default()
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
        let (left, ()) = futures::join!(futures::future::join_all(on_drain), background.wait());
        left.concat()
    };
    match tokio::time::timeout(deadline, work).await {
        Ok(left) => left,
        Err(_) => {
            let running = inner.background.len();
            vec![format!(
                "not done within {deadline:?}, {running} pieces of work under way"
            )]
        }
    }
}
