//! The end of a client that reading does not show, because the runtime takes nothing of what was read before.

use std::future::Future;
use std::io::{Error, ErrorKind};
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncWrite, Interest};
use tokio::net::TcpStream;
use tokio::time::sleep;

/// How long a write to the runtime is pending before the client is watched.
const BLOCKED_TIME: Duration = Duration::from_secs(1);
/// How long it may then stay pending once the client sends nothing more. What was sent before is still
/// delivered to a runtime that is only slow, as upstream.
const HALF_CLOSED_TIME: Duration = Duration::from_secs(30);

/// A second descriptor of a client's socket. A socket is closed with its last descriptor, so this belongs to
/// the client's stream.
#[derive(Clone, Default)]
pub(super) struct ClientSocket(Option<Arc<OwnedFd>>);

impl ClientSocket {
    pub(super) fn new(socket: Option<OwnedFd>) -> Self {
        Self(socket.map(Arc::new))
    }

    /// Resolves when the client has reset or closed its connection, or sends nothing more for a while.
    ///
    /// A client that has closed while the node had no space for the rest of its data is noticed when its own
    /// machine gives up: keep-alive probes are then refused.
    async fn gone(self) {
        sleep(BLOCKED_TIME).await;
        let Some(watched) = self.watched() else {
            return std::future::pending().await;
        };
        loop {
            match watched.ready(Interest::READABLE).await {
                Err(_) => return,
                Ok(ready) if ready.is_write_closed() || ready.is_error() => return,
                Ok(ready) if ready.is_read_closed() => return sleep(HALF_CLOSED_TIME).await,
                Ok(_) => {}
            }
            // There is data, which the stream itself reads: waits for the next change.
            let _ = watched.try_io(Interest::READABLE, || {
                Err::<(), _>(ErrorKind::WouldBlock.into())
            });
        }
    }

    fn watched(&self) -> Option<TcpStream> {
        let socket = self.0.as_ref()?.try_clone().ok()?;
        TcpStream::from_std(socket.into()).ok()
    }
}

/// The runtime's side of a stream, to which writing fails once the client is gone.
pub(super) struct ClientBoundWriter<W> {
    writer: W,
    client: ClientSocket,
    gone: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl<W> ClientBoundWriter<W> {
    pub(super) fn new(writer: W, client: ClientSocket) -> Self {
        Self {
            writer,
            client,
            gone: None,
        }
    }
}

impl<W: AsyncWrite + Unpin> AsyncWrite for ClientBoundWriter<W> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<Result<usize, Error>> {
        let this = self.get_mut();
        if let Poll::Ready(written) = Pin::new(&mut this.writer).poll_write(context, bytes) {
            this.gone = None;
            return Poll::Ready(written);
        }
        let client = &this.client;
        let gone = this
            .gone
            .get_or_insert_with(|| Box::pin(client.clone().gone()));
        ready!(gone.as_mut().poll(context));
        this.gone = None;
        let message = "the client is gone, and the runtime does not read";
        Poll::Ready(Err(Error::new(ErrorKind::ConnectionAborted, message)))
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        Pin::new(&mut self.get_mut().writer).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        Pin::new(&mut self.get_mut().writer).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
    use tokio::net::TcpListener;
    use tokio::task::JoinHandle;

    use super::*;
    use crate::streaming::relay::{CHUNK, relay};

    /// A stream without an idle timeout, whose runtime has read one byte of what the client sent.
    async fn blocked_stream() -> (TcpStream, DuplexStream, JoinHandle<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut client = TcpStream::connect(address).await.unwrap();
        let (near, _) = listener.accept().await.unwrap();
        let socket = near.as_fd().try_clone_to_owned().unwrap();
        let socket = ClientSocket::new(Some(socket));
        let (far, mut backend) = duplex(1000);
        client.write_all(&[0; 2 * CHUNK]).await.unwrap();
        let relay = tokio::spawn(relay(near, far, Duration::ZERO, socket));
        backend.read_exact(&mut [0; 1]).await.unwrap();
        (client, backend, relay)
    }

    #[tokio::test(start_paused = true)]
    async fn stream_of_a_reset_client_ends_though_the_runtime_does_not_read() {
        let (client, _backend, relay) = blocked_stream().await;
        client.set_zero_linger().unwrap();
        drop(client);
        relay.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn stream_of_a_closed_client_ends_though_the_runtime_does_not_read() {
        let (client, _backend, relay) = blocked_stream().await;
        drop(client);
        relay.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn runtime_that_is_slow_receives_everything() {
        let (mut client, mut backend, relay) = blocked_stream().await;
        client.shutdown().await.unwrap();
        let mut received = 1;
        let mut buffer = [0; 1000];
        loop {
            sleep(HALF_CLOSED_TIME / 2).await;
            match backend.read(&mut buffer).await.unwrap() {
                0 => break,
                count => received += count,
            }
        }
        assert_eq!(received, 2 * CHUNK);
        relay.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn stream_of_a_connected_client_stays() {
        let (client, backend, relay) = blocked_stream().await;
        sleep(Duration::from_secs(24 * 3600)).await;
        assert!(!relay.is_finished());
        drop((client, backend));
        relay.await.unwrap();
    }
}
