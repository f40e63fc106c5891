//! Requests as bytes: no library makes them valid.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use polylet_e2e::ok;
use polylet_harness::Node;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// How long a client waits.
pub(crate) const LIMIT: Duration = Duration::from_secs(20);

/// The response to a valid request.
pub(crate) async fn get(node: &Node, path: &str) -> String {
    let response = exchange(node, head(path).as_bytes()).await;
    response.unwrap_or_default()
}

/// A connection; without a certificate of the client it is not trusted.
pub(crate) async fn connect(
    node: &Node,
    is_anonymous: bool,
) -> std::io::Result<TlsStream<TcpStream>> {
    let tls = ok(node.pki().tls(is_anonymous));
    let work = async {
        let plain = TcpStream::connect((Ipv4Addr::LOCALHOST, node.ports().0)).await?;
        let name = ServerName::from(IpAddr::V4(Ipv4Addr::LOCALHOST));
        TlsConnector::from(tls).connect(name, plain).await
    };
    timeout(LIMIT, work)
        .await
        .unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into()))
}

/// How many connections may be without an allowed request at once: of one address, the node API closes the
/// oldest of more than 64.
static NEW: Semaphore = Semaphore::const_new(32);

/// A connection on which a request was answered, at least with the first byte, which is the second value.
pub(crate) async fn open(node: &Node, request: &str) -> (TlsStream<TcpStream>, u8) {
    let permit = ok(NEW.acquire().await);
    let mut stream = ok(connect(node, false).await);
    ok(stream.write_all(request.as_bytes()).await);
    let first = timeout(3 * LIMIT, stream.read_u8()).await;
    drop(permit);
    (stream, ok(first.expect("a response in time")))
}

/// The head of a request that ends its connection.
pub(crate) fn head(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n")
}

/// Sends bytes and returns what comes back until the server closes the connection; `None` if it does not.
pub(crate) async fn exchange(node: &Node, request: &[u8]) -> Option<String> {
    let mut stream = connect(node, false).await.ok()?;
    let work = async {
        // A server that refuses early does not read all of it.
        let _ = stream.write_all(request).await;
        let mut response = Vec::new();
        // A connection that is reset ends, too.
        let _ = stream.read_to_end(&mut response).await;
        response
    };
    let response = timeout(LIMIT, work).await.ok()?;
    Some(String::from_utf8_lossy(&response).into_owned())
}

/// The status code; 0 of a connection that was closed without one.
pub(crate) fn code(response: &str) -> u16 {
    let word = response.split_whitespace().nth(1);
    word.and_then(|word| word.parse().ok()).unwrap_or_default()
}
