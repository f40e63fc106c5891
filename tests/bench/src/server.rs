use std::cell::Cell;
use std::rc::Rc;
use std::time::Instant;

use polylet_harness::HarnessError;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const HEALTHY: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
const UNHEALTHY: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";

/// An HTTP server for probes with a settable health; records its first successful response.
pub(crate) struct Server {
    port: u16,
    mode: Rc<ServerMode>,
}

#[derive(Default)]
struct ServerMode {
    healthy: Cell<bool>,
    since: Cell<Option<Instant>>,
}

impl Server {
    pub(crate) async fn start() -> Result<Self, HarnessError> {
        let failed = |source| HarnessError::Run {
            program: "probe server".to_owned(),
            source,
        };
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.map_err(failed)?;
        let port = listener.local_addr().map_err(failed)?.port();
        let mode = Rc::<ServerMode>::default();
        let shared = Rc::clone(&mode);
        tokio::task::spawn_local(async move {
            while let Ok((stream, _)) = listener.accept().await {
                // The client may close the connection before the end.
                let _ = answer(stream, &shared).await;
            }
        });
        Ok(Self { port, mode })
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Sets whether the next requests succeed.
    pub(crate) fn set_healthy(&self, healthy: bool) {
        self.mode.healthy.set(healthy);
        self.mode.since.set(None);
    }

    /// Time of the first successful response since the last change.
    pub(crate) fn healthy_since(&self) -> Option<Instant> {
        self.mode.since.get()
    }
}

async fn answer(mut stream: TcpStream, mode: &ServerMode) -> std::io::Result<()> {
    let mut head = Vec::new();
    let mut part = [0; 1024];
    while !head.ends_with(b"\r\n\r\n") {
        let read = stream.read(&mut part).await?;
        if read == 0 {
            return Ok(());
        }
        head.extend(part.iter().take(read));
    }
    let healthy = mode.healthy.get();
    if healthy && mode.since.get().is_none() {
        mode.since.set(Some(Instant::now()));
    }
    stream
        .write_all(if healthy { HEALTHY } else { UNHEALTHY })
        .await?;
    stream.shutdown().await
}
