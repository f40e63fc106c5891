//! A client's request for a prepared stream: passed on, translated or tunnelled.

use std::net::IpAddr;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::Request;
use axum::http::header::{
    CONNECTION, CONTENT_LENGTH, HeaderName, TRANSFER_ENCODING, UPGRADE, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use axum::response::{IntoResponse, Response};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::sync::OwnedSemaphorePermit;

use super::Streams;
use super::backend::{self, BackendResponse};
use super::client_socket::ClientSocket;
use super::relay::relay;
use super::runtime_url::{self, RuntimeUrl};
use super::translator;
use super::tunnel::tunnel;
use super::websocket;
use crate::core::streaming::remote_status::internal_error;
use crate::core::streaming::request::StreamOptions;
use crate::core::streaming::upgrade::{
    self, REMOTE_COMMAND_V5, TUNNEL_PREFIX, forwarded_for, is_withheld,
};
use crate::server::HttpConnection;

const SPDY: HeaderValue = HeaderValue::from_static("SPDY/3.1");
const PROTOCOL_VERSION: HeaderName = HeaderName::from_static("x-stream-protocol-version");
const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
/// The protocol of commands that all runtimes speak over SPDY.
const REMOTE_COMMAND_V4: HeaderValue = HeaderValue::from_static("v4.channel.k8s.io");
/// Headers of a WebSocket's handshake.
const OF_WEBSOCKET: [&str; 4] = [
    "sec-websocket-protocol",
    "sec-websocket-key",
    "sec-websocket-version",
    "sec-websocket-extensions",
];

/// What a request for a stream says, beside its path.
pub(crate) struct StreamRequest {
    method: Method,
    headers: HeaderMap,
    client: Option<IpAddr>,
    socket: ClientSocket,
    on_upgrade: OnUpgrade,
}

impl StreamRequest {
    pub(crate) fn new(mut request: Request) -> Self {
        let on_upgrade = hyper::upgrade::on(&mut request);
        let connection = request.extensions().get::<Arc<HttpConnection>>();
        let client = connection.map(|connection| connection.address());
        let socket = connection.and_then(|connection| connection.socket());
        let (parts, _) = request.into_parts();
        Self {
            method: parts.method,
            headers: parts.headers,
            client,
            socket: ClientSocket::new(socket),
            on_upgrade,
        }
    }

    pub(crate) fn headers(&self) -> &HeaderMap {
        &self.headers
    }

    /// The headers for the runtime: the client's without its credentials, and with its address.
    fn backend_headers(&self) -> HeaderMap {
        let mut headers = self.headers.clone();
        // What the client sends after its headers belongs to the stream.
        headers.remove(CONTENT_LENGTH);
        headers.remove(TRANSFER_ENCODING);
        for name in self.headers.keys().filter(|name| is_withheld(name)) {
            headers.remove(name);
        }
        if let Some(client) = self.client {
            let before = headers.get_all(FORWARDED_FOR).iter();
            let before: Vec<_> = before.filter_map(|value| value.to_str().ok()).collect();
            let value = forwarded_for(Some(&before.join(", ")), &client.to_string());
            if let Ok(value) = HeaderValue::from_str(&value) {
                let _ = headers.try_insert(FORWARDED_FOR, value);
            }
        }
        headers
    }
}

/// Serves the streams of a command or of a container, which the runtime has prepared at `url`.
pub(crate) async fn serve_command(
    streams: &Streams,
    permit: OwnedSemaphorePermit,
    request: StreamRequest,
    url: &str,
    options: StreamOptions,
) -> Response {
    let url = match runtime_url::parse(url) {
        Ok(url) => url,
        Err(error) => return proxy_error(&error),
    };
    if streams.translates && upgrade::is_remote_command_v5(&request.headers) {
        translate(streams, permit, request, url, options)
    } else {
        pass_on(streams, permit, request, &url).await
    }
}

/// Forwards ports of a pod, which the runtime has prepared at `url`.
pub(crate) async fn serve_ports(
    streams: &Streams,
    permit: OwnedSemaphorePermit,
    request: StreamRequest,
    url: &str,
) -> Response {
    let url = match runtime_url::parse(url) {
        Ok(url) => url,
        Err(error) => return proxy_error(&error),
    };
    if streams.tunnels(&request) {
        tunnel_ports(streams, permit, request, &url).await
    } else {
        pass_on(streams, permit, request, &url).await
    }
}

impl Streams {
    /// Whether SPDY is carried within the client's WebSocket.
    pub(crate) fn tunnels(&self, request: &StreamRequest) -> bool {
        self.translates && !upgrade::tunnelled_protocols(&request.headers).is_empty()
    }
}

/// Joins the client and the runtime, whatever they speak.
async fn pass_on(
    streams: &Streams,
    permit: OwnedSemaphorePermit,
    request: StreamRequest,
    url: &RuntimeUrl,
) -> Response {
    if !upgrade::is_upgrade(&request.headers) {
        return proxy_error(&"Upgrade request required");
    }
    let headers = request.backend_headers();
    let (headers, backend) = match backend::upgrade(url, request.method, headers).await {
        Ok(BackendResponse::Switched(headers, backend)) => (headers, backend),
        Ok(BackendResponse::Refused(refused)) => return refused.into_response(),
        Err(error) => return proxy_error(&error),
    };
    let idle_timeout = streams.idle_timeout;
    streams.spawn(permit, async move {
        if let Ok(client) = request.on_upgrade.await {
            let (client, backend) = (TokioIo::new(client), TokioIo::new(*backend));
            relay(client, backend, idle_timeout, request.socket).await;
        }
    });
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    *response.headers_mut() = headers;
    response
}

/// Accepts the WebSocket at once, as upstream: errors of the runtime are results of the command.
fn translate(
    streams: &Streams,
    permit: OwnedSemaphorePermit,
    request: StreamRequest,
    url: RuntimeUrl,
    options: StreamOptions,
) -> Response {
    let protocol = Some(REMOTE_COMMAND_V5);
    let response = websocket::handshake(&request.method, &request.headers, protocol);
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        return response;
    }
    let idle_timeout = streams.idle_timeout;
    streams.spawn(permit, async move {
        let Ok(upgraded) = request.on_upgrade.await else {
            return;
        };
        let mut client = websocket::accept(TokioIo::new(upgraded)).await;
        if !translator::greet(&mut client, options).await {
            return;
        }
        match backend::upgrade(&url, Method::POST, spdy_headers([REMOTE_COMMAND_V4])).await {
            Ok(BackendResponse::Switched(_, backend)) => {
                let backend = TokioIo::new(*backend);
                let socket = request.socket;
                translator::translate(client, backend, options, idle_timeout, socket).await;
            }
            Ok(BackendResponse::Refused(refused)) => {
                let text = String::from_utf8_lossy(&refused.body);
                let message = format!("unable to upgrade connection: {}", text.trim());
                translator::finish(client, &internal_error(&message)).await;
            }
            Err(error) => translator::finish(client, &internal_error(&error.to_string())).await,
        }
    });
    response
}

