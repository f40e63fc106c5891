use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::error::HarnessError;

/// An HTTP response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpResponse {
    /// The status line: `HTTP/1.1 200 OK`.
    pub status: String,
    /// The body.
    pub body: String,
}

impl HttpResponse {
    /// The status code.
    pub fn code(&self) -> u16 {
        let word = self.status.split_whitespace().nth(1);
        word.and_then(|word| word.parse().ok()).unwrap_or_default()
    }
}

/// A GET over plain HTTP with a timeout of five seconds.
///
/// # Errors
/// Fails if the server does not respond.
pub async fn get(address: &str, port: u16, path: &str) -> Result<HttpResponse, HarnessError> {
    let at = format!("{address}:{port}");
    let work = async { ask(TcpStream::connect(&at).await?, address, path, "").await };
    limited(&at, work).await
}

/// A GET over TLS on the loopback address.
///
/// # Errors
/// Fails if the server does not respond or rejects the client certificate.
pub async fn get_tls(
    tls: Arc<ClientConfig>,
    port: u16,
    path: &str,
) -> Result<HttpResponse, HarnessError> {
    get_tls_as(tls, port, path, "").await
}

/// Like [`get_tls`], with a bearer token unless it is empty.
///
/// # Errors
/// See [`get_tls`].
pub async fn get_tls_as(
    tls: Arc<ClientConfig>,
    port: u16,
    path: &str,
    token: &str,
) -> Result<HttpResponse, HarnessError> {
    let header = match token {
        "" => String::new(),
        token => format!("Authorization: Bearer {token}\r\n"),
    };
    get_tls_with(tls, port, path, &header).await
}

/// Like [`get_tls`], in OpenMetrics where that is served.
///
/// # Errors
/// See [`get_tls`].
pub async fn get_open_metrics(
    tls: Arc<ClientConfig>,
    port: u16,
    path: &str,
) -> Result<HttpResponse, HarnessError> {
    let header = "Accept: application/openmetrics-text;version=1.0.0\r\n";
    get_tls_with(tls, port, path, header).await
}

async fn get_tls_with(
    tls: Arc<ClientConfig>,
    port: u16,
    path: &str,
    header: &str,
) -> Result<HttpResponse, HarnessError> {
    let at = format!("127.0.0.1:{port}");
    let name = ServerName::from(IpAddr::V4(Ipv4Addr::LOCALHOST));
    let work = async {
        let plain = TcpStream::connect(&at).await?;
        ask(
            TlsConnector::from(tls).connect(name, plain).await?,
            "127.0.0.1",
            path,
            header,
        )
        .await
    };
    limited(&at, work).await
}

/// HTTP/1.0, so that the end of the stream is the end of the body for every server.
async fn ask<S>(mut stream: S, host: &str, path: &str, header: &str) -> std::io::Result<Vec<u8>>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let request = format!("GET {path} HTTP/1.0\r\nHost: {host}\r\n{header}\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut bytes = Vec::new();
    match stream.read_to_end(&mut bytes).await {
        // Servers that close without a TLS close_notify have sent the whole response.
        Err(error) if bytes.is_empty() => Err(error),
        _ => Ok(bytes),
    }
}

async fn limited(
    address: &str,
    work: impl Future<Output = std::io::Result<Vec<u8>>>,
) -> Result<HttpResponse, HarnessError> {
    let failed = |why: String| HarnessError::Http {
        address: address.to_owned(),
        why,
    };
    let bytes = match timeout(Duration::from_secs(5), work).await {
        Ok(Ok(bytes)) => bytes,
        Ok(Err(error)) => return Err(failed(error.to_string())),
        Err(_) => return Err(failed("timed out after 5 s".to_owned())),
    };
    let text = String::from_utf8_lossy(&bytes);
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head.lines().next().unwrap_or_default().to_owned();
    Ok(HttpResponse {
        status,
        body: body.to_owned(),
    })
}
