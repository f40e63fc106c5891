//! The event loop of the static sources.

use polylet_kit::CancellationToken;
use tokio::sync::mpsc;

use crate::input::Input;
use crate::state::PodSources;

/// Handles the inputs of the static sources and publishes their pods.
pub struct EventLoop {
    sources: PodSources,
}

impl EventLoop {
    /// An event loop over restored sources.
    pub fn new(sources: PodSources) -> EventLoop {
        EventLoop { sources }
    }

    /// Runs until the drain.
    pub async fn run(mut self, mut inputs: mpsc::Receiver<Input>, drain: CancellationToken) {
        loop {
            let input = tokio::select! {
                () = drain.cancelled() => return,
                input = inputs.recv() => input,
            };
            let Some(input) = input else {
                // No source is configured.
                return drain.cancelled().await;
            };
            self.sources.handle_input(input).await;
            // Further inputs are published in the same step.
            while let Ok(input) = inputs.try_recv() {
                self.sources.handle_input(input).await;
            }
            self.sources.publish().await;
        }
    }
}
