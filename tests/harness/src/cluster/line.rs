use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::Proxy;
use crate::error::{HarnessError, report};

/// A line between nodes and the API server, or several of them, that can go dead: bytes no longer pass and nobody closes
/// anything, as when packets are dropped on the way.
#[derive(Debug)]
pub struct Line {
    port: u16,
    /// Connections older than this number are dead.
    dead_before: watch::Sender<u64>,
    accepting: JoinHandle<()>,
}

impl Line {
    /// To the first of these ports that takes the connection, beginning with another one each time.
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
                        // A server that is away is a refused connection.
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

    /// Where the API server is by this line.
    pub fn server(&self) -> String {
        format!("https://127.0.0.1:{}", self.port)
    }

    /// A proxy before it.
    ///
    /// # Errors
    /// When no port is free.
    pub async fn proxy(&self) -> Result<Proxy, HarnessError> {
        Proxy::to(self.port).await
    }

    /// All present connections go dead; new ones are well.
    pub fn go_dead(&self) {
        self.dead_before.send_modify(|before| *before += 1);
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn pass(mut near: TcpStream, mut far: TcpStream, mut dead: watch::Receiver<u64>) {
    let own = *dead.borrow_and_update();
    let died = tokio::select! {
        // Either side has closed it.
        _ = copy_bidirectional(&mut near, &mut far) => false,
        died = dead.wait_for(|before| *before > own) => died.is_ok(),
    };
    if died {
        // Held open, until the line itself goes.
        let _ = dead.wait_for(|_| false).await;
    }
}
