//! Spans that wait for the collector, and the task that sends them.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use polylet_schedule::Backoff;
use prost::Message;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

use super::collector::{CollectorClient, ExportError, RejectedSpans};
use super::metrics::{DROPPED, EXPORTED};

/// Most bytes of spans that wait; the oldest are dropped and counted.
const MAX_QUEUED: usize = 4 << 20;
/// Requests are put together up to this size.
const MAX_BATCH: usize = 256 << 10;
/// How long spans are sent again.
const RETRY_LIMIT: Duration = Duration::from_secs(5 * 60);
const FIRST_RETRY: Duration = Duration::from_millis(500);
const LAST_RETRY: Duration = Duration::from_secs(15);

/// Spans that wait for the collector.
#[derive(Default)]
pub(super) struct ExportQueue {
    queued: Mutex<QueuedRequests>,
    not_empty: Notify,
    empty: Notify,
}

#[derive(Default)]
struct QueuedRequests {
    requests: VecDeque<(usize, ExportTraceServiceRequest)>,
    bytes: usize,
    /// What is being sent, which another program sends again.
    sending: Option<Arc<ExportTraceServiceRequest>>,
    dropped: u64,
}

/// The number of spans of a request.
pub(super) fn count(request: &ExportTraceServiceRequest) -> u64 {
    let resources = request.resource_spans.iter();
    let scopes = resources.flat_map(|resource| &resource.scope_spans);
    scopes.map(|scope| scope.spans.len() as u64).sum()
}

impl ExportQueue {
    fn queued(&self) -> MutexGuard<'_, QueuedRequests> {
        self.queued.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues spans, and drops the oldest ones beyond the bound.
    pub(super) fn push(&self, request: ExportTraceServiceRequest) {
        let size = request.encoded_len();
        if size == 0 {
            return;
        }
        let mut queued = self.queued();
        queued.requests.push_back((size, request));
        queued.bytes += size;
        let mut dropped = 0;
        while queued.bytes > MAX_QUEUED {
            let Some((size, oldest)) = queued.requests.pop_front() else {
                break;
            };
            queued.bytes -= size;
            dropped += count(&oldest);
        }
        drop(queued);
        self.add_dropped(dropped);
        self.not_empty.notify_one();
    }

    /// Counts spans that are not exported though they were to be.
    pub(super) fn add_dropped(&self, spans: u64) {
        if spans > 0 {
            self.queued().dropped += spans;
            DROPPED.add(&[], spans as f64);
        }
    }

    /// All spans that were not accepted yet, encoded.
    pub(super) fn content(&self) -> Vec<u8> {
        let queued = self.queued();
        let waiting = queued.requests.iter().map(|(_, request)| request);
        let sending = queued.sending.as_deref();
        // Encoded requests can be joined.
        let all = sending.into_iter().chain(waiting);
        all.flat_map(Message::encode_to_vec).collect()
    }

    async fn next(&self) -> Arc<ExportTraceServiceRequest> {
        loop {
            let batch = self.queued().take();
            match batch {
                Some(batch) => return batch,
                None => {
                    self.empty.notify_waiters();
                    self.not_empty.notified().await;
                }
            }
        }
    }

    /// Waits until nothing is queued and nothing is being sent.
    pub(super) async fn flushed(&self) {
        loop {
            let empty = self.empty.notified();
            tokio::pin!(empty);
            empty.as_mut().enable();
            {
                let queued = self.queued();
                if queued.requests.is_empty() && queued.sending.is_none() {
                    return;
                }
            }
            empty.await;
        }
    }
}

impl QueuedRequests {
    fn take(&mut self) -> Option<Arc<ExportTraceServiceRequest>> {
        let mut batch = ExportTraceServiceRequest::default();
        let mut bytes = 0;
        while let Some((size, _)) = self.requests.front()
            && (bytes == 0 || bytes + size <= MAX_BATCH)
            && let Some((size, request)) = self.requests.pop_front()
        {
            bytes += size;
            batch.resource_spans.extend(request.resource_spans);
        }
        self.bytes -= bytes;
        self.sending = (bytes > 0).then(|| Arc::new(batch));
        self.sending.clone()
    }
}

/// Sends what is queued, until the process ends.
pub(super) async fn run(queue: &ExportQueue, collector: &CollectorClient) {
    let mut log = FailureLog::default();
    loop {
        let batch = queue.next().await;
        let spans = count(&batch);
        let lost = match send(collector, &batch, &mut log).await {
            Ok(rejected) => {
                EXPORTED.add(&[], spans.saturating_sub(rejected.spans) as f64);
                log.sent(&rejected, queue);
                rejected.spans
            }
            Err(error) => {
                log.failed(&error, "dropping spans");
                spans
            }
        };
        queue.add_dropped(lost);
    }
}

/// Sends spans until they are accepted, or will not be.
async fn send(
    collector: &CollectorClient,
    batch: &ExportTraceServiceRequest,
    log: &mut FailureLog,
) -> Result<RejectedSpans, ExportError> {
    let started = Instant::now();
    let mut backoff = Backoff::new(FIRST_RETRY, LAST_RETRY);
    loop {
        match collector.export(batch).await {
            Err(error) if error.is_retryable() && started.elapsed() < RETRY_LIMIT => {
                log.failed(&error, "trying again");
                sleep(backoff.next_delay()).await;
            }
            result => return result,
        }
    }
}

/// Logs the first failure, and the end of the failures.
#[derive(Default)]
struct FailureLog {
    is_failing: bool,
    is_rejection_logged: bool,
}

impl FailureLog {
    fn failed(&mut self, error: &ExportError, what_follows: &str) {
        if !std::mem::replace(&mut self.is_failing, true) {
            let error = polylet_kit::report(error);
            tracing::warn!(error, "failed to export spans; {what_follows}");
        }
    }

    fn sent(&mut self, rejected: &RejectedSpans, queue: &ExportQueue) {
        if std::mem::take(&mut self.is_failing) {
            let dropped = std::mem::take(&mut queue.queued().dropped);
            tracing::info!(dropped, "collector accepts spans again");
        }
        if rejected.spans > 0 && !std::mem::replace(&mut self.is_rejection_logged, true) {
            let RejectedSpans { spans, message } = rejected;
            tracing::warn!(spans, message, "collector rejects spans");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};

    fn request(name: usize) -> ExportTraceServiceRequest {
        let span = Span {
            name: name.to_string(),
            trace_id: vec![0; 100 << 10],
            ..Span::default()
        };
        ExportTraceServiceRequest {
            resource_spans: vec![ResourceSpans {
                scope_spans: vec![ScopeSpans {
                    spans: vec![span],
                    ..ScopeSpans::default()
                }],
                ..ResourceSpans::default()
            }],
        }
    }

    #[tokio::test]
    async fn the_oldest_spans_are_dropped_beyond_the_bound() {
        let queue = ExportQueue::default();
        for name in 0..50 {
            queue.push(request(name));
        }
        assert_eq!(queue.queued().dropped, 10);
        assert_eq!(queue.queued().requests.len(), 40);
        let first = queue.next().await;
        let name = &first.resource_spans[0].scope_spans[0].spans[0].name;
        assert_eq!(
            (name.as_str(), count(&first)),
            ("10", 2),
            "requests are put together"
        );
    }
}
