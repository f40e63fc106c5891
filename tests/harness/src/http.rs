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

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The first line: `HTTP/1.1 200 OK`.
    pub status: String,
    /// All after the headers.
    pub body: String,
}

impl Answer {
    /// The number in the first line.
    pub fn code(&self) -> u16 {
        let word = self.status.split_whitespace().nth(1);
        word.and_then(|word| word.parse().ok()).unwrap_or_default()
    }
}

/// One GET over plain HTTP, within five seconds: enough to show that a pod answers.
///
/// # Errors
/// When nobody answers there.
pub async fn get(address: &str, port: u16, path: &str) -> Result<Answer, HarnessError> {
    let at = format!("{address}:{port}");
    let work = async { ask(TcpStream::connect(&at).await?, address, path, "").await };
    limited(&at, work).await
}

/// One GET over TLS on the loopback address.
///
/// # Errors
/// When nobody answers there, or not this client.
pub async fn get_tls(
    tls: Arc<ClientConfig>,
    port: u16,
    path: &str,
) -> Result<Answer, HarnessError> {
    get_tls_as(tls, port, path, "").await
}

/// The same with a bearer token, where it is not empty.
///
/// # Errors
/// As [`get_tls`].
pub async fn get_tls_as(
    tls: Arc<ClientConfig>,
    port: u16,
    path: &str,
    token: &str,
) -> Result<Answer, HarnessError> {
    let at = format!("127.0.0.1:{port}");
    let name = ServerName::from(IpAddr::V4(Ipv4Addr::LOCALHOST));
    let work = async {
        let plain = TcpStream::connect(&at).await?;
        ask(
            TlsConnector::from(tls).connect(name, plain).await?,
            "127.0.0.1",
            path,
            token,
        )
        .await
    };
    limited(&at, work).await
}

/// HTTP/1.0: the end of the stream is the end of the body, whatever the server is.
async fn ask<S>(mut stream: S, host: &str, path: &str, token: &str) -> std::io::Result<Vec<u8>>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut request = format!("GET {path} HTTP/1.0\r\nHost: {host}\r\n");
    if !token.is_empty() {
        request.push_str(&format!("Authorization: Bearer {token}\r\n"));
    }
    request.push_str("\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut bytes = Vec::new();
    match stream.read_to_end(&mut bytes).await {
        // Servers that close without TLS's own goodbye have said all they had to say.
        Err(error) if bytes.is_empty() => Err(error),
        _ => Ok(bytes),
    }
}

async fn limited(
    address: &str,
    work: impl Future<Output = std::io::Result<Vec<u8>>>,
) -> Result<Answer, HarnessError> {
    let failed = |why: String| HarnessError::Http {
        address: address.to_owned(),
        why,
    };
    let bytes = match timeout(Duration::from_secs(5), work).await {
        Ok(Ok(bytes)) => bytes,
        Ok(Err(error)) => return Err(failed(error.to_string())),
        Err(_) => return Err(failed("no answer within 5 s".to_owned())),
    };
    let text = String::from_utf8_lossy(&bytes);
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head.lines().next().unwrap_or_default().to_owned();
    Ok(Answer {
        status,
        body: body.to_owned(),
    })
}
