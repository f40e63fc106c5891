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

use super::bounded_incoming::bounded;
use super::{TraceStore, convert};

/// The largest request.
const MAX_REQUEST: usize = 4 << 20;
/// Most connections at once: of the runtime, and of its shims.
const MAX_CONNECTIONS: usize = 16;
/// Most requests of a connection that are handled at once.
const MAX_CONCURRENT: usize = 4;
/// Most streams of a connection, whose requests wait.
const MAX_STREAMS: u32 = 16;
/// Most bytes of a connection that wait to be read.
const CONNECTION_WINDOW: u32 = 2 * MAX_REQUEST as u32;
/// Most bytes of a request's headers.
const MAX_HEADERS: u32 = 16 << 10;
const TIMEOUT: Duration = Duration::from_secs(10);
/// A connection without an answer to a ping for this long is closed.
const PING_TIMEOUT: Duration = Duration::from_secs(10);
const PING_INTERVAL: Duration = Duration::from_secs(30);
/// Connections are closed after this time, so that those in no use do not keep others out.
const MAX_AGE: Duration = Duration::from_secs(10 * 60);
const MAX_AGE_GRACE: Duration = Duration::from_secs(30);
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
                let served = server()
                    .add_service(service.clone())
                    .serve_with_incoming(bounded(incoming, MAX_CONNECTIONS))
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

/// A server that no client can make hold much, whatever it sends or leaves open.
fn server() -> Server {
    Server::builder()
        .concurrency_limit_per_connection(MAX_CONCURRENT)
        .max_concurrent_streams(MAX_STREAMS)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .http2_max_header_list_size(MAX_HEADERS)
        .http2_keepalive_interval(Some(PING_INTERVAL))
        .http2_keepalive_timeout(Some(PING_TIMEOUT))
        .max_connection_age(MAX_AGE)
        .max_connection_age_grace(MAX_AGE_GRACE)
        .timeout(TIMEOUT)
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
            self.0.inner.buffer().expect_from_runtime(super::now());
            self.0.add(request, convert::foreign_resource_of);
        }
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

#[cfg(test)]
mod tests {
    use opentelemetry_proto::tonic::collector::trace::v1::trace_service_client::TraceServiceClient;
    use polylet_kit::config::TraceRing;
    use tokio::io::AsyncReadExt;
    use tokio::net::TcpStream;
    use tokio::time::timeout;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(20);

    fn free_address() -> SocketAddr {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap()
    }

    /// Whether the server has closed a connection, which it does at once or not at all.
    async fn is_closed(connection: &mut TcpStream) -> bool {
        let mut bytes = [0; 64];
        loop {
            match timeout(Duration::from_millis(300), connection.read(&mut bytes)).await {
                Ok(Ok(0) | Err(_)) => return true,
                // The server's settings.
                Ok(Ok(_)) => {}
                Err(_) => return false,
            }
        }
    }

    #[tokio::test]
    async fn connections_beyond_the_bound_are_closed_until_others_end() {
        let store = TraceStore::for_tests(&TraceRing::default());
        let address = free_address();
        let server = tokio::spawn(serve(store, address));
        let mut open = Vec::new();
        while open.len() < MAX_CONNECTIONS {
            match TcpStream::connect(address).await {
                Ok(connection) => open.push(connection),
                // It does not listen yet.
                Err(_) => sleep(Duration::from_millis(10)).await,
            }
        }
        assert!(!is_closed(open.last_mut().unwrap()).await);
        for _ in 0..4 {
            let mut further = TcpStream::connect(address).await.unwrap();
            assert!(is_closed(&mut further).await);
        }
        assert!(!is_closed(&mut open[0]).await, "those before stay");
        drop(open);
        // A client that comes again is served.
        let exported = async {
            loop {
                let endpoint = format!("http://{address}");
                if let Ok(mut client) = TraceServiceClient::connect(endpoint).await {
                    let request = ExportTraceServiceRequest::default();
                    if client.export(request).await.is_ok() {
                        return;
                    }
                }
                sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(PATIENCE, exported).await.expect("served again");
        server.abort();
    }
}
