//! SPDY within a WebSocket: binary messages are parts of one sequence of bytes in each direction.

use std::time::Duration;

use bytes::Bytes;
use futures::{SinkExt, StreamExt};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, split};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;

use super::client_socket::{ClientBoundWriter, ClientSocket};
use super::relay::{CHUNK, StreamActivity};
use super::websocket;

/// Passes bytes in both directions until either side ends, or neither sends anything for the timeout.
pub(super) async fn tunnel<C, B>(
    client: WebSocketStream<C>,
    backend: B,
    idle_timeout: Duration,
    socket: ClientSocket,
) where
    C: AsyncRead + AsyncWrite + Unpin,
    B: AsyncRead + AsyncWrite + Unpin,
{
    let activity = StreamActivity::new(idle_timeout);
    let (mut reader, writer) = split(backend);
    let mut writer = ClientBoundWriter::new(writer, socket);
    let (mut sink, mut messages) = client.split();
    let to_backend = async {
        while let Some(Ok(message)) = messages.next().await {
            activity.record();
            let bytes = match message {
                Message::Binary(bytes) => bytes,
                Message::Ping(_) | Message::Pong(_) => continue,
                // Text is no part of the protocol.
                Message::Text(_) | Message::Close(_) | Message::Frame(_) => return,
            };
            if writer.write_all(&bytes).await.is_err() || writer.flush().await.is_err() {
                return;
            }
        }
    };
    let to_client = async {
        let mut buffer = vec![0; CHUNK];
        while let Ok(count) = reader.read(&mut buffer).await {
            let Some(received) = buffer.get(..count).filter(|bytes| !bytes.is_empty()) else {
                return;
            };
            activity.record();
            let message = Message::Binary(Bytes::copy_from_slice(received));
            if sink.send(message).await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        () = to_backend => {}
        () = to_client => {}
        () = activity.idle() => {}
    }
    drop((reader, writer));
    if let Ok(client) = sink.reunite(messages) {
        websocket::finish(client, None).await;
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::duplex;
    use tokio_tungstenite::tungstenite::protocol::Role;

    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    #[tokio::test]
    async fn messages_are_bytes_of_one_sequence() {
        let (far, near) = duplex(1000);
        let mut client = WebSocketStream::from_raw_socket(far, Role::Client, None).await;
        let (backend, mut runtime) = duplex(1000);
        let server = websocket::accept(near).await;
        let tunnel = tokio::spawn(tunnel(server, backend, HOUR, ClientSocket::default()));
        for part in [&b"SP"[..], b"D", b"", b"Y"] {
            let message = Message::Binary(Bytes::from_static(part));
            client.send(message).await.unwrap();
        }
        client.send(Message::Ping(Bytes::new())).await.unwrap();
        let mut received = [0; 4];
        runtime.read_exact(&mut received).await.unwrap();
        assert_eq!(&received, b"SPDY");
        runtime.write_all(b"response").await.unwrap();
        drop(runtime);
        let mut bytes = Vec::new();
        let mut was_closed = false;
        while let Some(Ok(message)) = client.next().await {
            match message {
                Message::Binary(part) => bytes.extend_from_slice(&part),
                Message::Close(_) => was_closed = true,
                _ => {}
            }
        }
        assert_eq!((bytes.as_slice(), was_closed), (&b"response"[..], true));
        tunnel.await.unwrap();
    }

    #[tokio::test]
    async fn text_ends_the_tunnel() {
        let (far, near) = duplex(1000);
        let mut client = WebSocketStream::from_raw_socket(far, Role::Client, None).await;
        let (backend, mut runtime) = duplex(1000);
        let server = websocket::accept(near).await;
        let tunnel = tokio::spawn(tunnel(server, backend, HOUR, ClientSocket::default()));
        client.send(Message::Text("SPDY".into())).await.unwrap();
        assert_eq!(runtime.read(&mut [0; 1]).await.unwrap(), 0);
        drop(client);
        tunnel.await.unwrap();
    }
}
