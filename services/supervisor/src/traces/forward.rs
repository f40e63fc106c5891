use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_client::TraceServiceClient;
use tokio::sync::mpsc;
use tonic::transport::{Channel, Endpoint};

/// The standard variables, the more special one first.
const VARIABLES: [&str; 2] = [
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    "OTEL_EXPORTER_OTLP_ENDPOINT",
];
/// Requests waiting at most; what comes on top is dropped and counted.
const QUEUED: usize = 64;
/// One request may take this long.
const SEND: Duration = Duration::from_secs(5);

/// Passes spans on to a collector: bounded, lossy, counted.
pub(super) struct Forward {
    queue: mpsc::Sender<ExportTraceServiceRequest>,
    dropped: Arc<AtomicU64>,
}

impl Forward {
    /// The collector that the environment names, if any. Needs the tokio runtime.
    pub(super) fn from_environment() -> Option<Forward> {
        let named = |variable: &&str| std::env::var(variable).ok().filter(|text| !text.is_empty());
        let endpoint = VARIABLES.iter().find_map(named)?;
        // Without a scheme it is what OTLP over gRPC usually is.
        let address = if endpoint.contains("://") {
            endpoint.clone()
        } else {
            format!("http://{endpoint}")
        };
        if address.starts_with("https://") {
            tracing::warn!(
                endpoint,
                "spans are not forwarded: this build forwards over http only"
            );
            return None;
        }
        match Endpoint::from_shared(address) {
            Ok(address) => {
                tracing::info!(endpoint, "forwarding spans");
                Some(Forward::to(address.connect_timeout(SEND).connect_lazy()))
            }
            Err(error) => {
                tracing::warn!(endpoint, %error, "spans are not forwarded: not an endpoint");
                None
            }
        }
    }

    fn to(channel: Channel) -> Forward {
        let (queue, waiting) = mpsc::channel(QUEUED);
        let dropped = Arc::new(AtomicU64::new(0));
        tokio::spawn(run(channel, waiting, dropped.clone()));
        Forward { queue, dropped }
    }

    /// Queues a request, or drops it when the collector is too slow.
    pub(super) fn pass(&self, request: ExportTraceServiceRequest) {
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
        let why = match tokio::time::timeout(SEND, collector.export(request)).await {
            Ok(Ok(_)) => {
                if failing {
                    let lost = dropped.swap(0, Ordering::Relaxed);
                    tracing::info!(lost, "the collector takes spans again");
                }
                failing = false;
                continue;
            }
            Ok(Err(status)) => status.message().to_owned(),
            Err(_) => format!("no answer within {SEND:?}"),
        };
        dropped.fetch_add(spans, Ordering::Relaxed);
        // Told when it begins and when it is over, not for each request.
        if !failing {
            tracing::warn!(why, "the collector takes no spans, they are dropped");
        }
        failing = true;
    }
}
