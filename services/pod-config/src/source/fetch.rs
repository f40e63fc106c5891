//! One GET, with redirects, TLS and bounds.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::header::{AUTHORIZATION, HOST, HeaderName, HeaderValue, LOCATION};
use http::{HeaderMap, Request, Response, Uri};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::{Bytes, Incoming};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use super::tls;

/// Upstream's bound on a manifest.
const MOST_BYTES: usize = 10 * 1024 * 1024;
/// As Go's client.
const MOST_REDIRECTS: usize = 10;

/// Why there is no answer. Nothing of the URL is told but its host: the rest may be secret.
#[derive(Debug, thiserror::Error)]
pub(super) enum FetchError {
    #[error("is not a URL")]
    Url(#[source] http::uri::InvalidUri),
    #[error("is not an http or https URL with a host")]
    Scheme,
    #[error("connecting to {place}")]
    Connect {
        place: String,
        #[source]
        source: std::io::Error,
    },
    #[error(transparent)]
    Tls(tls::TlsError),
    #[error("TLS with {place}")]
    Handshake {
        place: String,
        #[source]
        source: std::io::Error,
    },
    #[error("{0} is not a name that TLS can check")]
    ServerName(String),
    #[error("{0:?} is not a header name")]
    HeaderName(String),
    #[error("a header value has characters that HTTP does not allow")]
    HeaderValue,
    #[error("making the request")]
    Request(#[source] http::Error),
    #[error("talking HTTP")]
    Http(#[source] hyper::Error),
    #[error("reading its answer, of at most {MOST_BYTES} bytes")]
    Body(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("redirects to something that is not a URL")]
    Redirect,
    #[error("redirects more than {MOST_REDIRECTS} times")]
    Redirects,
}

/// The status and the body.
pub(super) async fn get(
    url: &str,
    headers: &[(String, String)],
) -> Result<(u16, Vec<u8>), FetchError> {
    let mut uri: Uri = url.parse().map_err(FetchError::Url)?;
    let (first_host, first_scheme) = (uri.host().map(str::to_owned), uri.scheme().cloned());
    for _ in 0..=MOST_REDIRECTS {
        // Headers may hold secrets: they are for the configured host alone, in the configured way.
        let ours = uri.host() == first_host.as_deref() && uri.scheme() == first_scheme.as_ref();
        let response = request(&uri, if ours { headers } else { &[] }).await?;
        let status = response.status();
        if matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308) {
            let location = response
                .headers()
                .get(LOCATION)
                .and_then(|l| l.to_str().ok());
            uri = target(&uri, location.ok_or(FetchError::Redirect)?)?;
            continue;
        }
        let body = Limited::new(response.into_body(), MOST_BYTES)
            .collect()
            .await;
        let body = body.map_err(FetchError::Body)?;
        return Ok((status.as_u16(), body.to_bytes().to_vec()));
    }
    Err(FetchError::Redirects)
}

async fn request(
    uri: &Uri,
    headers: &[(String, String)],
) -> Result<Response<Incoming>, FetchError> {
    let (tls, default_port) = match uri.scheme_str() {
        Some("http") => (false, 80),
        Some("https") => (true, 443),
        _ => return Err(FetchError::Scheme),
    };
    let host = uri.host().ok_or(FetchError::Scheme)?;
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let port = uri.port_u16().unwrap_or(default_port);
    let stream = TcpStream::connect((bare, port))
        .await
        .map_err(|source| FetchError::Connect {
            place: format!("{host}:{port}"),
            source,
        })?;
    let request = build(uri, host, headers)?;
    if !tls {
        return send(stream, request).await;
    }
    let name = ServerName::try_from(bare.to_owned())
        .map_err(|_| FetchError::ServerName(host.to_owned()))?;
    let connector = tokio_rustls::TlsConnector::from(tls::client().map_err(FetchError::Tls)?);
    let stream = connector
        .connect(name, stream)
        .await
        .map_err(|source| FetchError::Handshake {
            place: format!("{host}:{port}"),
            source,
        })?;
    send(stream, request).await
}

fn build(
    uri: &Uri,
    host: &str,
    headers: &[(String, String)],
) -> Result<Request<Empty<Bytes>>, FetchError> {
    let mut all = HeaderMap::new();
    let place = uri
        .port()
        .map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"));
    let text = |text: &str| HeaderValue::from_str(text).map_err(|_| FetchError::HeaderValue);
    all.insert(HOST, text(&place)?);
    if let Some((user, _)) = uri.authority().and_then(|a| a.as_str().rsplit_once('@')) {
        let user = if user.contains(':') {
            user.to_owned()
        } else {
            format!("{user}:")
        };
        all.insert(
            AUTHORIZATION,
            text(&format!("Basic {}", STANDARD.encode(user)))?,
        );
    }
    for (name, value) in headers {
        let name = HeaderName::from_bytes(name.as_bytes())
            .map_err(|_| FetchError::HeaderName(name.clone()))?;
        if name == HOST {
            all.insert(name, text(value)?);
        } else {
            all.append(name, text(value)?);
        }
    }
    let path = uri.path_and_query().map_or("/", |p| p.as_str());
    let mut request = Request::get(path)
        .body(Empty::new())
        .map_err(FetchError::Request)?;
    *request.headers_mut() = all;
    Ok(request)
}

async fn send<S>(
    stream: S,
    request: Request<Empty<Bytes>>,
) -> Result<Response<Incoming>, FetchError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .map_err(FetchError::Http)?;
    // Ends by itself with the answer; its error is the answer's.
    tokio::spawn(async move {
        let _ = connection.await;
    });
    sender.send_request(request).await.map_err(FetchError::Http)
}

fn target(from: &Uri, location: &str) -> Result<Uri, FetchError> {
    let (scheme, authority) = (
        from.scheme_str().unwrap_or("http"),
        from.authority().map_or("", |a| a.as_str()),
    );
    let absolute = if location.contains("://") {
        location.to_owned()
    } else if location.starts_with("//") {
        format!("{scheme}:{location}")
    } else if location.starts_with('/') {
        format!("{scheme}://{authority}{location}")
    } else {
        let folder = from
            .path()
            .rsplit_once('/')
            .map_or("", |(folder, _)| folder);
        format!("{scheme}://{authority}{folder}/{location}")
    };
    absolute.parse().map_err(|_| FetchError::Redirect)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirects_are_resolved() {
        let from: Uri = "https://h:1/a/b?c".parse().expect("a URL");
        for (location, to) in [
            ("http://x/y", "http://x/y"),
            ("//x/y", "https://x/y"),
            ("/y?z", "https://h:1/y?z"),
            ("y", "https://h:1/a/y"),
        ] {
            assert_eq!(target(&from, location).expect("a target").to_string(), to);
        }
    }
}
