//! The exchange itself.

use std::cell::Cell;
use std::future::pending;
use std::pin::pin;

use futures::future::{Either, select};
use http::header::{ACCEPT, CONNECTION, HOST, LOCATION, USER_AGENT};
use http::{HeaderMap, HeaderName, HeaderValue, Request};
use http_body_util::{BodyExt, Empty};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;

use crate::error::{GetError, HttpError};
use crate::net;
use crate::target::{Led, Target, is_absolute};
use crate::tls::{FirstBytes, Tls};

/// Upstream's HTTP client makes so many requests before it gives up on redirects.
pub(crate) const MAX_REQUESTS: usize = 10;
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

/// What came back in the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The last answer's.
    pub status: u16,
    /// As much of it as upstream reads.
    pub body: Vec<u8>,
    location: Option<String>,
}

/// How far an exchange has come, for one whose time ends.
#[derive(Debug, Default)]
pub struct Heard {
    answering: Cell<bool>,
}

impl Heard {
    /// A head has come; its body has not.
    pub fn is_answering(&self) -> bool {
        self.answering.get()
    }
}

impl Get {
    /// The address asked first, as people write it.
    pub fn url(&self) -> String {
        self.target().url()
    }

    fn target(&self) -> Target {
        Target::new(self.https, &self.host, self.port, &self.path)
    }
}

/// Asks, and follows redirects to the same host; the status of the last answer, also when its body
/// broke off.
pub async fn get(ask: &Get, tls: &Tls) -> Result<u16, GetError> {
    match fetch(ask, tls, &Heard::default()).await {
        Ok(answer) => Ok(answer.status),
        Err(GetError::Get {
            source: HttpError::Body { status, .. },
            ..
        }) => Ok(status),
        Err(error) => Err(error),
    }
}

/// Asks, and follows redirects to the same host. `heard` tells meanwhile how far it has come.
pub async fn fetch(ask: &Get, tls: &Tls, heard: &Heard) -> Result<Answer, GetError> {
    let mut target = ask.target();
    let headers = headers(ask).map_err(GetError::Headers)?;
    // The name asked for goes along only where the server itself does not name another.
    let mut named = true;
    for request in 1.. {
        heard.answering.set(false);
        let answered = one(&target, &headers, named, tls, heard).await;
        let answer = answered.map_err(|source| GetError::Get {
            url: target.url(),
            source,
        })?;
        let next = follows(answer.status)
            .then_some(answer.location.as_deref())
            .flatten();
        let Some(next) = next.filter(|location| !location.is_empty()) else {
            return Ok(answer);
        };
        match target.resolve(next) {
            Led::Away => return Ok(answer),
            Led::Here(to) if request < MAX_REQUESTS => {
                named = !is_absolute(next);
                target = to;
            }
            Led::Here(_) => break,
            Led::Nowhere => {
                let (url, to) = (target.url(), next.to_owned());
                return Err(GetError::Redirect { url, to });
            }
        }
    }
    Err(GetError::TooManyRedirects { url: target.url() })
}

fn follows(status: u16) -> bool {
    matches!(status, 301 | 302 | 303 | 307 | 308)
}

/// The asker's own headers and those that every request has. Of those that can stand only once the
/// first counts; one that is empty is not sent.
fn headers(ask: &Get) -> Result<HeaderMap, HttpError> {
    let mut headers = HeaderMap::new();
    for (name, value) in &ask.headers {
        let bad = || HttpError::Header(name.clone());
        let key = HeaderName::try_from(name.as_str()).map_err(|_| bad())?;
        let value = HeaderValue::try_from(value.as_str()).map_err(|_| bad())?;
        if [HOST, USER_AGENT].contains(&key) && headers.contains_key(&key) {
            continue;
        }
        headers.append(key, value);
    }
    for (key, default) in [
        (USER_AGENT, Some(ask.user_agent)),
        (ACCEPT, Some("*/*")),
        (HOST, None),
    ] {
        match (headers.get(&key), default) {
            (None, Some(default)) => {
                headers.insert(key, HeaderValue::from_static(default));
            }
            (Some(value), _) if value.is_empty() => drop(headers.remove(key)),
            _ => {}
        }
    }
    headers.insert(CONNECTION, HeaderValue::from_static("close"));
    Ok(headers)
}

async fn one(
    target: &Target,
    headers: &HeaderMap,
    named: bool,
    tls: &Tls,
    heard: &Heard,
) -> Result<Answer, HttpError> {
    let place = target.authority();
    let connected = net::connect(&target.host, target.port).await;
    let stream = connected.map_err(|error| {
        HttpError::Connect(net::dial(&target.host, target.port, &net::words(&error)))
    })?;
    let request = request(target, headers, named)?;
    if !target.https {
        return exchange(stream, request, place, heard).await;
    }
    let connector = TlsConnector::from(tls.config().map_err(HttpError::Tls)?);
    let name = ServerName::try_from(target.host.clone())
        .map_err(|_| HttpError::ServerName(target.host.clone()))?;
    let shaken = connector.connect(name, FirstBytes::of(stream));
    match shaken.into_fallible().await {
        Ok(stream) => exchange(stream, request, place, heard).await,
        Err((_, stream)) if stream.are(b"HTTP/") => Err(HttpError::PlainHttp { place }),
        Err((source, _)) => Err(HttpError::Handshake { place, source }),
    }
}

fn request(
    target: &Target,
    headers: &HeaderMap,
    named: bool,
) -> Result<Request<Empty<Bytes>>, HttpError> {
    let mut request = Request::get(target.path.as_str())
        .body(Empty::new())
        .map_err(HttpError::Request)?;
    *request.headers_mut() = headers.clone();
    if !named || !headers.contains_key(HOST) {
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
    heard: &Heard,
) -> Result<Answer, HttpError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let failed = |source| HttpError::Exchange {
        place: place.clone(),
        source,
    };
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
        .await
        .map_err(failed)?;
    let asked = async {
        let answer = sender.send_request(request).await.map_err(failed)?;
        heard.answering.set(true);
        let (parts, body) = answer.into_parts();
        let status = parts.status.as_u16();
        let body = read(body).await.map_err(|source| HttpError::Body {
            place: place.clone(),
            status,
            source,
        })?;
        let location = parts
            .headers
            .get(LOCATION)
            .and_then(|value| value.to_str().ok())
            .map(str::to_owned);
        Ok(Answer {
            status,
            body,
            location,
        })
    };
    // The connection moves bytes, here and not in a task of its own; its end is told to the one who
    // asked.
    let moved = async move {
        let _ = connection.await;
        pending().await
    };
    match select(pin!(asked), pin!(moved)).await {
        Either::Left((answer, _)) => answer,
        Either::Right((never, _)) => never,
    }
}

/// Reads as much of the body as upstream does; what is longer is no failure.
async fn read(mut body: Incoming) -> Result<Vec<u8>, hyper::Error> {
    let mut read = Vec::new();
    while let Some(frame) = body.frame().await {
        if let Ok(data) = frame?.into_data() {
            read.extend_from_slice(&data);
        }
        if read.len() >= MAX_BODY {
            read.truncate(MAX_BODY);
            break;
        }
    }
    Ok(read)
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
