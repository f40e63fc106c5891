use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::Proxy;
use crate::error::{HarnessError, report};

/// A TCP proxy for one or several API servers that can blackhole its connections: bytes stop
/// flowing and nothing is closed, as with packet loss.
#[derive(Debug)]
pub struct TcpProxy {
    port: u16,
    /// Connections with a lower number are blackholed.
    dead_before: watch::Sender<u64>,
    passed: Arc<AtomicU64>,
    accepting: JoinHandle<()>,
}

impl TcpProxy {
    /// Connects to the first port that accepts, in round-robin order.
    pub(super) async fn to(ports: Vec<u16>) -> Result<Self, HarnessError> {
        let failed = |error: std::io::Error| HarnessError::Http {
            address: "127.0.0.1:0".to_owned(),
            why: report(&error),
        };
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.map_err(failed)?;
        let own = listener.local_addr().map_err(failed)?.port();
        let (dead_before, dead) = watch::channel(0);
        let passed = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&passed);
        let accepting = tokio::spawn(async move {
            let mut ports = ports;
            while let Ok((near, _)) = listener.accept().await {
                let (dead, servers, count) = (dead.clone(), ports.clone(), Arc::clone(&count));
                ports.rotate_left(1);
                tokio::spawn(async move {
                    for server in servers {
                        // When no server accepts, the connection is closed.
                        if let Ok(far) = TcpStream::connect(("127.0.0.1", server)).await {
                            return pass(near, far, dead, &count).await;
                        }
                    }
                });
            }
        });
        Ok(Self {
            port: own,
            dead_before,
            passed,
            accepting,
        })
    }

    /// The URL of the API server through this proxy.
    pub fn server(&self) -> String {
        format!("https://127.0.0.1:{}", self.port)
    }

    /// An HTTP proxy in front of this one.
    ///
    /// # Errors
    /// Fails if no port is free.
    pub async fn proxy(&self) -> Result<Proxy, HarnessError> {
        Proxy::to(self.port).await
    }

    /// Bytes that have passed in both directions, with those of TLS.
    pub fn passed_bytes(&self) -> u64 {
        self.passed.load(Ordering::Relaxed)
    }

    /// Blackholes all existing connections. New ones work.
    pub fn blackhole_connections(&self) {
        self.dead_before.send_modify(|before| *before += 1);
    }
}

impl Drop for TcpProxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn pass(near: TcpStream, far: TcpStream, mut dead: watch::Receiver<u64>, count: &AtomicU64) {
    let own = *dead.borrow_and_update();
    // As without a proxy: each part is sent when it arrives.
    for side in [&near, &far] {
        let _ = side.set_nodelay(true);
    }
    let ((from_near, to_near), (from_far, to_far)) = (near.into_split(), far.into_split());
    let mut upstream = std::pin::pin!(copy(from_near, to_far, count));
    let mut downstream = std::pin::pin!(copy(from_far, to_near, count));
    let both = async { tokio::join!(&mut upstream, &mut downstream) };
    let died = tokio::select! {
        // Closed by both sides.
        _ = both => false,
        died = dead.wait_for(|before| *before > own) => died.is_ok(),
    };
    if died {
        // Stays open until the proxy is dropped.
        let _ = dead.wait_for(|_| false).await;
    }
}

/// Ends with its source, or when either side fails.
async fn copy(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, count: &AtomicU64) {
    let mut buffer = vec![0; 16 << 10];
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        let Some(part) = buffer.get(..length) else {
            return;
        };
        count.fetch_add(part.len() as u64, Ordering::Relaxed);
        if to.write_all(part).await.is_err() {
            return;
        }
    }
    let _ = to.shutdown().await;
}
