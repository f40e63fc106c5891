use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

use crate::error::{HarnessError, report};

/// User and password. The password contains a character that must be escaped in a URL.
const USER: (&str, &str) = ("node", "pass word");
const ESCAPED: &str = "node:pass%20word";

/// An HTTP CONNECT proxy; every target address is connected to the API server. It can be stopped
/// and restarted on the same port.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    server: u16,
    /// Number of established tunnels.
    made: Arc<AtomicUsize>,
    accepting: Option<JoinHandle<()>>,
}

impl Proxy {
    pub(super) async fn to(server: u16) -> Result<Self, HarnessError> {
        let mut proxy = Self {
            port: 0,
            server,
            made: Arc::default(),
            accepting: None,
        };
        proxy.up().await?;
        Ok(proxy)
    }

    /// The proxy's URL with user and password.
    pub fn url(&self) -> String {
        format!("http://{ESCAPED}@127.0.0.1:{}", self.port)
    }

    /// The secret that must not appear in logs.
    pub fn secrets(&self) -> [String; 3] {
        let basic = STANDARD.encode(format!("{}:{}", USER.0, USER.1));
        [USER.1.to_owned(), "pass%20word".to_owned(), basic]
    }

    /// Number of tunnels established since its creation.
    pub fn tunnels(&self) -> usize {
        self.made.load(Ordering::Relaxed)
    }

    /// Stops the proxy and closes all tunnels.
    pub fn down(&mut self) {
        if let Some(accepting) = self.accepting.take() {
            accepting.abort();
        }
    }

    /// Restarts the proxy.
    ///
    /// # Errors
    /// Fails if its port is in use.
    pub async fn up(&mut self) -> Result<(), HarnessError> {
        let failed = |error: std::io::Error| HarnessError::Http {
            address: format!("127.0.0.1:{}", self.port),
            why: report(&error),
        };
        let listener = TcpListener::bind(("127.0.0.1", self.port)).await;
        let listener = listener.map_err(failed)?;
        self.port = listener.local_addr().map_err(failed)?.port();
        let (server, made) = (self.server, Arc::clone(&self.made));
        self.accepting = Some(tokio::spawn(async move {
            // Tunnels are dropped with this task.
            let mut tunnels = JoinSet::new();
            while let Ok((near, _)) = listener.accept().await {
                tunnels.spawn(tunnel(near, server, Arc::clone(&made)));
                while tunnels.try_join_next().is_some() {}
            }
        }));
        Ok(())
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.down();
    }
}

async fn tunnel(mut near: TcpStream, server: u16, made: Arc<AtomicUsize>) -> std::io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(near.read_u8().await?);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let basic = STANDARD.encode(format!("{}:{}", USER.0, USER.1));
    let known = head.contains(&format!("Proxy-Authorization: Basic {basic}\r\n"));
    if !head.starts_with("CONNECT ") || !known {
        let refusal = b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n";
        return near.write_all(refusal).await;
    }
    let mut far = match TcpStream::connect(("127.0.0.1", server)).await {
        Ok(far) => far,
        Err(_) => return near.write_all(b"HTTP/1.1 502 Bad Gateway\r\n\r\n").await,
    };
    made.fetch_add(1, Ordering::Relaxed);
    near.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n")
        .await?;
    copy_bidirectional(&mut near, &mut far).await.map(drop)
}
