//! Connections of other programs, of which so many are accepted at once: any process of the machine can connect.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::{Stream, StreamExt};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::transport::server::Connected;

/// The connections of a listener, at most `limit` at once. Further ones are closed at once, so that their clients learn
/// of it and come again.
pub(super) fn bounded<S>(
    incoming: S,
    limit: usize,
) -> impl Stream<Item = io::Result<BoundedConnection>>
where
    S: Stream<Item = io::Result<TcpStream>>,
{
    let permits = Arc::new(Semaphore::new(limit));
    let mut is_full = false;
    incoming.filter_map(move |accepted| {
        let admitted = match accepted {
            Ok(stream) => match Arc::clone(&permits).try_acquire_owned() {
                Ok(permit) => {
                    is_full = false;
                    Some(Ok(BoundedConnection {
                        stream,
                        _permit: permit,
                    }))
                }
                Err(_) => {
                    if !std::mem::replace(&mut is_full, true) {
                        tracing::warn!(
                            limit,
                            "too many connections for spans; refusing further ones"
                        );
                    }
                    None
                }
            },
            Err(error) => Some(Err(error)),
        };
        std::future::ready(admitted)
    })
}

/// A connection that counts until it is closed.
#[derive(Debug)]
pub(super) struct BoundedConnection {
    stream: TcpStream,
    _permit: OwnedSemaphorePermit,
}

impl Connected for BoundedConnection {
    type ConnectInfo = ();

    fn connect_info(&self) {}
}

impl AsyncRead for BoundedConnection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for BoundedConnection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
