use std::rc::Rc;
use std::time::Duration;

use polylet_cri::{CriError, Runtime, v1};
use tokio::sync::Notify;
use tokio::sync::mpsc::UnboundedSender;
use tokio::time::{Instant, sleep, timeout};
use tonic::Streaming;

use crate::convert;
use crate::run::Input;

/// A runtime written in Go answers with its first event; one that has not refused by then is
/// taken to be listening.
const REFUSAL: Duration = Duration::from_millis(500);
/// A stream that ends well within this was never meant (CRI-O with events switched off).
const MEANT: Duration = Duration::from_secs(2);
const AGAIN_FIRST: Duration = Duration::from_millis(100);
const AGAIN_LAST: Duration = Duration::from_secs(2);
/// A runtime without events may have been replaced by one with them unseen.
const ASK_ANEW: Duration = Duration::from_secs(600);

/// Tells the follower that the runtime came back, perhaps as another one.
pub(crate) type Wake = Rc<Notify>;

enum End {
    /// The runtime has no events.
    None,
    /// The stream broke.
    Broken(String),
}

/// Follows the runtime's events for ever.
pub(crate) async fn follow(runtime: Runtime, inputs: UnboundedSender<Input>, wake: Wake) {
    let mut wait = AGAIN_FIRST;
    let mut told = false;
    loop {
        let began = Instant::now();
        match stream(&runtime, &inputs).await {
            End::None => {
                if !std::mem::replace(&mut told, true) {
                    tracing::info!("the runtime has no events; lists carry everything");
                }
                let _ = timeout(ASK_ANEW, wake.notified()).await;
                wait = AGAIN_FIRST;
            }
            End::Broken(why) => {
                if began.elapsed() > MEANT {
                    told = false;
                    tracing::info!(why, "the runtime's events broke off");
                    wait = AGAIN_FIRST;
                }
                // Whoever is back sooner than the wait is followed sooner.
                let _ = timeout(wait, wake.notified()).await;
                wait = (wait * 2).min(AGAIN_LAST);
            }
        }
    }
}

async fn stream(runtime: &Runtime, inputs: &UnboundedSender<Input>) -> End {
    let began = Instant::now();
    let mut flow = Flow {
        inputs,
        told: false,
    };
    let opening = runtime.container_events();
    tokio::pin!(opening);
    let opened = tokio::select! {
        opened = &mut opening => opened,
        () = sleep(REFUSAL) => {
            flow.begun();
            opening.await
        }
    };
    let end = match opened {
        Ok(events) => forward(events, &mut flow, began).await,
        Err(error) => ended(&error),
    };
    flow.ended();
    end
}

async fn forward(
    mut events: Streaming<v1::ContainerEventResponse>,
    flow: &mut Flow<'_>,
    began: Instant,
) -> End {
    loop {
        match events.message().await {
            Ok(Some(event)) => {
                flow.begun();
                let _ = flow.inputs.send(Input::Hint(convert::hint(event)));
            }
            Ok(None) if began.elapsed() < MEANT => return End::None,
            Ok(None) => return End::Broken("the runtime ended the stream".to_owned()),
            Err(status) => return ended(&CriError::of_events(&status)),
        }
    }
}

fn ended(error: &CriError) -> End {
    if error.is_unimplemented() {
        End::None
    } else {
        End::Broken(error.said.to_string())
    }
}

// Tells once that events flow, and once that they no longer do.
struct Flow<'a> {
    inputs: &'a UnboundedSender<Input>,
    told: bool,
}

impl Flow<'_> {
    fn begun(&mut self) {
        if !self.told {
            self.told = true;
            let _ = self.inputs.send(Input::Events(true));
        }
    }

    fn ended(&mut self) {
        if self.told {
            self.told = false;
            let _ = self.inputs.send(Input::Events(false));
        }
    }
}
