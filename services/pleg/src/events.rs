//! Follows the runtime's event stream, where it has one.

use std::rc::Rc;
use std::time::Duration;

use polylet_cri::{CriError, RuntimeClient, v1};
use polylet_schedule::Backoff;
use tokio::sync::Notify;
use tokio::sync::mpsc::UnboundedSender;
use tokio::time::{Instant, sleep, timeout};
use tonic::Streaming;

use crate::convert;
use crate::input::Input;

/// A runtime written in Go sends response headers with its first event; one that has not refused the
/// call by then supports events.
const REFUSAL_TIMEOUT: Duration = Duration::from_millis(500);
/// A stream that ends well within this time is not supported (CRI-O with events disabled).
const MIN_STREAM_LIFETIME: Duration = Duration::from_secs(2);
const RETRY_INITIAL: Duration = Duration::from_millis(100);
const RETRY_MAX: Duration = Duration::from_secs(2);
/// A runtime without events may have been replaced unnoticed by one with events.
const UNSUPPORTED_RETRY: Duration = Duration::from_secs(600);

/// Notified when the runtime is back, perhaps as another version.
pub(crate) type EventWake = Rc<Notify>;

enum StreamEnd {
    /// The runtime has no events.
    Unsupported,
    /// The stream broke, for this reason.
    Broken(String),
}

/// Follows the runtime's events until it is dropped.
pub(crate) async fn follow(
    runtime: RuntimeClient,
    inputs: UnboundedSender<Input>,
    wake: EventWake,
) {
    let mut backoff = Backoff::new(RETRY_INITIAL, RETRY_MAX);
    let mut logged = false;
    loop {
        let began = Instant::now();
        match stream(&runtime, &inputs).await {
            StreamEnd::Unsupported => {
                if !std::mem::replace(&mut logged, true) {
                    tracing::info!("runtime has no events; relying on lists");
                }
                let _ = timeout(UNSUPPORTED_RETRY, wake.notified()).await;
                backoff.reset();
            }
            StreamEnd::Broken(reason) => {
                if began.elapsed() > MIN_STREAM_LIFETIME {
                    logged = false;
                    tracing::info!(reason, "runtime event stream broke; reconnecting");
                    backoff.reset();
                }
                // A runtime that is back before the delay is over is followed at once.
                let _ = timeout(backoff.next_delay(), wake.notified()).await;
            }
        }
    }
}

async fn stream(runtime: &RuntimeClient, inputs: &UnboundedSender<Input>) -> StreamEnd {
    let began = Instant::now();
    let mut stream = EventStream {
        inputs,
        active: false,
    };
    let call = runtime.container_events();
    tokio::pin!(call);
    let response = tokio::select! {
        response = &mut call => response,
        () = sleep(REFUSAL_TIMEOUT) => {
            stream.set_active(true);
            call.await
        }
    };
    let end = match response {
        Ok(events) => forward(events, &mut stream, began).await,
        Err(error) => stream_end(&error),
    };
    stream.set_active(false);
    end
}

async fn forward(
    mut events: Streaming<v1::ContainerEventResponse>,
    stream: &mut EventStream<'_>,
    began: Instant,
) -> StreamEnd {
    loop {
        match events.message().await {
            Ok(Some(event)) => {
                stream.set_active(true);
                stream.send(Input::RuntimeEvent(convert::event(event)));
            }
            Ok(None) if began.elapsed() < MIN_STREAM_LIFETIME => return StreamEnd::Unsupported,
            Ok(None) => return StreamEnd::Broken("the runtime ended the stream".to_owned()),
            Err(status) => return stream_end(&CriError::from_event_stream(&status)),
        }
    }
}

fn stream_end(error: &CriError) -> StreamEnd {
    if error.is_unimplemented() {
        StreamEnd::Unsupported
    } else {
        StreamEnd::Broken(error.source.to_string())
    }
}

/// Sends events, and each change of the stream's state once.
struct EventStream<'a> {
    inputs: &'a UnboundedSender<Input>,
    active: bool,
}

impl EventStream<'_> {
    fn set_active(&mut self, active: bool) {
        if self.active != active {
            self.active = active;
            self.send(Input::EventStream { active });
        }
    }

    fn send(&self, input: Input) {
        // The event loop ends only when the process drains.
        let _ = self.inputs.send(input);
    }
}
