//! The client: requests, redirects, and responses of bounded size.

use std::future::pending;
use std::pin::pin;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures::future::{Either, select};
use http::header::{AUTHORIZATION, CONNECTION, HOST, LOCATION};
use http::{HeaderMap, HeaderValue, Request};
use http_body_util::{BodyExt, Empty};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::connect::{self, DialError};
use crate::error::{GetError, HttpError};
use crate::headers::{self, insert};
use crate::resolver::Resolver;
use crate::target::{GetTarget, MAX_REQUESTS, ResolvedTarget, is_absolute};
use crate::tls::{FirstBytes, TlsClient};

/// The kubelet reads this much of the response to a probe or hook.
const PROBE_BODY: usize = 10 << 10;

/// Headers of a response that are accepted: more than any server in use sends. Beyond some 24,000
/// distinct names the type that holds them panics.
const MAX_RESPONSE_HEADERS: usize = 1000;

/// Makes GET requests by one of two policies.
pub struct Client {
    resolver: Resolver,
    tls: TlsClient,
    redirects: Redirects,
    max_body: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Redirects {
    /// A redirect to another host is the final response. The body is cut off at the limit.
    SameHost,
    /// The caller's headers go to the scheme and host of the first request alone. A body beyond the
    /// limit is an error.
    All,
}

/// A request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Get {
    /// The first URL.
    pub target: GetTarget,
    /// Headers; a name may occur more than once.
    pub headers: Vec<(String, String)>,
    /// The `User-Agent` unless the headers have one; not sent when empty.
    pub user_agent: &'static str,
    /// Who makes the request, such as the uid of a pod: lookups of names are fair between requesters.
    pub requester: String,
}

/// The final response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GetResponse {
    /// Status code.
    pub status: u16,
    /// The body up to the client's limit.
    pub body: Vec<u8>,
    location: Option<String>,
}

/// Progress of a request, for the message of a timeout.
#[derive(Debug, Default)]
pub struct GetProgress {
    has_head: AtomicBool,
}

impl GetProgress {
    /// Whether the head of a response has been received, but not yet its body.
    pub fn is_reading_body(&self) -> bool {
        self.has_head.load(Ordering::Relaxed)
    }

    fn set(&self, has_head: bool) {
        self.has_head.store(has_head, Ordering::Relaxed);
    }
}

impl Client {
    /// As the kubelet's HTTP probes and lifecycle hooks: redirects to the same host, any
    /// certificate, the first 10 KiB of the body.
    pub fn for_probes() -> Self {
        Client {
            resolver: Resolver::new(),
            tls: TlsClient::Unverified(OnceLock::new()),
            redirects: Redirects::SameHost,
            max_body: PROBE_BODY,
        }
    }

    /// For sources of configuration: all redirects, verified certificates, a body of at most
    /// `max_body` bytes.
    pub fn for_sources(max_body: usize) -> Self {
        Client {
            resolver: Resolver::new(),
            tls: TlsClient::Verified,
            redirects: Redirects::All,
            max_body,
        }
    }

    /// Opens a connection to an address or a name, without a request.
    pub async fn connect(
        &self,
        requester: &str,
        host: &str,
        port: u16,
    ) -> Result<TcpStream, DialError> {
        connect::connect(&self.resolver, requester, host, port).await
    }

    /// How long the system's resolver has been looking up a name, if it is.
    pub fn lookup_age(&self, host: &str) -> Option<Duration> {
        self.resolver.lookup_age(host)
    }

    /// Makes the request and follows redirects. `progress` may be read meanwhile.
    pub async fn get(&self, get: &Get, progress: &GetProgress) -> Result<GetResponse, GetError> {
        let mut target = get.target.clone();
        let headers =
            headers::request_headers(&get.headers, get.user_agent).map_err(GetError::Headers)?;
        // A `Host` header of the caller goes along only while the server names no other host.
        let mut keeps_host = true;
        for count in 1.. {
            progress.set(false);
            let is_own = target.host == get.target.host && target.https == get.target.https;
            let request = if is_own || self.redirects == Redirects::SameHost {
                build(&target, &headers, keeps_host)
            } else {
                build(&target, &HeaderMap::new(), false)
            };
            let response = self.request(&get.requester, &target, request, progress);
            let response = response.await.map_err(|source| GetError::Get {
                url: target.url(),
                source,
            })?;
            let location = is_redirect(response.status)
                .then_some(response.location.as_deref())
                .flatten();
            let Some(location) = location.filter(|location| !location.is_empty()) else {
                return Ok(response);
            };
            let next = match (target.resolve(location), self.redirects) {
                (ResolvedTarget::OtherHost(_), Redirects::SameHost) => return Ok(response),
                (ResolvedTarget::SameHost(next), _)
                | (ResolvedTarget::OtherHost(Some(next)), Redirects::All) => next,
                (ResolvedTarget::Invalid | ResolvedTarget::OtherHost(None), _) => {
                    let (url, location) = (target.url(), location.to_owned());
                    return Err(GetError::Redirect { url, location });
                }
            };
            if count >= MAX_REQUESTS {
                break;
            }
            keeps_host = !is_absolute(location);
            target = next;
        }
        Err(GetError::TooManyRedirects { url: target.url() })
    }

