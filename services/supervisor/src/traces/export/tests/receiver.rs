//! A collector: OTLP over gRPC and HTTP on one port, with TLS or without.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use axum::extract::State;
use axum::routing::post;
use flate2::read::GzDecoder;
use http::HeaderMap;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use polylet_trace::TraceId;
use prost::Message;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::PrivateKeyDer;
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;
use tonic::codec::CompressionEncoding;
use tonic::{Request, Response, Status};

/// What was received: names of spans by trace, and the headers of the last request.
#[derive(Default)]
struct Received {
    traces: HashMap<TraceId, Vec<String>>,
    headers: HeaderMap,
}

#[derive(Clone, Default)]
struct Service(Arc<Mutex<Received>>);

impl Service {
    fn add(&self, request: ExportTraceServiceRequest, headers: HeaderMap) {
        let mut received = self.0.lock().unwrap();
        received.headers = headers;
        for resource in request.resource_spans {
            for span in resource
                .scope_spans
                .into_iter()
                .flat_map(|scope| scope.spans)
            {
                let trace = span.trace_id.try_into().unwrap();
                let parent = span.parent_span_id.as_slice();
                let name = match parent {
                    [] => span.name,
                    parent => format!("{}<-{}", span.name, polylet_trace::hex(parent)),
                };
                received.traces.entry(trace).or_default().push(name);
            }
        }
    }
}

#[tonic::async_trait]
impl TraceService for Service {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        let headers = request.metadata().clone().into_headers();
        self.add(request.into_inner(), headers);
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

/// Certificates in files.
pub(super) struct ReceiverTls {
    pub(super) authority: PathBuf,
    pub(super) other_authority: PathBuf,
    config: Arc<rustls::ServerConfig>,
}

impl ReceiverTls {
    pub(super) fn new(dir: &Path) -> ReceiverTls {
        let authority = || {
            let mut params = CertificateParams::default();
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
        };
        let (own, other) = (authority(), authority());
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(["localhost".to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &own).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap();
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let mut config = config
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key)
            .unwrap();
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let paths = ["own.pem", "other.pem"].map(|name| dir.join(name));
        std::fs::write(&paths[0], own.pem()).unwrap();
        std::fs::write(&paths[1], other.pem()).unwrap();
        let [authority, other_authority] = paths;
        ReceiverTls {
            authority,
            other_authority,
            config: Arc::new(config),
        }
    }
}

/// A running collector.
pub(super) struct Receiver {
    service: Service,
    address: SocketAddr,
    tls: Option<TlsAcceptor>,
    task: JoinHandle<()>,
}

impl Receiver {
    pub(super) async fn start(tls: Option<&ReceiverTls>) -> Receiver {
        let service = Service::default();
        let tls = tls.map(|tls| TlsAcceptor::from(tls.config.clone()));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let task = tokio::spawn(serve(listener, service.clone(), tls.clone()));
        Receiver {
            service,
            address,
            tls,
            task,
        }
    }

    pub(super) fn url(&self) -> String {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://localhost:{}", self.address.port())
    }

    /// Closes the port and all connections.
    pub(super) async fn stop(&mut self) -> u16 {
        self.task.abort();
        let _ = (&mut self.task).await;
        self.address.port()
    }

    pub(super) async fn restart(&mut self, port: u16) {
        let listener = TcpListener::bind(("127.0.0.1", port)).await.unwrap();
        self.task = tokio::spawn(serve(listener, self.service.clone(), self.tls.clone()));
    }

    pub(super) fn traces(&mut self) -> HashMap<TraceId, Vec<String>> {
        std::mem::take(&mut self.service.0.lock().unwrap().traces)
    }

    pub(super) fn headers(&self) -> HeaderMap {
        self.service.0.lock().unwrap().headers.clone()
    }
}

async fn serve(listener: TcpListener, service: Service, tls: Option<TlsAcceptor>) {
    let grpc =
        TraceServiceServer::new(service.clone()).accept_compressed(CompressionEncoding::Gzip);
    let router = tonic::service::Routes::new(grpc).into_axum_router();
    let http = axum::Router::new()
        .route("/v1/traces", post(over_http))
        .with_state(service);
    let router = TowerToHyperService::new(router.merge(http));
    let mut connections = JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let (router, tls) = (router.clone(), tls.clone());
        connections.spawn(async move {
            let server = auto::Builder::new(TokioExecutor::new());
            match tls {
                None => drop(server.serve_connection(TokioIo::new(stream), router).await),
                Some(tls) => {
                    let Ok(stream) = tls.accept(stream).await else {
                        return;
                    };
                    drop(server.serve_connection(TokioIo::new(stream), router).await);
                }
            }
        });
    }
}

async fn over_http(
    State(service): State<Service>,
    headers: HeaderMap,
    body: bytes::Bytes,
) -> Vec<u8> {
    assert_eq!(headers["content-type"], "application/x-protobuf");
    let is_gzip = headers
        .get("content-encoding")
        .is_some_and(|encoding| encoding == "gzip");
    let mut plain = Vec::new();
    let request = match is_gzip {
        true => {
            std::io::Read::read_to_end(&mut GzDecoder::new(body.as_ref()), &mut plain).unwrap();
            ExportTraceServiceRequest::decode(plain.as_slice()).unwrap()
        }
        false => ExportTraceServiceRequest::decode(body).unwrap(),
    };
    service.add(request, headers);
    ExportTraceServiceResponse::default().encode_to_vec()
}
