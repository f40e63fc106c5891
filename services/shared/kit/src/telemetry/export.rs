use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use opentelemetry::Context;
use opentelemetry_otlp::{SpanExporter as OtlpExporter, WithTonicConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{Span, SpanData, SpanExporter, SpanProcessor};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

use crate::memory;

/// Ended spans wait this long for company.
const GATHER: Duration = Duration::from_millis(50);
/// Spans waiting at most; what comes on top is dropped and counted.
const QUEUED: usize = 2048;
/// Spans in one request at most.
const BATCH: usize = 512;
/// One request may take this long.
const SEND: Duration = Duration::from_secs(2);
/// After a request that failed nothing is tried for this long: spans of that time are dropped
/// without costing anything.
const QUIET: Duration = Duration::from_secs(5);

/// Between the spans' ends, on any thread, and the one task that sends them.
#[derive(Debug, Default)]
pub(super) struct Queue {
    waiting: Mutex<Waiting>,
    some: Notify,
    none: Notify,
}

#[derive(Debug, Default)]
struct Waiting {
    spans: VecDeque<SpanData>,
    sending: bool,
    flush: bool,
    dropped: u64,
}

impl Queue {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, span: SpanData) {
        let mut waiting = self.waiting();
        if waiting.spans.len() >= QUEUED {
            waiting.dropped += 1;
            return;
        }
        waiting.spans.push_back(span);
        if waiting.spans.len() == 1 {
            drop(waiting);
            self.some.notify_one();
        }
    }

    pub(super) fn take(&self) -> Vec<SpanData> {
        let mut waiting = self.waiting();
        let count = waiting.spans.len().min(BATCH);
        waiting.sending = count > 0;
        let batch = waiting.spans.drain(..count).collect();
        if waiting.spans.is_empty() && waiting.spans.capacity() > BATCH {
            waiting.spans.shrink_to(0);
        }
        batch
    }

    fn sent(&self, dropped: usize) {
        let mut waiting = self.waiting();
        waiting.sending = false;
        waiting.dropped += dropped as u64;
        if waiting.spans.is_empty() {
            waiting.flush = false;
            drop(waiting);
            self.none.notify_waiters();
        }
    }

    /// Resolves once nothing waits and nothing is being sent.
    pub(super) async fn flushed(&self) {
        loop {
            let none = self.none.notified();
            tokio::pin!(none);
            none.as_mut().enable();
            {
                let mut waiting = self.waiting();
                if waiting.spans.is_empty() && !waiting.sending {
                    return;
                }
                waiting.flush = true;
            }
            self.some.notify_one();
            none.await;
        }
    }
}

/// Puts ended spans into the queue; everything else happens elsewhere.
#[derive(Debug)]
pub(super) struct QueueProcessor {
    queue: Arc<Queue>,
}

impl QueueProcessor {
    pub(super) fn new(queue: Arc<Queue>) -> QueueProcessor {
        QueueProcessor { queue }
    }
}

impl SpanProcessor for QueueProcessor {
    fn on_start(&self, _: &mut Span, _: &Context) {}

    fn on_end(&self, span: SpanData) {
        self.queue.push(span);
    }

    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _: Duration) -> OTelSdkResult {
        Ok(())
    }
}

/// Sends batches for ever. Wakes only when there is something to send.
pub(super) async fn run(queue: Arc<Queue>, resource: Resource, socket: PathBuf) {
    let channel = crate::channel::trying_for(&socket, Duration::ZERO);
    let built = OtlpExporter::builder()
        .with_tonic()
        .with_channel(channel)
        .build();
    let mut exporter = match built {
        Ok(exporter) => exporter,
        Err(error) => {
            tracing::warn!(%error, "no spans are sent");
            return;
        }
    };
    exporter.set_resource(&resource);
    let mut told = false;
    let mut quiet_until = None;
    loop {
        work_after_rest(&queue).await;
        if !queue.waiting().flush {
            tokio::time::sleep(GATHER).await;
        }
        loop {
            let batch = queue.take();
            if batch.is_empty() {
                break;
            }
            let count = batch.len();
            if quiet_until.is_some_and(|until| Instant::now() < until) {
                queue.sent(count);
                continue;
            }
            let sent = timeout(SEND, exporter.export(batch)).await;
            let lost = !matches!(sent, Ok(Ok(())));
            queue.sent(if lost { count } else { 0 });
            quiet_until = lost.then(|| Instant::now() + QUIET);
            if lost && !told {
                told = true;
                tracing::info!(socket = %socket.display(), "nobody takes spans, they are dropped");
            }
        }
        queue.sent(0);
    }
}

/// Waits for the next span. Spans are made by work: when they cease, a burst is over.
async fn work_after_rest(queue: &Queue) {
    for quiet in [memory::BURST_OVER, memory::AFTERMATH] {
        if timeout(quiet, queue.some.notified()).await.is_ok() {
            return;
        }
        memory::give_back();
    }
    queue.some.notified().await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use opentelemetry::trace::{Tracer, TracerProvider};
    use opentelemetry_sdk::trace::SdkTracerProvider;

    #[test]
    fn the_queue_is_bounded_and_counts_what_it_drops() {
        let queue = Arc::new(Queue::default());
        let provider = SdkTracerProvider::builder()
            .with_span_processor(QueueProcessor::new(queue.clone()))
            .build();
        let tracer = provider.tracer("test");
        for _ in 0..QUEUED + 3 {
            drop(tracer.start("x"));
        }
        assert_eq!(queue.waiting().dropped, 3);
        assert_eq!(queue.take().len(), BATCH);
        assert_eq!(queue.waiting().spans.len(), QUEUED - BATCH);
    }

    #[tokio::test]
    async fn nothing_to_flush_is_flushed() {
        Queue::default().flushed().await;
    }
}
