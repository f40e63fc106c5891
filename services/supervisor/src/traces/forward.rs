//! Forwarding of spans to an OTLP collector.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_client::TraceServiceClient;
use tokio::sync::mpsc;
use tonic::transport::{Channel, Endpoint};

/// The standard variables, the more specific one first.
const VARIABLES: [&str; 2] = [
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    "OTEL_EXPORTER_OTLP_ENDPOINT",
];
/// Queued requests at most; further ones are dropped and counted.
const MAX_QUEUED: usize = 64;
/// Timeout of a request.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Forwards spans through a bounded queue; dropped ones are counted.
pub(super) struct SpanForwarder {
    queue: mpsc::Sender<ExportTraceServiceRequest>,
    dropped: Arc<AtomicU64>,
}

impl SpanForwarder {
    /// A forwarder to the collector in the environment, if any. Needs the tokio runtime.
    pub(super) fn from_environment() -> Option<SpanForwarder> {
        let named = |variable: &&str| std::env::var(variable).ok().filter(|text| !text.is_empty());
        let endpoint = VARIABLES.iter().find_map(named)?;
        // Without a scheme, plain gRPC.
        let address = if endpoint.contains("://") {
            endpoint.clone()
        } else {
            format!("http://{endpoint}")
        };
        if address.starts_with("https://") {
            tracing::warn!(
                endpoint,
                "spans are not forwarded; only http endpoints are supported"
            );
            return None;
        }
        match Endpoint::from_shared(address) {
            Ok(address) => {
                tracing::info!(endpoint, "forwarding spans");
                Some(SpanForwarder::new(
                    address.connect_timeout(TIMEOUT).connect_lazy(),
                ))
            }
            Err(error) => {
                tracing::warn!(endpoint, %error, "spans are not forwarded; invalid endpoint");
                None
            }
        }
    }

    fn new(channel: Channel) -> SpanForwarder {
        let (queue, waiting) = mpsc::channel(MAX_QUEUED);
        let dropped = Arc::new(AtomicU64::new(0));
        tokio::spawn(run(channel, waiting, dropped.clone()));
        SpanForwarder { queue, dropped }
    }

    /// Queues a request, or drops it if the queue is full.
    pub(super) fn forward(&self, request: ExportTraceServiceRequest) {
        let spans = count(&request);
        if self.queue.try_send(request).is_err() {
            self.dropped.fetch_add(spans, Ordering::Relaxed);
        }
    }
}

fn count(request: &ExportTraceServiceRequest) -> u64 {
    let scopes = request
        .resource_spans
        .iter()
        .flat_map(|resource| &resource.scope_spans);
    scopes.map(|scope| scope.spans.len() as u64).sum()
}

async fn run(
    channel: Channel,
    mut waiting: mpsc::Receiver<ExportTraceServiceRequest>,
    dropped: Arc<AtomicU64>,
) {
    let mut collector = TraceServiceClient::new(channel);
    let mut failing = false;
    while let Some(request) = waiting.recv().await {
        let spans = count(&request);
        let error = match tokio::time::timeout(TIMEOUT, collector.export(request)).await {
            Ok(Ok(_)) => {
                if failing {
                    let count = dropped.swap(0, Ordering::Relaxed);
                    tracing::info!(dropped = count, "collector accepts spans again");
                }
                failing = false;
                continue;
            }
            Ok(Err(status)) => status.message().to_owned(),
            Err(_) => format!("no response within {TIMEOUT:?}"),
        };
        dropped.fetch_add(spans, Ordering::Relaxed);
        // Logged once at the first failure and once after the last.
        if !failing {
            tracing::warn!(error, "failed to forward spans; dropping them");
        }
        failing = true;
    }
}
