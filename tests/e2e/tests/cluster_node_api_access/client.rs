//! HTTPS requests of any method, with several on one connection.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use polylet_e2e::ok;
use rustls::pki_types::ServerName;
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::callers::NodeApiCaller;

const LIMIT: Duration = Duration::from_secs(20);
/// Longer bodies are of no interest.
const MAX_BODY: usize = 64 << 20;

/// A response, or how the connection failed.
pub(crate) struct CallerResponse {
    pub(crate) code: u16,
    pub(crate) headers: hyper::HeaderMap,
    pub(crate) body: String,
}

/// A caller's connection, which is opened again when the server closes it.
pub(crate) struct CallerConnection<'a> {
    caller: &'a NodeApiCaller,
    port: u16,
    open: Option<SendRequest<Empty<Bytes>>>,
}

impl<'a> CallerConnection<'a> {
    pub(crate) fn new(caller: &'a NodeApiCaller, port: u16) -> Self {
        Self {
            caller,
            port,
            open: None,
        }
    }

    /// The response to a request, or why there is none.
    pub(crate) async fn ask(&mut self, method: &str, path: &str) -> Result<CallerResponse, String> {
        let mut open = self.open.take();
        if let Some(sender) = &mut open
            && sender.ready().await.is_err()
        {
            open = None;
        }
        let mut sender = match open {
            Some(sender) => sender,
            None => self.connect().await?,
        };
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", "127.0.0.1");
        if let Some(authorization) = &self.caller.authorization {
            request = request.header("authorization", authorization);
        }
        let request = ok(request.body(Empty::new()));
        let sent = timeout(LIMIT, sender.send_request(request)).await;
        let response = sent.map_err(|_| "no response".to_owned())?;
        let response = response.map_err(|error| format!("closed: {}", root(&error)))?;
        let exchange = read(response).await?;
        self.open = Some(sender);
        Ok(exchange)
    }

    async fn connect(&self) -> Result<SendRequest<Empty<Bytes>>, String> {
        let work = async {
            let socket = TcpSocket::new_v4()?;
            socket.bind((self.caller.address, 0).into())?;
            let to = (Ipv4Addr::LOCALHOST, self.port).into();
            let plain: TcpStream = socket.connect(to).await?;
            plain.set_nodelay(true)?;
            let name = ServerName::from(IpAddr::V4(Ipv4Addr::LOCALHOST));
            let tls = TlsConnector::from(Arc::clone(&self.caller.tls));
            tls.connect(name, plain).await
        };
        let stream = timeout(LIMIT, work).await;
        let stream = stream.map_err(|_| "no connection".to_owned())?;
        let stream = stream.map_err(|error| format!("no connection: {error}"))?;
        let (sender, connection) = handshake(TokioIo::new(stream))
            .await
            .map_err(|error| format!("closed: {}", root(&error)))?;
        // Ends with the sender, which reports its errors.
        tokio::spawn(connection);
        Ok(sender)
    }
}

async fn read(response: Response<Incoming>) -> Result<CallerResponse, String> {
    let (parts, body) = response.into_parts();
    let body = timeout(LIMIT, Limited::new(body, MAX_BODY).collect()).await;
    let body = body.map_err(|_| "the body does not end".to_owned())?;
    let body = body.map_err(|error| format!("the body breaks off: {error}"))?;
    Ok(CallerResponse {
        code: parts.status.as_u16(),
        headers: parts.headers,
        body: String::from_utf8_lossy(&body.to_bytes()).into_owned(),
    })
}

/// The innermost cause: alerts of TLS.
fn root(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) => root(source),
        None => error.to_string(),
    }
}
