use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use opentelemetry::Context;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_client::TraceServiceClient;
use opentelemetry_proto::transform::common::tonic::ResourceAttributesWithSchema;
use opentelemetry_proto::transform::trace::tonic::group_spans_by_resource_and_scope;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{Span, SpanData, SpanProcessor};
use polylet_metrics::{Metric, register};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

use crate::{EndWithMessage, memory};

/// Delay between the first ended span and the request, to send spans in batches: a request costs both sides as much
/// as many spans, and a pod's start ends spans all the time.
const BATCH_DELAY: Duration = Duration::from_secs(1);
/// Most spans in the queue; further ones are dropped and counted.
const MAX_QUEUED: usize = 2048;
/// Most spans in one request.
const MAX_BATCH: usize = 512;
/// Timeout of a request.
const SEND_TIMEOUT: Duration = Duration::from_secs(2);
/// After a failed request nothing is sent for this long: spans of that time are dropped.
const RETRY_DELAY: Duration = Duration::from_secs(5);

static RECORDED: Metric = Metric::counter(
    "polylet_spans_recorded_total",
    "Spans that the service has recorded.",
    &["service"],
);
static DROPPED: Metric = Metric::counter(
    "polylet_spans_dropped_total",
    "Spans that the supervisor has not received: it was away, or there were too many at once.",
    &["service"],
);
static EXPORTED: Metric = Metric::counter(
    "polylet_spans_exported_total",
    "Spans that the supervisor has received.",
    &["service"],
);

/// Ended spans of any thread, for the task that sends them.
#[derive(Debug, Default)]
pub(super) struct SpanQueue {
    /// Short name of the service, for counts.
    service: String,
    queued: Mutex<QueuedSpans>,
    not_empty: Notify,
    empty: Notify,
}

#[derive(Debug, Default)]
struct QueuedSpans {
    spans: VecDeque<SpanData>,
    sending: bool,
    flush: bool,
    dropped: u64,
}

impl SpanQueue {
    /// An empty queue of a service, whose counts are those of this process.
    pub(super) fn new(service: &str) -> SpanQueue {
        let counts = [&RECORDED, &DROPPED, &EXPORTED];
        register(&counts);
        // A rate sees the first ones only beside a count before them.
        counts.iter().for_each(|count| count.add(&[service], 0.0));
        SpanQueue {
            service: service.to_owned(),
            ..SpanQueue::default()
        }
    }

    fn waiting(&self) -> MutexGuard<'_, QueuedSpans> {
        self.queued.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, span: SpanData) {
        RECORDED.increment(&[&self.service]);
        let mut waiting = self.waiting();
        if waiting.spans.len() >= MAX_QUEUED {
            waiting.dropped += 1;
            DROPPED.increment(&[&self.service]);
            return;
        }
        waiting.spans.push_back(span);
        if matches!(waiting.spans.len(), 1 | MAX_BATCH) {
            drop(waiting);
            self.not_empty.notify_one();
        }
    }

    pub(super) fn take(&self) -> Vec<SpanData> {
        let mut waiting = self.waiting();
        // Without its buffer: at rest, it would stay as large as the largest batch.
        let mut batch = std::mem::take(&mut waiting.spans);
        if batch.len() > MAX_BATCH {
            waiting.spans = batch.split_off(MAX_BATCH);
        }
        waiting.sending = !batch.is_empty();
        batch.into()
    }

    /// Notes what became of the spans that were taken.
    fn sent(&self, exported: usize, dropped: usize) {
        let count = |metric: &Metric, spans: usize| {
            if spans > 0 {
                metric.add(&[&self.service], spans as f64);
            }
        };
        count(&EXPORTED, exported);
        count(&DROPPED, dropped);
        let mut waiting = self.waiting();
        waiting.sending = false;
        waiting.dropped += dropped as u64;
        if waiting.spans.is_empty() {
            waiting.flush = false;
            drop(waiting);
            self.empty.notify_waiters();
        }
    }

    /// Waits for further spans of a batch, but not while somebody waits until the queue is empty.
    async fn batch_is_due(&self) {
        let delay = tokio::time::sleep(BATCH_DELAY);
        tokio::pin!(delay);
        let is_due = || {
            let waiting = self.waiting();
            waiting.flush || waiting.spans.len() >= MAX_BATCH
        };
        while !is_due() {
            tokio::select! {
                () = &mut delay => return,
                () = self.not_empty.notified() => {}
            }
        }
    }

    /// Waits until the queue is empty and nothing is being sent.
    pub(super) async fn flushed(&self) {
        loop {
            let none = self.empty.notified();
            tokio::pin!(none);
            none.as_mut().enable();
            {
                let mut waiting = self.waiting();
                if waiting.spans.is_empty() && !waiting.sending {
                    return;
                }
                waiting.flush = true;
            }
            self.not_empty.notify_one();
            none.await;
        }
    }
}

/// Puts ended spans into the queue.
#[derive(Debug)]
pub(super) struct QueueProcessor {
    queue: Arc<SpanQueue>,
}

