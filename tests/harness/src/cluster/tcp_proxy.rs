use tokio::io::copy_bidirectional;
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
        let accepting = tokio::spawn(async move {
            let mut ports = ports;
            while let Ok((near, _)) = listener.accept().await {
                let (dead, servers) = (dead.clone(), ports.clone());
                ports.rotate_left(1);
                tokio::spawn(async move {
                    for server in servers {
                        // When no server accepts, the connection is closed.
                        if let Ok(far) = TcpStream::connect(("127.0.0.1", server)).await {
                            return pass(near, far, dead).await;
                        }
                    }
                });
            }
        });
        Ok(Self {
            port: own,
            dead_before,
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

async fn pass(mut near: TcpStream, mut far: TcpStream, mut dead: watch::Receiver<u64>) {
    let own = *dead.borrow_and_update();
    let died = tokio::select! {
        // Closed by either side.
        _ = copy_bidirectional(&mut near, &mut far) => false,
        died = dead.wait_for(|before| *before > own) => died.is_ok(),
    };
    if died {
        // Stays open until the proxy is dropped.
        let _ = dead.wait_for(|_| false).await;
    }
}
