//! The exchange itself.

use std::future::pending;

use futures::future::{Either, select};
use http::header::{ACCEPT, CONNECTION, HOST, LOCATION, USER_AGENT};
use http::{HeaderMap, HeaderName, HeaderValue, Request, StatusCode};
use http_body_util::{BodyExt, Empty};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;

use crate::net;
use crate::target::Target;
use crate::tls::{FirstBytes, Tls};

/// Upstream's HTTP client gives up here.
const MAX_REDIRECTS: usize = 10;
/// What is read of a body, as upstream.
const MAX_BODY: usize = 10 << 10;

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Get {
    /// Over TLS.
    pub https: bool,
    /// An address or a name.
    pub host: String,
    /// The port.
    pub port: u16,
    /// Path and query.
    pub path: String,
    /// The asker's own headers; one name may stand more than once.
    pub headers: Vec<(String, String)>,
    /// Sent where the headers have none.
    pub user_agent: &'static str,
}

/// Why nobody answered one request.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// Nobody took the connection.
    #[error("connecting to {place}")]
    Connect {
        /// Host and port.
        place: String,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// TLS cannot be used at all.
    #[error("setting up TLS")]
    Tls(#[source] rustls::Error),
    /// The host is neither an address nor a name.
    #[error("{0} is no name that TLS knows")]
    ServerName(String),
    /// The server speaks plain HTTP.
    #[error("TLS with {place}: server gave HTTP response to HTTPS client")]
    PlainHttp {
        /// Host and port.
        place: String,
    },
    /// The server does not speak TLS as we do.
    #[error("TLS with {place}")]
    Handshake {
        /// Host and port.
        place: String,
        /// What went wrong.
        #[source]
        source: std::io::Error,
    },
    /// A header's name or value has bytes that no header may have.
    #[error("header {0} cannot be sent")]
    Header(String),
    /// The path has bytes that no path may have.
    #[error("the request cannot be made")]
    Request(#[source] http::Error),
    /// The answer was none.
    #[error("talking to {place}")]
    Exchange {
        /// Host and port.
        place: String,
        /// What went wrong.
        #[source]
        source: hyper::Error,
    },
}

/// Why there was no last answer.
#[derive(Debug, thiserror::Error)]
pub enum GetError {
    /// The headers cannot be sent.
    #[error(transparent)]
    Headers(HttpError),
    /// Nobody answered.
    #[error("Get {url:?}")]
    Get {
        /// What was asked for.
        url: String,
        /// Why.
        #[source]
        source: HttpError,
    },
    /// A redirect to where nothing can be asked.
    #[error("{url} redirects to {to:?}")]
    Redirect {
        /// What was asked for.
        url: String,
        /// The server's word.
        to: String,
    },
    /// Redirects without end.
    #[error("stopped after {MAX_REDIRECTS} redirects")]
    TooManyRedirects,
}

impl GetError {
    /// The server was asked over TLS and answered in plain HTTP.
    pub fn is_plain_http(&self) -> bool {
        matches!(
            self,
            GetError::Get {
                source: HttpError::PlainHttp { .. },
                ..
            }
        )
    }
}

/// What came back.
struct Answer {
    status: StatusCode,
    location: Option<String>,
}

/// Asks, and follows redirects to the same host; the status of the last answer.
pub async fn get(ask: &Get, tls: &Tls) -> Result<u16, GetError> {
    let mut target = Target::new(ask.https, &ask.host, ask.port, &ask.path);
    let first = target.host.clone();
    let mut headers = headers(ask).map_err(GetError::Headers)?;
    for _ in 0..=MAX_REDIRECTS {
        let answer = one(&target, &headers, tls)
            .await
            .map_err(|source| GetError::Get {
                url: target.url(),
                source,
            })?;
        let next = follows(answer.status)
            .then_some(answer.location.as_deref())
            .flatten();
        let Some(next) = next.filter(|location| !location.is_empty()) else {
            return Ok(answer.status.as_u16());
        };
        let to = target.resolve(next).ok_or_else(|| GetError::Redirect {
            url: target.url(),
            to: next.to_owned(),
        })?;
        if to.host != first {
            return Ok(answer.status.as_u16());
        }
        // The name asked for goes along only as long as the server itself does not name another.
        if next.contains("://") || next.starts_with("//") {
            headers.remove(HOST);
        }
        target = to;
    }
    Err(GetError::TooManyRedirects)
}

fn follows(status: StatusCode) -> bool {
    matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308)
}

/// The asker's own headers and those that every request has.
fn headers(ask: &Get) -> Result<HeaderMap, HttpError> {
    let mut headers = HeaderMap::new();
    for (name, value) in &ask.headers {
        let bad = || HttpError::Header(name.clone());
        let key = HeaderName::try_from(name.as_str()).map_err(|_| bad())?;
        let value = HeaderValue::try_from(value.as_str()).map_err(|_| bad())?;
        headers.append(key, value);
    }
    if !headers.contains_key(USER_AGENT) {
        headers.insert(USER_AGENT, HeaderValue::from_static(ask.user_agent));
    }
    match headers.get(ACCEPT) {
        None => drop(headers.insert(ACCEPT, HeaderValue::from_static("*/*"))),
        Some(accept) if accept.is_empty() => drop(headers.remove(ACCEPT)),
        Some(_) => {}
    }
    headers.insert(CONNECTION, HeaderValue::from_static("close"));
    Ok(headers)
}

async fn one(target: &Target, headers: &HeaderMap, tls: &Tls) -> Result<Answer, HttpError> {
    let place = target.authority();
    let connected = net::connect(&target.host, target.port).await;
    let stream = connected.map_err(|source| HttpError::Connect {
        place: place.clone(),
        source,
    })?;
    let request = request(target, headers)?;
    if !target.https {
        return exchange(stream, request, place).await;
    }
    let connector = TlsConnector::from(tls.config().map_err(HttpError::Tls)?);
    let name = ServerName::try_from(target.host.clone())
        .map_err(|_| HttpError::ServerName(target.host.clone()))?;
    let shaken = connector.connect(name, FirstBytes::of(stream));
    match shaken.into_fallible().await {
        Ok(stream) => exchange(stream, request, place).await,
        Err((_, stream)) if stream.are(b"HTTP/") => Err(HttpError::PlainHttp { place }),
        Err((source, _)) => Err(HttpError::Handshake { place, source }),
    }
}

fn request(target: &Target, headers: &HeaderMap) -> Result<Request<Empty<Bytes>>, HttpError> {
    let mut request = Request::get(target.path.as_str())
        .body(Empty::new())
        .map_err(HttpError::Request)?;
    *request.headers_mut() = headers.clone();
    if !headers.contains_key(HOST) {
        let host = HeaderValue::try_from(target.authority())
            .map_err(|_| HttpError::Header("Host".to_owned()))?;
        request.headers_mut().insert(HOST, host);
    }
    Ok(request)
}

async fn exchange<S>(
    stream: S,
    request: Request<Empty<Bytes>>,
    place: String,
) -> Result<Answer, HttpError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let failed = |source| HttpError::Exchange { place, source };
    let talk = async {
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        let asked = async move {
            let answer = sender.send_request(request).await?;
            let (parts, body) = answer.into_parts();
            read(body).await?;
            let location = parts
                .headers
                .get(LOCATION)
                .and_then(|value| value.to_str().ok())
                .map(str::to_owned);
            Ok(Answer {
                status: parts.status,
                location,
            })
        };
        // The connection moves bytes, here and not in a task of its own; its end is told to the
        // one who asked.
        let moved = async move {
            let _ = connection.await;
            pending().await
        };
        match select(Box::pin(asked), Box::pin(moved)).await {
            Either::Left((answer, _)) => answer,
            Either::Right((never, _)) => never,
        }
    };
    talk.await.map_err(failed)
}

/// Reads as much of the body as upstream does: a server has to send it in time.
async fn read(mut body: Incoming) -> Result<(), hyper::Error> {
    let mut length = 0;
    while let Some(frame) = body.frame().await {
        length += frame?.data_ref().map_or(0, Bytes::len);
        if length >= MAX_BODY {
            break;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    #[tokio::test]
    async fn a_server_without_tls_is_told_from_a_broken_one() {
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0))
            .await
            .unwrap();
        let ask = Get {
            https: true,
            host: "127.0.0.1".into(),
            port: listener.local_addr().unwrap().port(),
            path: "/".into(),
            headers: Vec::new(),
            user_agent: "test",
        };
        for (said, plain) in [
            ("HTTP/1.1 400 Bad Request\r\n\r\n", true),
            ("HELLO THERE\r\n", false),
        ] {
            let serve = async {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut hello = [0; 64];
                let _ = stream.read(&mut hello).await;
                let _ = stream.write_all(said.as_bytes()).await;
            };
            let tls = Tls::default();
            let (answer, ()) = tokio::join!(get(&ask, &tls), serve);
            assert_eq!(answer.unwrap_err().is_plain_http(), plain, "{said}");
        }
    }
}
