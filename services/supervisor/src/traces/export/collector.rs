//! The collector: one request over gRPC or HTTP, and what its answer means.

use std::io::Write;
use std::time::Duration;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http::{HeaderName, HeaderValue, Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_client::TraceServiceClient;
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use polylet_kit::report;
use prost::Message;
use rustls::ClientConfig;
use tokio::time::timeout;
use tonic::body::Body;
use tonic::codec::CompressionEncoding;
use tonic::metadata::{KeyAndValueRef, MetadataMap};
use tonic::{Code, Status};

use super::settings::{ExportEndpoint, ExportProtocol, ExportSettings};
use super::tls::{CollectorTlsError, client_config};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Most bytes of an answer that are read.
const MAX_ANSWER: usize = 64 << 10;

/// Why spans were not accepted.
#[derive(Debug, thiserror::Error)]
pub(super) enum ExportError {
    #[error("no answer within {0:?}")]
    Timeout(Duration),
    #[error("{0}")]
    Transport(String),
    #[error("{code:?}: {message}")]
    Grpc { code: Code, message: String },
    #[error("HTTP status {0}")]
    Http(StatusCode),
    #[error("compressing a request")]
    Compress(#[source] std::io::Error),
    #[error("encoding a request")]
    Encode(#[source] http::Error),
}

impl ExportError {
    /// Whether the same spans may be accepted later, as the specification of OTLP says.
    pub(super) fn is_retryable(&self) -> bool {
        match self {
            ExportError::Timeout(_) | ExportError::Transport(_) => true,
            ExportError::Grpc { code, .. } => matches!(
                code,
                Code::Cancelled
                    | Code::DeadlineExceeded
                    | Code::Aborted
                    | Code::OutOfRange
                    | Code::Unavailable
                    | Code::DataLoss
                    | Code::ResourceExhausted
            ),
            ExportError::Http(status) => matches!(status.as_u16(), 429 | 502 | 503 | 504),
            ExportError::Compress(_) | ExportError::Encode(_) => false,
        }
    }
}

/// Spans that a collector has accepted the request of, and rejected.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct RejectedSpans {
    pub(super) spans: u64,
    pub(super) message: String,
}

type HttpClient = Client<HttpsConnector<HttpConnector>, Body>;

/// A client of a collector.
pub(super) struct CollectorClient {
    transport: Transport,
    headers: Vec<(HeaderName, HeaderValue)>,
    timeout: Duration,
    gzip: bool,
}

enum Transport {
    Grpc(TraceServiceClient<HttpClient>),
    GrpcUnix(TraceServiceClient<tonic::transport::Channel>),
    Http { client: HttpClient, url: Uri },
}

impl CollectorClient {
    /// A client, which connects with the first request. Needs the tokio runtime.
    ///
    /// # Errors
    /// Certificates cannot be read, or are none.
    pub(super) fn new(settings: ExportSettings) -> Result<CollectorClient, CollectorTlsError> {
        let transport = match (&settings.endpoint, settings.protocol) {
            (ExportEndpoint::Unix(path), _) => {
                Transport::GrpcUnix(TraceServiceClient::new(polylet_kit::channel::unix(path)))
            }
            (ExportEndpoint::Url(url), ExportProtocol::Grpc) => {
                let client = http_client(client_config(&settings)?, true);
                Transport::Grpc(TraceServiceClient::with_origin(client, url.clone()))
            }
            (ExportEndpoint::Url(url), ExportProtocol::HttpProtobuf) => Transport::Http {
                client: http_client(client_config(&settings)?, false),
                url: url.clone(),
            },
        };
        Ok(CollectorClient {
            transport,
            headers: settings.headers,
            timeout: settings.timeout,
            gzip: settings.gzip,
        })
    }

    /// Sends spans once.
    pub(super) async fn export(
        &self,
        spans: &ExportTraceServiceRequest,
    ) -> Result<RejectedSpans, ExportError> {
        let sending = async {
            match &self.transport {
                Transport::Grpc(client) => {
                    let mut client = client.clone();
                    if self.gzip {
                        client = client.send_compressed(CompressionEncoding::Gzip);
                    }
                    let request = self.grpc_request(spans);
                    client
                        .export(request)
                        .await
                        .map_err(grpc_error)
                        .map(tonic::Response::into_inner)
                }
                Transport::GrpcUnix(client) => {
                    let mut client = client.clone();
                    let request = self.grpc_request(spans);
                    client
                        .export(request)
                        .await
                        .map_err(grpc_error)
                        .map(tonic::Response::into_inner)
                }
                Transport::Http { client, url } => self.post(client, url, spans).await,
            }
        };
        let answer = timeout(self.timeout, sending).await;
        let answer = answer.map_err(|_| ExportError::Timeout(self.timeout))??;
        let rejected = answer.partial_success.unwrap_or_default();
        Ok(RejectedSpans {
            spans: u64::try_from(rejected.rejected_spans).unwrap_or_default(),
            message: rejected.error_message,
        })
    }

    fn grpc_request(
        &self,
        spans: &ExportTraceServiceRequest,
    ) -> tonic::Request<ExportTraceServiceRequest> {
        let mut request = tonic::Request::new(spans.clone());
        let headers = self.headers.iter().cloned();
        let headers = MetadataMap::from_headers(headers.collect());
        for header in headers.iter() {
            // Those that gRPC reserves are left out by the map.
            if let KeyAndValueRef::Ascii(name, value) = header {
                request.metadata_mut().insert(name, value.clone());
            }
        }
        request
    }

    async fn post(
        &self,
        client: &HttpClient,
        url: &Uri,
        spans: &ExportTraceServiceRequest,
    ) -> Result<ExportTraceServiceResponse, ExportError> {
        let mut body = spans.encode_to_vec();
        let mut request = Request::builder()
            .method(Method::POST)
            .uri(url)
            .header(CONTENT_TYPE, "application/x-protobuf");
        if self.gzip {
            let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
            encoder.write_all(&body).map_err(ExportError::Compress)?;
            body = encoder.finish().map_err(ExportError::Compress)?;
            request = request.header(CONTENT_ENCODING, "gzip");
        }
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        let body = Body::new(Full::new(Bytes::from(body)));
        let request = request.body(body).map_err(ExportError::Encode)?;
        let answer = client.request(request).await;
        let answer = answer.map_err(|error| ExportError::Transport(report(&error)))?;
        if !answer.status().is_success() {
            return Err(ExportError::Http(answer.status()));
        }
        let body = Limited::new(answer.into_body(), MAX_ANSWER).collect().await;
        let body = body.map_err(|error| ExportError::Transport(error.to_string()))?;
        // Whatever else a server answers with success, it has accepted the spans.
        Ok(ExportTraceServiceResponse::decode(body.to_bytes()).unwrap_or_default())
    }
}

fn grpc_error(status: Status) -> ExportError {
    // An error of the connection has a cause, which says more than its code.
    let error: Option<&(dyn std::error::Error + 'static)> = std::error::Error::source(&status);
    match error {
        Some(error) => ExportError::Transport(report(error)),
        None => ExportError::Grpc {
            code: status.code(),
            message: status.message().to_owned(),
        },
    }
}

fn http_client(tls: ClientConfig, is_grpc: bool) -> HttpClient {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(CONNECT_TIMEOUT));
    let connector = hyper_rustls::HttpsConnectorBuilder::new()
        .with_tls_config(tls)
        .https_or_http();
    let connector = match is_grpc {
        true => connector.enable_http2().wrap_connector(tcp),
        false => connector.enable_all_versions().wrap_connector(tcp),
    };
    Client::builder(TokioExecutor::new())
        .timer(TokioTimer::new())
        .pool_timer(TokioTimer::new())
        .http2_only(is_grpc)
        .build(connector)
}