impl QueueProcessor {
    pub(super) fn new(queue: Arc<SpanQueue>) -> QueueProcessor {
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

/// Sends batches until the process ends. Wakes only for spans.
///
/// Not by the exporter of the crate opentelemetry-otlp: the variables `OTEL_EXPORTER_OTLP_*` are about the collector
/// to which the supervisor exports, and not about its socket.
pub(super) async fn run(queue: Arc<SpanQueue>, resource: Resource, socket: PathBuf) {
    let channel = crate::channel::unix_with_timeout(&socket, Duration::ZERO);
    let mut supervisor = TraceServiceClient::new(EndWithMessage(channel));
    let resource = ResourceAttributesWithSchema::from(&resource);
    let mut is_logged = false;
    let mut retry_at = None;
    loop {
        wait_and_trim(&queue).await;
        queue.batch_is_due().await;
        loop {
            let batch = queue.take();
            if batch.is_empty() {
                break;
            }
            let count = batch.len();
            if retry_at.is_some_and(|until| Instant::now() < until) {
                queue.sent(0, count);
                continue;
            }
            let request = ExportTraceServiceRequest {
                resource_spans: group_spans_by_resource_and_scope(batch, &resource),
            };
            let sent = timeout(SEND_TIMEOUT, supervisor.export(request)).await;
            let lost = !matches!(sent, Ok(Ok(_)));
            if lost {
                queue.sent(0, count);
            } else {
                queue.sent(count, 0);
            }
            retry_at = lost.then(|| Instant::now() + RETRY_DELAY);
            if lost && !is_logged {
                is_logged = true;
                tracing::info!(path = %socket.display(), "failed to send spans; dropping them");
            }
        }
        queue.sent(0, 0);
    }
}

/// Waits for the next span. Work makes spans: when they cease, a burst is over, and memory is
/// trimmed.
async fn wait_and_trim(queue: &SpanQueue) {
    for quiet in [memory::FIRST_TRIM, memory::SECOND_TRIM] {
        if timeout(quiet, queue.not_empty.notified()).await.is_ok() {
            return;
        }
        memory::end_burst();
    }
    queue.not_empty.notified().await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use opentelemetry::trace::{Tracer, TracerProvider};
    use opentelemetry_sdk::trace::SdkTracerProvider;

    /// A queue with the provider that fills it.
    fn queue_of_provider() -> (Arc<SpanQueue>, SdkTracerProvider) {
        let queue = Arc::new(SpanQueue::default());
        let provider = SdkTracerProvider::builder()
            .with_span_processor(QueueProcessor::new(queue.clone()))
            .build();
        (queue, provider)
    }

    #[test]
    fn the_queue_is_bounded_and_counts_what_it_drops() {
        let (queue, provider) = queue_of_provider();
        let tracer = provider.tracer("test");
        for _ in 0..MAX_QUEUED + 3 {
            drop(tracer.start("x"));
        }
        assert_eq!(queue.waiting().dropped, 3);
        assert_eq!(queue.take().len(), MAX_BATCH);
        assert_eq!(queue.waiting().spans.len(), MAX_QUEUED - MAX_BATCH);
    }

    #[tokio::test(start_paused = true)]
    async fn a_flush_ends_the_wait_for_further_spans() {
        let (queue, provider) = queue_of_provider();
        drop(provider.tracer("test").start("x"));
        let begun = Instant::now();
        let batch = async {
            queue.batch_is_due().await;
            assert_eq!(begun.elapsed(), BATCH_DELAY / 2);
            queue.sent(queue.take().len(), 0);
        };
        let flush = async {
            tokio::time::sleep(BATCH_DELAY / 2).await;
            queue.flushed().await;
        };
        tokio::join!(batch, flush);
    }

    #[tokio::test(start_paused = true)]
    async fn a_full_batch_waits_for_no_further_spans() {
        let (queue, provider) = queue_of_provider();
        let tracer = provider.tracer("test");
        let begun = Instant::now();
        let batch = async {
            queue.batch_is_due().await;
            assert_eq!(begun.elapsed(), BATCH_DELAY / 2);
        };
        let spans = async {
            drop(tracer.start("first"));
            tokio::time::sleep(BATCH_DELAY / 2).await;
            for _ in 1..MAX_BATCH {
                drop(tracer.start("further"));
            }
        };
        tokio::join!(batch, spans);
    }

    #[test]
    fn counts_begin_with_zero() {
        let _queue = SpanQueue::new("counted-from-the-start");
        let families = crate::metrics::counted().into_iter();
        let dropped = families.filter(|family| family.name == DROPPED.name());
        let of_queue = |label: &polylet_wire::lifecycle::v1::MetricLabel| {
            label.value == "counted-from-the-start"
        };
        let series = dropped.flat_map(|family| family.series);
        let mut values = series.filter(|series| series.labels.iter().any(of_queue));
        assert_eq!(values.next().map(|series| series.value), Some(0.0));
    }

    #[tokio::test]
    async fn an_empty_queue_is_flushed() {
        SpanQueue::default().flushed().await;
    }
}
