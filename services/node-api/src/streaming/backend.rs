//! Connections to the runtime's streaming server.

use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::header::{CONNECTION, HOST, HeaderName};
use axum::http::{HeaderMap, Method, Request, StatusCode};
use axum::response::{IntoResponse, Response};
use http_body_util::{BodyExt, Empty, LengthLimitError, Limited};
use hyper::client::conn::http1;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::runtime_url::RuntimeUrl;

/// Time for the response to the upgrade.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(30);
/// Time for the body of an error.
const ERROR_TIMEOUT: Duration = Duration::from_secs(10);
/// Largest body of an error.
const MAX_ERROR: usize = 64 << 10;
const MAX_HEADERS: usize = 64 << 10;

/// What the runtime responded.
pub(super) enum BackendResponse {
    /// The connection is upgraded.
    Switched(HeaderMap, Box<Upgraded>),
    /// An error of the runtime, for the client.
    Refused(RefusedUpgrade),
}

/// An error response of the runtime.
pub(super) struct RefusedUpgrade {
    pub(super) status: StatusCode,
    headers: HeaderMap,
    pub(super) body: Bytes,
}

/// Why there is no response of the runtime.
#[derive(Debug, thiserror::Error)]
pub(super) enum RuntimeServerError {
    #[error("error dialing backend: {0}")]
    Connect(#[source] std::io::Error),
    #[error("error sending request: {0}")]
    Request(#[source] hyper::Error),
    #[error("error sending request: {0}")]
    InvalidRequest(#[source] axum::http::Error),
    #[error("the runtime's streaming server did not respond in time")]
    Timeout,
    #[error("invalid upgrade response: status code {0}")]
    Status(u16),
    #[error("failed to upgrade the connection to the runtime: {0}")]
    Upgrade(#[source] hyper::Error),
    #[error("failed to read the runtime's response: {0}")]
    Body(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// Connects to a prepared stream and asks for the upgrade that the headers describe.
///
/// # Errors
/// When there is no response, or one that is neither an upgrade nor an error.
pub(super) async fn upgrade(
    url: &RuntimeUrl,
    method: Method,
    headers: HeaderMap,
) -> Result<BackendResponse, RuntimeServerError> {
    let response = timeout(RESPONSE_TIMEOUT, send(url, method, headers));
    let response = response.await.map_err(|_| RuntimeServerError::Timeout)??;
    let status = response.status();
    if status == StatusCode::SWITCHING_PROTOCOLS {
        let headers = response.headers().clone();
        let upgraded = hyper::upgrade::on(response).await;
        let upgraded = upgraded.map_err(RuntimeServerError::Upgrade)?;
        return Ok(BackendResponse::Switched(headers, Box::new(upgraded)));
    }
    if status.as_u16() < 400 {
        return Err(RuntimeServerError::Status(status.as_u16()));
    }
    let (parts, body) = response.into_parts();
    let body = timeout(ERROR_TIMEOUT, Limited::new(body, MAX_ERROR).collect());
    let body = match body.await.map_err(|_| RuntimeServerError::Timeout)? {
        Ok(body) => body.to_bytes(),
        Err(error) if error.is::<LengthLimitError>() => Bytes::new(),
        Err(error) => return Err(RuntimeServerError::Body(error)),
    };
    Ok(BackendResponse::Refused(RefusedUpgrade {
        status,
        headers: parts.headers,
        body,
    }))
}

async fn send(
    url: &RuntimeUrl,
    method: Method,
    headers: HeaderMap,
) -> Result<axum::http::Response<hyper::body::Incoming>, RuntimeServerError> {
    let stream = TcpStream::connect(url.address).await;
    let stream = stream.map_err(RuntimeServerError::Connect)?;
    // Single keys and their echo would wait for more otherwise.
    stream
        .set_nodelay(true)
        .map_err(RuntimeServerError::Connect)?;
    let (mut sender, connection) = http1::Builder::new()
        .max_buf_size(MAX_HEADERS)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(RuntimeServerError::Request)?;
    // Ends with the response, or hands the connection over.
    tokio::spawn(connection.with_upgrades());
    let mut request = Request::builder()
        .method(method)
        .uri(&url.path)
        .body(Empty::<Bytes>::new())
        .map_err(RuntimeServerError::InvalidRequest)?;
    let has_host = headers.contains_key(HOST);
    *request.headers_mut() = headers;
    if !has_host {
        let host = url.address.to_string().parse();
        let host = host
            .map_err(|error| RuntimeServerError::InvalidRequest(axum::http::Error::from(error)));
        let _ = request.headers_mut().try_insert(HOST, host?);
    }
    sender
        .send_request(request)
        .await
        .map_err(RuntimeServerError::Request)
}

/// Headers that describe the connection or the length of the body, which the server writes itself.
const OF_CONNECTION: [HeaderName; 4] = [
    CONNECTION,
    axum::http::header::TRANSFER_ENCODING,
    axum::http::header::CONTENT_LENGTH,
    axum::http::header::UPGRADE,
];

impl IntoResponse for RefusedUpgrade {
    /// The runtime's response, after which the connection is closed, as upstream.
    fn into_response(mut self) -> Response {
        for name in OF_CONNECTION {
            self.headers.remove(name);
        }
        let close = axum::http::HeaderValue::from_static("close");
        let _ = self.headers.try_insert(CONNECTION, close);
        let mut response = Response::new(Body::from(self.body));
        *response.status_mut() = self.status;
        *response.headers_mut() = self.headers;
        response
    }
}
