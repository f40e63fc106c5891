//! `httpGet`: a GET on a connection of its own.

use std::future::pending;

use ::http::header::{ACCEPT, CONNECTION, HOST, LOCATION, USER_AGENT};
use ::http::{HeaderMap, HeaderName, HeaderValue, Request, StatusCode};
use futures::future::{Either, select};
use http_body_util::{BodyExt, Empty};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use polylet_kit::report;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;

use super::redirect::Target;
use super::{MAX_BODY, net, tls};
use crate::core::types::{HttpAsk, Observation};

/// Upstream's HTTP client gives up here.
const MAX_REDIRECTS: usize = 10;

/// Why there was no answer.
#[derive(Debug, thiserror::Error)]
enum HttpError {
    #[error("connecting to {place}")]
    Connect {
        place: String,
        #[source]
        source: std::io::Error,
    },
    #[error("setting up TLS")]
    Tls(#[source] rustls::Error),
    #[error("{0} is no name that TLS knows")]
    ServerName(String),
    #[error("TLS with {place}")]
    Handshake {
        place: String,
        #[source]
        source: std::io::Error,
    },
    #[error("header {0} cannot be sent")]
    Header(String),
    #[error("the request cannot be made")]
    Request(#[source] ::http::Error),
    #[error("talking to {place}")]
    Exchange {
        place: String,
        #[source]
        source: hyper::Error,
    },
}

/// What came back.
struct Answer {
    status: StatusCode,
    location: Option<String>,
}

/// Asks, and follows redirects to the same host. Anything from 200 to 399 is success.
pub(crate) async fn ask(ask: &HttpAsk, pod: &str, tls: &tls::Lazy) -> Observation {
    let host = ask.host.as_deref().unwrap_or(pod);
    let mut target = Target::new(ask.https, host, ask.port, &ask.path);
    let first = target.host.clone();
    let mut headers = match headers(&ask.headers) {
        Ok(headers) => headers,
        Err(error) => return Observation::Failure(report(&error)),
    };
    for _ in 0..=MAX_REDIRECTS {
        let answer = match get(&target, &headers, tls).await {
            Ok(answer) => answer,
            Err(error) => {
                return Observation::Failure(format!("Get {:?}: {}", target.url(), report(&error)));
            }
        };
        let next = follows(answer.status)
            .then_some(answer.location.as_deref())
            .flatten();
        let Some(next) = next.filter(|location| !location.is_empty()) else {
            return judge(answer.status);
        };
        let Some(to) = target.resolve(next) else {
            return Observation::Failure(format!("{} redirects to {next:?}", target.url()));
        };
        if to.host != first {
            return judge(answer.status);
        }
        // The name asked for goes along only as long as the server itself does not name another.
        if next.contains("://") || next.starts_with("//") {
            headers.remove(HOST);
        }
        target = to;
    }
    Observation::Failure(format!("stopped after {MAX_REDIRECTS} redirects"))
}

fn follows(status: StatusCode) -> bool {
    matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308)
}

fn judge(status: StatusCode) -> Observation {
    if (200..400).contains(&status.as_u16()) {
        Observation::Success
    } else {
        Observation::Failure(format!(
            "HTTP probe failed with statuscode: {}",
            status.as_u16()
        ))
    }
}

/// The probe's own headers and those that every probe sends.
fn headers(own: &[(String, String)]) -> Result<HeaderMap, HttpError> {
    let mut headers = HeaderMap::new();
    for (name, value) in own {
        let bad = || HttpError::Header(name.clone());
        let key = HeaderName::try_from(name.as_str()).map_err(|_| bad())?;
        let value = HeaderValue::try_from(value.as_str()).map_err(|_| bad())?;
        headers.append(key, value);
    }
    if !headers.contains_key(USER_AGENT) {
        headers.insert(USER_AGENT, HeaderValue::from_static(super::USER_AGENT));
    }
    match headers.get(ACCEPT) {
        None => drop(headers.insert(ACCEPT, HeaderValue::from_static("*/*"))),
        Some(accept) if accept.is_empty() => drop(headers.remove(ACCEPT)),
        Some(_) => {}
    }
    headers.insert(CONNECTION, HeaderValue::from_static("close"));
    Ok(headers)
}

async fn get(target: &Target, headers: &HeaderMap, tls: &tls::Lazy) -> Result<Answer, HttpError> {
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
    let shaken = connector.connect(name, stream).await;
    let stream = shaken.map_err(|source| HttpError::Handshake {
        place: place.clone(),
        source,
    })?;
    exchange(stream, request, place).await
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
