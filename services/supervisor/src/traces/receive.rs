//! Spans of the container runtime, over OTLP: those of traces that the node knows.

use std::net::SocketAddr;
use std::time::Duration;

use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use polylet_kit::report;
use polylet_schedule::Backoff;
use polylet_trace::TraceId;
use tokio::time::sleep;
use tonic::codec::CompressionEncoding;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status};

use super::{TraceStore, convert};

/// The largest request.
const MAX_REQUEST: usize = 4 << 20;
/// Most requests of a connection at once.
const MAX_CONCURRENT: usize = 4;
const TIMEOUT: Duration = Duration::from_secs(10);
/// Waits between attempts to listen, as another program may still have the port.
const FIRST_RETRY: Duration = Duration::from_secs(1);
const LAST_RETRY: Duration = Duration::from_secs(60);

/// Serves until the process ends.
pub(super) async fn serve(store: TraceStore, address: SocketAddr) {
    let service = TraceServiceServer::new(RuntimeSpans(store))
        .accept_compressed(CompressionEncoding::Gzip)
        .max_decoding_message_size(MAX_REQUEST);
    let mut backoff = Backoff::new(FIRST_RETRY, LAST_RETRY);
    let mut is_logged = false;
    loop {
        match TcpIncoming::bind(address) {
            Ok(incoming) => {
                tracing::info!(%address, "receiving spans of the container runtime");
                let served = Server::builder()
                    .concurrency_limit_per_connection(MAX_CONCURRENT)
                    .timeout(TIMEOUT)
                    .add_service(service.clone())
                    .serve_with_incoming(incoming)
                    .await;
                if let Err(error) = served {
                    tracing::warn!(error = report(&error), "failed to receive spans");
                }
            }
            Err(error) if !std::mem::replace(&mut is_logged, true) => {
                tracing::warn!(%address, %error, "failed to listen for spans; trying again");
            }
            Err(_) => {}
        }
        sleep(backoff.next_delay()).await;
    }
}

/// Adds spans to the traces that the node knows. Others are none of its business: the runtime has other clients.
#[derive(Clone)]
struct RuntimeSpans(TraceStore);

#[tonic::async_trait]
impl TraceService for RuntimeSpans {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        let mut request = request.into_inner();
        {
            let buffer = self.0.inner.buffer();
            let is_known = |id: &[u8]| TraceId::try_from(id).is_ok_and(|id| buffer.contains(id));
            for resource in &mut request.resource_spans {
                for scope in &mut resource.scope_spans {
                    scope.spans.retain(|span| is_known(&span.trace_id));
                    scope.spans.iter_mut().for_each(convert::limit_foreign);
                }
                resource.scope_spans.retain(|scope| !scope.spans.is_empty());
            }
        }
        request
            .resource_spans
            .retain(|resource| !resource.scope_spans.is_empty());
        if !request.resource_spans.is_empty() {
            self.0.add(request, convert::foreign_resource_of);
        }
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}
