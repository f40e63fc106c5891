//! Streams between clients and containers: prepared by pleg, carried by the runtime's streaming server.
//!
//! A request to upgrade is passed on, and both connections are then joined byte for byte, whatever they
//! speak: runtimes know SPDY and the older WebSocket protocols. Two protocols they do not know are
//! translated to SPDY here: commands over WebSockets whose streams are closed one by one, and SPDY within a
//! WebSocket.

mod backend;
mod client;
mod client_socket;
mod proxy;
mod relay;
pub(crate) mod runtime_url;
mod translator;
mod tunnel;
mod websocket;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use polylet_kit::{Ctx, TaskTracker};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

pub(crate) use client::StreamingClient;
pub(crate) use proxy::{StreamRequest, serve_command, serve_ports};

/// Streams in progress at most. Each has two connections and about 100 KiB of buffers.
const MAX_STREAMS: usize = 512;

/// The streams in progress. Clones share them.
#[derive(Clone)]
pub(crate) struct Streams {
    permits: Arc<Semaphore>,
    tasks: TaskTracker,
    /// `streamingConnectionIdleTimeout`; zero is none.
    idle_timeout: Duration,
    /// The feature gate `ExtendWebSocketsToKubelet`, which is on by default.
    translates: bool,
}

impl Streams {
    /// `tasks` are those that may go on when the process drains.
    pub(crate) fn new(ctx: &Ctx, tasks: TaskTracker) -> Self {
        let kubelet = &ctx.config().kubelet;
        let gate = kubelet.feature_gates.get("ExtendWebSocketsToKubelet");
        Self {
            permits: Arc::new(Semaphore::new(MAX_STREAMS)),
            tasks,
            idle_timeout: kubelet.streaming_connection_idle_timeout,
            translates: gate != Some(&false),
        }
    }

    /// A place for one more stream; `None` if there is none.
    pub(crate) fn admit(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.permits).try_acquire_owned().ok()
    }

    /// Runs a stream to its end, or until the process ends.
    fn spawn(
        &self,
        permit: OwnedSemaphorePermit,
        stream: impl Future<Output = ()> + Send + 'static,
    ) {
        self.tasks.spawn(async move {
            stream.await;
            drop(permit);
        });
    }
}
