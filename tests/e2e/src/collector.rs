use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::Server;
use tonic::{Request, Response, Status};

/// Span ids by trace id, both in hexadecimal.
type SpanIdsByTrace = BTreeMap<String, BTreeSet<String>>;

#[derive(Debug, Default)]
struct CollectedSpans {
    spans: SpanIdsByTrace,
    /// Spans that links name.
    linked: SpanIdsByTrace,
}

/// Receives spans over OTLP/gRPC and records their ids and those of their links.
#[derive(Debug)]
pub struct Collector {
    address: SocketAddr,
    received: Arc<Mutex<CollectedSpans>>,
    task: JoinHandle<()>,
}

impl Collector {
    /// Listens on a free port of the loopback address.
    ///
    /// # Panics
    /// When no port can be bound.
    pub async fn start() -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let received = Arc::<Mutex<CollectedSpans>>::default();
        let service = TraceServiceServer::new(Taker {
            received: Arc::clone(&received),
        });
        let serving =
            Server::builder().serve_with_incoming(service, TcpListenerStream::new(listener));
        let task = tokio::spawn(async move { crate::ok(serving.await) });
        Self {
            address,
            received,
            task,
        }
    }

    /// The endpoint to export spans to.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Ids of the spans of a trace received so far.
    pub fn spans_of(&self, trace: &str) -> BTreeSet<String> {
        let received = self.received.lock().unwrap_or_else(PoisonError::into_inner);
        received.spans.get(trace).cloned().unwrap_or_default()
    }

    /// Ids of the spans of a trace that links of received spans name.
    pub fn linked_spans_of(&self, trace: &str) -> BTreeSet<String> {
        let received = self.received.lock().unwrap_or_else(PoisonError::into_inner);
        received.linked.get(trace).cloned().unwrap_or_default()
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Taker {
    received: Arc<Mutex<CollectedSpans>>,
}

#[tonic::async_trait]
impl TraceService for Taker {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        let mut received = self.received.lock().unwrap_or_else(PoisonError::into_inner);
        let resources = request.into_inner().resource_spans.into_iter();
        let scopes = resources.flat_map(|resource| resource.scope_spans);
        for span in scopes.flat_map(|scope| scope.spans) {
            let of_trace = received.spans.entry(hex(&span.trace_id)).or_default();
            of_trace.insert(hex(&span.span_id));
            for link in &span.links {
                let of_trace = received.linked.entry(hex(&link.trace_id)).or_default();
                of_trace.insert(hex(&link.span_id));
            }
        }
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