async fn tunnel_ports(
    streams: &Streams,
    permit: OwnedSemaphorePermit,
    request: StreamRequest,
    url: &RuntimeUrl,
) -> Response {
    let mut headers = request.backend_headers();
    for name in OF_WEBSOCKET {
        headers.remove(name);
    }
    let requested = upgrade::tunnelled_protocols(&request.headers);
    let requested = requested.iter().flat_map(|one| HeaderValue::from_str(one));
    put_spdy(&mut headers, requested);
    let (answered, backend) = match backend::upgrade(url, Method::POST, headers).await {
        Ok(BackendResponse::Switched(headers, backend)) => (headers, backend),
        Ok(BackendResponse::Refused(refused)) => return refused.into_response(),
        Err(error) => return proxy_error(&error),
    };
    let protocol = answered.get(UPGRADE).and_then(|value| value.to_str().ok());
    if !protocol.is_some_and(|value| value.to_ascii_lowercase().contains("spdy/3.1")) {
        return proxy_error(&"unable to upgrade: missing upgrade headers in response");
    }
    let version = answered.get(PROTOCOL_VERSION);
    let version = version.and_then(|value| value.to_str().ok());
    let protocol = version.map(|version| format!("{TUNNEL_PREFIX}{}", version.trim()));
    let protocol = protocol.as_deref();
    let response = websocket::handshake(&request.method, &request.headers, protocol);
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        return response;
    }
    let idle_timeout = streams.idle_timeout;
    streams.spawn(permit, async move {
        if let Ok(upgraded) = request.on_upgrade.await {
            let client = websocket::accept(TokioIo::new(upgraded)).await;
            tunnel(client, TokioIo::new(*backend), idle_timeout, request.socket).await;
        }
    });
    response
}

fn spdy_headers(protocols: impl IntoIterator<Item = HeaderValue>) -> HeaderMap {
    let mut headers = HeaderMap::new();
    let upgrade = HeaderValue::from_static("Upgrade");
    let _ = headers.try_insert(CONNECTION, upgrade);
    put_spdy(&mut headers, protocols);
    headers
}

fn put_spdy(headers: &mut HeaderMap, protocols: impl IntoIterator<Item = HeaderValue>) {
    let _ = headers.try_insert(UPGRADE, SPDY);
    headers.remove(PROTOCOL_VERSION);
    for protocol in protocols {
        let _ = headers.try_append(PROTOCOL_VERSION, protocol);
    }
}

/// Upstream's response when a request cannot be passed on.
fn proxy_error(error: &impl std::fmt::Display) -> Response {
    let message = format!("{error}\n");
    let headers = [(X_CONTENT_TYPE_OPTIONS, "nosniff")];
    (StatusCode::INTERNAL_SERVER_ERROR, headers, message).into_response()
}
