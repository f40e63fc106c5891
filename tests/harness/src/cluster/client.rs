use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::authority::KeyPairFiles;
use crate::error::HarnessError;

/// Timeout of one request.
const LIMIT: Duration = Duration::from_secs(30);

/// The patch type.
#[derive(Debug, Clone, Copy)]
pub enum Patch {
    /// JSON merge patch: fields replace fields.
    Merge,
    /// Strategic merge patch: lists are merged by their keys, as with `kubectl patch`.
    Strategic,
}

/// A minimal JSON client of the API server. Copies share their idle connections.
#[derive(Debug, Clone)]
pub struct Client {
    port: u16,
    tls: Arc<ClientConfig>,
    /// Idle connections.
    idle: Arc<Mutex<Vec<SendRequest<Full<Bytes>>>>>,
}

impl Client {
    pub(super) fn new(
        port: u16,
        authority: &Path,
        user: &KeyPairFiles,
    ) -> Result<Self, HarnessError> {
        let made = |what| move |source| HarnessError::Tls { what, source };
        let mut roots = RootCertStore::empty();
        let root = certificate(authority)?;
        roots.add(root).map_err(made("the CA certificate"))?;
        let key =
            PrivateKeyDer::from_pem_file(&user.key).map_err(|error| unread(&user.key, error))?;
        let tls = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(made("the protocol versions"))?
            .with_root_certificates(roots)
            .with_client_auth_cert(vec![certificate(&user.certificate)?], key)
            .map_err(made("the client certificate"))?;
        Ok(Self {
            port,
            tls: Arc::new(tls),
            idle: Arc::default(),
        })
    }

