//! The server's side of WebSockets: the handshake, and limits of messages.

use std::time::Duration;

use axum::body::Body;
use axum::http::header::{
    CONNECTION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL,
    SEC_WEBSOCKET_VERSION, UPGRADE,
};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures::{SinkExt, StreamExt};
use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Error, Message};

/// The largest message of a client. Clients send some ten kilobytes at a time.
const MAX_MESSAGE: usize = 4 << 20;
const BUFFER: usize = 16 << 10;
/// How long a client may take to receive the last messages, and to close.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);

/// The version of the protocol.
const VERSION: &str = "13";
/// The part of the handshake's key that the protocol fixes.
const KEY_SUFFIX: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// The response to a client's handshake, which selects a protocol; an error says what is wrong with it.
pub(super) fn handshake(method: &Method, headers: &HeaderMap, protocol: Option<&str>) -> Response {
    let key = match handshake_key(method, headers) {
        Ok(key) => key,
        Err((code, message)) => {
            // The version that is expected.
            let version = [(SEC_WEBSOCKET_VERSION, VERSION)];
            return (code, version, message).into_response();
        }
    };
    let mut response = Response::builder()
        .status(StatusCode::SWITCHING_PROTOCOLS)
        .header(UPGRADE, "websocket")
        .header(CONNECTION, "Upgrade")
        .header(SEC_WEBSOCKET_ACCEPT, accept_key(key));
    if let Some(protocol) = protocol {
        response = response.header(SEC_WEBSOCKET_PROTOCOL, protocol);
    }
    response.body(Body::empty()).unwrap_or_else(|_| {
        let message = "websocket: invalid protocol\n";
        (StatusCode::BAD_REQUEST, message).into_response()
    })
}

/// The key of a valid handshake; otherwise the status and the message of the response.
fn handshake_key<'a>(
    method: &Method,
    headers: &'a HeaderMap,
) -> Result<&'a [u8], (StatusCode, &'static str)> {
    if method != Method::GET {
        let message = "websocket: the method of a handshake is GET\n";
        return Err((StatusCode::METHOD_NOT_ALLOWED, message));
    }
    let version = headers.get(SEC_WEBSOCKET_VERSION);
    if version.is_none_or(|version| version.as_bytes() != VERSION.as_bytes()) {
        let message = "websocket: unsupported version: 13 is expected\n";
        return Err((StatusCode::BAD_REQUEST, message));
    }
    let key = headers.get(SEC_WEBSOCKET_KEY).map(HeaderValue::as_bytes);
    let decoded = key.and_then(|key| STANDARD.decode(key).ok());
    key.filter(|_| decoded.is_some_and(|key| key.len() == 16))
        .ok_or((StatusCode::BAD_REQUEST, "websocket: invalid key\n"))
}

fn accept_key(key: &[u8]) -> String {
    let text = [key, KEY_SUFFIX.as_bytes()].concat();
    STANDARD.encode(digest(&SHA1_FOR_LEGACY_USE_ONLY, &text))
}

/// The WebSocket after the handshake.
pub(super) async fn accept<S>(upgraded: S) -> WebSocketStream<S>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let config = WebSocketConfig::default()
        .read_buffer_size(BUFFER)
        .write_buffer_size(0)
        .max_write_buffer_size(2 * MAX_MESSAGE)
        .max_message_size(Some(MAX_MESSAGE))
        .max_frame_size(Some(MAX_MESSAGE));
    WebSocketStream::from_raw_socket(upgraded, Role::Server, Some(config)).await
}

/// Sends the last message and the end, and waits until the client has received them.
pub(super) async fn finish<S>(mut socket: WebSocketStream<S>, last: Option<Message>)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let end = async {
        if let Some(last) = last {
            socket.send(last).await?;
        }
        let frame = CloseFrame {
            code: CloseCode::Normal,
            reason: "".into(),
        };
        socket.close(Some(frame)).await?;
        while socket.next().await.is_some_and(|message| message.is_ok()) {}
        socket.get_mut().shutdown().await.map_err(Error::Io)
    };
    // A client that is gone needs no end.
    let _: Result<Result<(), Error>, _> = timeout(CLOSE_TIMEOUT, end).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handshakes() {
        let mut headers = HeaderMap::new();
        let mut set = |name, value: &str| {
            let value = HeaderValue::from_str(value).unwrap();
            headers.try_insert(name, value).unwrap();
            headers.clone()
        };
        let neither = set(UPGRADE, "websocket");
        let version = set(SEC_WEBSOCKET_VERSION, "13");
        let wrong_key = set(SEC_WEBSOCKET_KEY, "abc");
        // The example of RFC 6455.
        let complete = set(SEC_WEBSOCKET_KEY, "dGhlIHNhbXBsZSBub25jZQ==");
        let status = |method, headers| handshake(&method, headers, None).status().as_u16();
        assert_eq!(status(Method::POST, &complete), 405);
        for headers in [&neither, &version, &wrong_key] {
            assert_eq!(status(Method::GET, headers), 400);
        }
        let response = handshake(&Method::GET, &complete, Some("v5.channel.k8s.io"));
        assert_eq!(response.status(), 101);
        assert_eq!(
            response.headers()[SEC_WEBSOCKET_ACCEPT],
            "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
        );
        assert_eq!(
            response.headers()[SEC_WEBSOCKET_PROTOCOL],
            "v5.channel.k8s.io"
        );
    }
}
