//! A client of one endpoint, with a connection for each request, as an API server has.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use polylet_harness::HarnessError;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::client::ClientRequestBuilder;
use tokio_tungstenite::tungstenite::http::uri::InvalidUri;

/// The version that every server of streams knows.
const PROTOCOL: &str = "v4.channel.k8s.io";

/// A plain connection, or one with TLS.
pub(super) trait ByteStream: AsyncRead + AsyncWrite + Unpin {}

impl<T: AsyncRead + AsyncWrite + Unpin> ByteStream for T {}

/// A server on the loopback address.
pub(super) struct Endpoint {
    /// `None` of the runtime's own server.
    pub(super) tls: Option<Arc<ClientConfig>>,
    pub(super) port: u16,
}

impl Endpoint {
    async fn connect(&self) -> std::io::Result<Box<dyn ByteStream>> {
        let plain = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).await?;
        plain.set_nodelay(true)?;
        let Some(tls) = &self.tls else {
            return Ok(Box::new(plain));
        };
        let name = ServerName::from(IpAddr::V4(Ipv4Addr::LOCALHOST));
        let stream = TlsConnector::from(Arc::clone(tls)).connect(name, plain);
        Ok(Box::new(stream.await?))
    }

    /// Opens a WebSocket with channels.
    pub(super) async fn web_socket(
        &self,
        path: &str,
    ) -> Result<WebSocketStream<Box<dyn ByteStream>>, HarnessError> {
        let url = format!("ws://127.0.0.1:{}{path}", self.port);
        let failed = |why: String| http_error(&url, why);
        let uri = url
            .parse()
            .map_err(|error: InvalidUri| failed(error.to_string()))?;
        let request = ClientRequestBuilder::new(uri).with_sub_protocol(PROTOCOL);
        let stream = self.connect().await.map_err(|e| failed(e.to_string()))?;
        let opened = tokio_tungstenite::client_async(request, stream).await;
        let (socket, _) = opened.map_err(|error| failed(error.to_string()))?;
        Ok(socket)
    }

    /// Sends a GET and returns the connection once the first byte of the response's body is there.
    pub(super) async fn get(&self, path: &str) -> Result<Box<dyn ByteStream>, HarnessError> {
        let work = async {
            let mut stream = self.connect().await?;
            let request = format!("GET {path} HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n");
            stream.write_all(request.as_bytes()).await?;
            let mut read = Vec::new();
            let mut part = [0; 4096];
            loop {
                let count = stream.read(&mut part).await?;
                if count == 0 {
                    let text = String::from_utf8_lossy(&read).into_owned();
                    return Err(std::io::Error::other(format!("no body: {text}")));
                }
                read.extend_from_slice(part.get(..count).unwrap_or_default());
                if let Some(end) = read.windows(4).position(|four| four == b"\r\n\r\n")
                    && read.len() > end + 4
                {
                    break;
                }
            }
            if read.starts_with(b"HTTP/1.0 200") || read.starts_with(b"HTTP/1.1 200") {
                return Ok(stream);
            }
            let text = String::from_utf8_lossy(&read).into_owned();
            Err(std::io::Error::other(text))
        };
        let url = format!("127.0.0.1:{}{path}", self.port);
        work.await
            .map_err(|error| http_error(&url, error.to_string()))
    }
}

pub(super) fn http_error(address: &str, why: String) -> HarnessError {
    HarnessError::Http {
        address: address.to_owned(),
        why,
    }
}
