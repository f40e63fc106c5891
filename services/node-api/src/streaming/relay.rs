//! Two connections, joined.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, split};
use tokio::time::{Instant, sleep_until, timeout};

use super::client_socket::{ClientBoundWriter, ClientSocket};

/// Bytes that are passed on at a time.
pub(super) const CHUNK: usize = 32 << 10;
/// How long the client may take to receive the end.
const END_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the client may then take to close.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// When a stream was last used.
pub(super) struct StreamActivity {
    start: Instant,
    timeout: Duration,
    /// Milliseconds since the start.
    last: AtomicU64,
}

impl StreamActivity {
    /// Zero is no timeout.
    pub(super) fn new(timeout: Duration) -> Self {
        Self {
            start: Instant::now(),
            timeout,
            last: AtomicU64::new(0),
        }
    }

    /// Bytes were received.
    pub(super) fn record(&self) {
        let elapsed = self.start.elapsed().as_millis();
        let elapsed = u64::try_from(elapsed).unwrap_or(u64::MAX);
        self.last.store(elapsed, Ordering::Relaxed);
    }

    /// Resolves when nothing was received in either direction for the timeout.
    pub(super) async fn idle(&self) {
        if self.timeout.is_zero() {
            return std::future::pending().await;
        }
        loop {
            let last = Duration::from_millis(self.last.load(Ordering::Relaxed));
            let due = self.start + last.saturating_add(self.timeout);
            if due <= Instant::now() {
                return;
            }
            sleep_until(due).await;
        }
    }
}

/// Passes bytes in both directions until either side ends, as upstream, or neither sends anything for the
/// timeout. A side that does not read holds up the other one alone, and not longer than that one stays.
pub(super) async fn relay<C, B>(client: C, backend: B, idle_timeout: Duration, socket: ClientSocket)
where
    C: AsyncRead + AsyncWrite + Unpin,
    B: AsyncRead + AsyncWrite + Unpin,
{
    let activity = StreamActivity::new(idle_timeout);
    let (mut client_reader, mut client_writer) = split(client);
    let (mut backend_reader, backend_writer) = split(backend);
    let mut backend_writer = ClientBoundWriter::new(backend_writer, socket);
    let has_ended = tokio::select! {
        () = copy(&mut client_reader, &mut backend_writer, &activity) => false,
        () = copy(&mut backend_reader, &mut client_writer, &activity) => true,
        () = activity.idle() => true,
    };
    if has_ended {
        let _ = timeout(END_TIMEOUT, client_writer.shutdown()).await;
        // Closing a connection with unread bytes would discard what the client has not received yet.
        let mut sink = tokio::io::sink();
        let _ = timeout(
            CLOSE_TIMEOUT,
            tokio::io::copy(&mut client_reader, &mut sink),
        )
        .await;
    }
}

/// Ends when either side has ended or failed.
async fn copy<R, W>(reader: &mut R, writer: &mut W, activity: &StreamActivity)
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let mut buffer = vec![0; CHUNK];
    while let Ok(count) = reader.read(&mut buffer).await {
        let Some(received) = buffer.get(..count).filter(|bytes| !bytes.is_empty()) else {
            return;
        };
        activity.record();
        if writer.write_all(received).await.is_err() || writer.flush().await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::duplex;

    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    #[tokio::test]
    async fn bytes_are_passed_in_both_directions_until_the_end() {
        let (mut client, near) = duplex(1000);
        let (far, mut backend) = duplex(1000);
        let relay = tokio::spawn(relay(near, far, HOUR, ClientSocket::default()));
        client.write_all(b"request").await.unwrap();
        let mut request = [0; 7];
        backend.read_exact(&mut request).await.unwrap();
        assert_eq!(&request, b"request");
        backend.write_all(b"response").await.unwrap();
        drop(backend);
        let mut response = String::new();
        client.read_to_string(&mut response).await.unwrap();
        assert_eq!(response, "response");
        drop(client);
        relay.await.unwrap();
    }

    #[tokio::test]
    async fn backend_ends_with_the_client() {
        let (client, near) = duplex(1000);
        let (far, mut backend) = duplex(1000);
        let relay = tokio::spawn(relay(near, far, HOUR, ClientSocket::default()));
        drop(client);
        assert_eq!(backend.read(&mut [0; 1]).await.unwrap(), 0);
        relay.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn unused_stream_ends() {
        let (mut client, near) = duplex(1000);
        let (far, mut backend) = duplex(1000);
        let start = Instant::now();
        let relay = tokio::spawn(relay(near, far, HOUR, ClientSocket::default()));
        tokio::time::sleep(HOUR / 2).await;
        client.write_all(b"x").await.unwrap();
        backend.read_exact(&mut [0; 1]).await.unwrap();
        assert_eq!(client.read(&mut [0; 1]).await.unwrap(), 0);
        assert!(start.elapsed() >= HOUR * 3 / 2);
        drop(client);
        relay.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn side_that_does_not_read_bounds_what_is_buffered() {
        let (client, near) = duplex(1000);
        let (far, mut backend) = duplex(1000);
        let relay = tokio::spawn(relay(near, far, HOUR, ClientSocket::default()));
        let flood = async {
            let mut written = 0;
            loop {
                written += backend.write(&[0; 1000]).await.unwrap();
                assert!(written < 3 * CHUNK, "unread bytes are buffered");
            }
        };
        assert!(timeout(HOUR / 2, flood).await.is_err());
        drop(client);
        relay.await.unwrap();
    }
}