    /// The same for the status code alone: an incomplete body is no failure.
    pub async fn get_status(&self, get: &Get) -> Result<u16, GetError> {
        match self.get(get, &GetProgress::default()).await {
            Ok(response) => Ok(response.status),
            Err(GetError::Get {
                source: HttpError::Body { status, .. },
                ..
            }) => Ok(status),
            Err(error) => Err(error),
        }
    }

    /// One request on a new connection.
    async fn request(
        &self,
        requester: &str,
        target: &GetTarget,
        request: Result<Request<Empty<Bytes>>, HttpError>,
        progress: &GetProgress,
    ) -> Result<GetResponse, HttpError> {
        let address = target.authority();
        let stream = self.connect(requester, &target.host, target.port).await;
        let stream = stream.map_err(HttpError::Connect)?;
        let request = request?;
        if !target.https {
            return self.exchange(stream, request, address, progress).await;
        }
        let connector = TlsConnector::from(self.tls.config().map_err(HttpError::Tls)?);
        let name = ServerName::try_from(target.host.clone())
            .map_err(|_| HttpError::ServerName(target.host.clone()))?;
        let handshake = connector.connect(name, FirstBytes::new(stream));
        match handshake.into_fallible().await {
            Ok(stream) => self.exchange(stream, request, address, progress).await,
            Err((_, stream)) if stream.is(b"HTTP/") => Err(HttpError::PlainHttp { address }),
            Err((source, _)) => Err(HttpError::Handshake { address, source }),
        }
    }

    async fn exchange<S>(
        &self,
        stream: S,
        request: Request<Empty<Bytes>>,
        address: String,
        progress: &GetProgress,
    ) -> Result<GetResponse, HttpError>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let failed = |source| HttpError::Exchange {
            address: address.clone(),
            source,
        };
        let (mut sender, connection) = http1::Builder::new()
            .max_headers(MAX_RESPONSE_HEADERS)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(failed)?;
        let response = async {
            let response = sender.send_request(request).await.map_err(failed)?;
            progress.set(true);
            let (head, body) = response.into_parts();
            let status = head.status.as_u16();
            let location = head.headers.get(LOCATION);
            let location = location.and_then(|value| value.to_str().ok());
            Ok(GetResponse {
                status,
                location: location.map(str::to_owned),
                body: self.read(body, status, &address).await?,
            })
        };
        // The connection is driven here, not in a task of its own; the sender reports its errors.
        let driven = async move {
            let _ = connection.await;
            pending().await
        };
        match select(pin!(response), pin!(driven)).await {
            Either::Left((response, _)) => response,
            Either::Right((never, _)) => never,
        }
    }

    /// Reads the body up to the limit.
    async fn read(
        &self,
        mut body: Incoming,
        status: u16,
        address: &str,
    ) -> Result<Vec<u8>, HttpError> {
        let mut read = Vec::new();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|source| HttpError::Body {
                address: address.to_owned(),
                status,
                source,
            })?;
            if let Ok(data) = frame.into_data() {
                read.extend_from_slice(&data);
            }
            match self.redirects {
                Redirects::SameHost if read.len() >= self.max_body => {
                    read.truncate(self.max_body);
                    break;
                }
                Redirects::All if read.len() > self.max_body => {
                    return Err(HttpError::BodyTooLarge {
                        address: address.to_owned(),
                        limit: self.max_body,
                    });
                }
                _ => {}
            }
        }
        Ok(read)
    }
}

fn is_redirect(status: u16) -> bool {
    matches!(status, 301 | 302 | 303 | 307 | 308)
}

fn build(
    target: &GetTarget,
    headers: &HeaderMap,
    keeps_host: bool,
) -> Result<Request<Empty<Bytes>>, HttpError> {
    let mut request = Request::get(target.path.as_str())
        .body(Empty::new())
        .map_err(HttpError::Request)?;
    let all = request.headers_mut();
    *all = headers.clone();
    insert(all, CONNECTION, HeaderValue::from_static("close"))?;
    if !keeps_host || !all.contains_key(HOST) {
        let host = HeaderValue::try_from(target.host_header())
            .map_err(|_| HttpError::Header("Host".to_owned()))?;
        insert(all, HOST, host)?;
    }
    if let Some(user_info) = &target.user_info
        && !all.contains_key(AUTHORIZATION)
    {
        let colon = if user_info.contains(':') { "" } else { ":" };
        let encoded = STANDARD.encode(format!("{user_info}{colon}"));
        let value = HeaderValue::try_from(format!("Basic {encoded}"))
            .map_err(|_| HttpError::Header("Authorization".to_owned()))?;
        insert(all, AUTHORIZATION, value)?;
    }
    Ok(request)
}

#[cfg(test)]
mod tests;