    /// Gets an object or a list; `None` on 404.
    ///
    /// # Errors
    /// Fails if the server does not respond, or with any other error status.
    pub async fn get(&self, path: &str) -> Result<Option<Value>, HarnessError> {
        match self.ask(Method::GET, path, None).await {
            Ok(value) => Ok(Some(value)),
            Err(HarnessError::Api { code: 404, .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Gets the text at a non-resource path, such as `/readyz`.
    ///
    /// # Errors
    /// Fails if the server does not respond or returns an error status.
    pub async fn text(&self, path: &str) -> Result<String, HarnessError> {
        let (code, body) = self.send(Method::GET, path, None).await?;
        let text = String::from_utf8_lossy(&body).into_owned();
        if code == 200 {
            return Ok(text);
        }
        Err(refused("GET", path, code, text))
    }

    /// Creates an object in the collection at `path` and returns the stored object.
    ///
    /// # Errors
    /// Fails if the server does not respond or returns an error status.
    pub async fn create(&self, path: &str, object: &Value) -> Result<Value, HarnessError> {
        let body = ("application/json", object.to_string());
        self.ask(Method::POST, path, Some(body)).await
    }

    /// Patches an object.
    ///
    /// # Errors
    /// Fails if the server does not respond or returns an error status.
    pub async fn patch(
        &self,
        path: &str,
        kind: Patch,
        change: &Value,
    ) -> Result<Value, HarnessError> {
        let kind = match kind {
            Patch::Merge => "application/merge-patch+json",
            Patch::Strategic => "application/strategic-merge-patch+json",
        };
        let body = (kind, change.to_string());
        self.ask(Method::PATCH, path, Some(body)).await
    }

    /// Deletes an object; `options` are DeleteOptions or null.
    ///
    /// # Errors
    /// Fails if the server does not respond or returns an error status.
    pub async fn delete(&self, path: &str, options: &Value) -> Result<Value, HarnessError> {
        let body = (!options.is_null()).then(|| ("application/json", options.to_string()));
        self.ask(Method::DELETE, path, body).await
    }

    /// Watches a collection for as long as the connection lasts; `path` carries all query parameters but those
    /// of the watch.
    ///
    /// # Errors
    /// Fails if the server does not respond or returns an error status.
    pub async fn watch(&self, path: &str) -> Result<ObjectWatch, HarnessError> {
        let mark = if path.contains('?') { '&' } else { '?' };
        // Without a limit the API server ends it after half an hour to an hour.
        let path = format!("{path}{mark}watch=true&timeoutSeconds=86400");
        let mut connection = self.connect().await?;
        let answer = self.exchange(&mut connection, Method::GET, &path, None);
        let answer = answer.await?;
        let code = answer.status().as_u16();
        if code != 200 {
            let body = self.body(&path, answer).await?;
            let text = String::from_utf8_lossy(&body).into_owned();
            return Err(refused("GET", &path, code, text));
        }
        Ok(ObjectWatch {
            path,
            body: answer.into_body(),
            read: Vec::new(),
            _connection: connection,
        })
    }

    async fn ask(
        &self,
        method: Method,
        path: &str,
        body: Option<(&str, String)>,
    ) -> Result<Value, HarnessError> {
        let word = method.to_string();
        let (code, body) = self.send(method, path, body).await?;
        if !(200..300).contains(&code) {
            let text = serde_json::from_slice::<Value>(&body).ok();
            let message = text
                .as_ref()
                .and_then(|status| status.get("message")?.as_str());
            let text = String::from_utf8_lossy(&body);
            return Err(refused(
                &word,
                path,
                code,
                message.unwrap_or(&text).to_owned(),
            ));
        }
        serde_json::from_slice(&body).map_err(|source| HarnessError::Json {
            what: "the API server's response",
            from: path.to_owned(),
            source,
        })
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<(&str, String)>,
    ) -> Result<(u16, Bytes), HarnessError> {
        let mut connection = match self.waiting().await {
            Some(connection) => connection,
            None => self.connect().await?,
        };
        let answer = self.exchange(&mut connection, method, path, body).await?;
        let code = answer.status().as_u16();
        let body = self.body(path, answer).await?;
        self.idle
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(connection);
        Ok((code, body))
    }

    /// Returns an idle connection that is still open.
    async fn waiting(&self) -> Option<SendRequest<Full<Bytes>>> {
        loop {
            let next = self
                .idle
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .pop();
            let mut connection = next?;
            if connection.ready().await.is_ok() {
                return Some(connection);
            }
        }
    }

    async fn connect(&self) -> Result<SendRequest<Full<Bytes>>, HarnessError> {
        let at = format!("127.0.0.1:{}", self.port);
        let failed = |why: String| self.failed("connecting", why);
        let work = async {
            let plain = TcpStream::connect(&at).await?;
            plain.set_nodelay(true)?;
            let name = ServerName::from(std::net::IpAddr::from([127, 0, 0, 1]));
            TlsConnector::from(self.tls.clone())
                .connect(name, plain)
                .await
        };
        let stream = match timeout(LIMIT, work).await {
            Ok(stream) => stream.map_err(|error| failed(error.to_string()))?,
            Err(_) => return Err(failed("request timed out".to_owned())),
        };
        let shaken = handshake(TokioIo::new(stream)).await;
        let (sender, connection) = shaken.map_err(|error| failed(error.to_string()))?;
        // The task ends with the sender, which reports its errors.
        tokio::spawn(connection);
        Ok(sender)
    }

    async fn exchange(
        &self,
        connection: &mut SendRequest<Full<Bytes>>,
        method: Method,
        path: &str,
        body: Option<(&str, String)>,
    ) -> Result<Response<Incoming>, HarnessError> {
        let failed = |why: String| self.failed(path, why);
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", format!("127.0.0.1:{}", self.port))
            .header("accept", "application/json");
        let mut bytes = Bytes::new();
        if let Some((kind, text)) = body {
            request = request.header("content-type", kind);
            bytes = Bytes::from(text);
        }
        let request = request.body(Full::new(bytes));
        let request = request.map_err(|error| failed(error.to_string()))?;
        match timeout(LIMIT, connection.send_request(request)).await {
            Ok(answer) => answer.map_err(|error| failed(error.to_string())),
            Err(_) => Err(failed("request timed out".to_owned())),
        }
    }

    async fn body(&self, path: &str, answer: Response<Incoming>) -> Result<Bytes, HarnessError> {
        let failed = |why: String| self.failed(path, why);
        match timeout(LIMIT, answer.into_body().collect()).await {
            Ok(body) => Ok(body.map_err(|error| failed(error.to_string()))?.to_bytes()),
            Err(_) => Err(failed("response body timed out".to_owned())),
        }
    }

    fn failed(&self, path: &str, why: String) -> HarnessError {
        HarnessError::Http {
            address: format!("127.0.0.1:{} {path}", self.port),
            why,
        }
    }
}

/// Events of a watch.
#[derive(Debug)]
pub struct ObjectWatch {
    path: String,
    body: Incoming,
    read: Vec<u8>,
    _connection: SendRequest<Full<Bytes>>,
}

impl ObjectWatch {
    /// The next event's type (`ADDED`, `MODIFIED`, `DELETED`) and object. `None` when the server
    /// ends the watch.
    ///
    /// # Errors
    /// Fails if the connection breaks or a line is not JSON.
    pub async fn next(&mut self) -> Result<Option<(String, Value)>, HarnessError> {
        loop {
            if let Some(end) = self.read.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.read.drain(..=end).collect();
                return self.event(&line).map(Some);
            }
            let Some(frame) = self.body.frame().await else {
                return Ok(None);
            };
            let frame = frame.map_err(|error| HarnessError::Http {
                address: self.path.clone(),
                why: error.to_string(),
            })?;
            if let Some(data) = frame.data_ref() {
                self.read.extend_from_slice(data);
            }
        }
    }

    fn event(&self, line: &[u8]) -> Result<(String, Value), HarnessError> {
        let event = serde_json::from_slice(line);
        let mut event: Value = event.map_err(|source| HarnessError::Json {
            what: "a watch event",
            from: self.path.clone(),
            source,
        })?;
        let kind = event["type"].as_str().unwrap_or_default().to_owned();
        Ok((kind, event["object"].take()))
    }
}

fn refused(method: &str, path: &str, code: u16, message: String) -> HarnessError {
    HarnessError::Api {
        request: format!("{method} {path}"),
        code,
        message,
    }
}

fn certificate(path: &Path) -> Result<CertificateDer<'static>, HarnessError> {
    let bytes = crate::error::file("read", path, fs::read(path))?;
    CertificateDer::from_pem_slice(&bytes).map_err(|error| unread(path, error))
}

fn unread(path: &Path, error: rustls::pki_types::pem::Error) -> HarnessError {
    HarnessError::File {
        what: "read",
        path: path.to_owned(),
        source: std::io::Error::other(error.to_string()),
    }
}
