//! Errors of a request and of a chain of redirects.

use crate::connect::DialError;
use crate::target::MAX_REQUESTS;
use crate::tls::TlsError;

/// The most headers of a request. Servers accept some hundred at most.
pub(crate) const MAX_HEADERS: usize = 10_000;

/// The most bytes of a request's headers: what Go's server accepts, which is more than others do.
pub(crate) const MAX_HEADER_BYTES: usize = 1 << 20;

/// Why one request got no response.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// The connection could not be opened; the message is upstream's.
    #[error(transparent)]
    Connect(DialError),
    /// TLS could not be set up.
    #[error(transparent)]
    Tls(TlsError),
    /// The host is neither an address nor a DNS name.
    #[error("{0} is not a server name that TLS allows")]
    ServerName(String),
    /// The server speaks plain HTTP.
    #[error("TLS with {address}: server gave HTTP response to HTTPS client")]
    PlainHttp {
        /// Host and port.
        address: String,
    },
    /// The TLS handshake failed.
    #[error("TLS with {address}")]
    Handshake {
        /// Host and port.
        address: String,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// The name or value of a header has bytes that HTTP does not allow.
    #[error("header {0} cannot be sent")]
    Header(String),
    /// More headers than a server could accept.
    #[error(
        "request has more than {MAX_HEADERS} headers, or more than {MAX_HEADER_BYTES} bytes of them"
    )]
    TooManyHeaders,
    /// The path has bytes that HTTP does not allow.
    #[error("building the request")]
    Request(#[source] http::Error),
    /// The server did not respond with HTTP.
    #[error("requesting from {address}")]
    Exchange {
        /// Host and port.
        address: String,
        /// The cause.
        #[source]
        source: hyper::Error,
    },
    /// The response ended before its body was complete.
    #[error("reading the response body of {address}")]
    Body {
        /// Host and port.
        address: String,
        /// Status code in the response's head.
        status: u16,
        /// The cause.
        #[source]
        source: hyper::Error,
    },
    /// The response body is too large.
    #[error("the response body of {address} is larger than {limit} bytes")]
    BodyTooLarge {
        /// Host and port.
        address: String,
        /// The most bytes that are accepted.
        limit: usize,
    },
}

/// Why there is no final response.
#[derive(Debug, thiserror::Error)]
pub enum GetError {
    /// The caller's headers cannot be sent.
    #[error(transparent)]
    Headers(HttpError),
    /// A request failed.
    #[error("Get {url:?}")]
    Get {
        /// The URL of the request.
        url: String,
        /// The cause.
        #[source]
        source: HttpError,
    },
    /// A redirect to something other than an http or https URL.
    #[error("{url} redirects to {location:?}")]
    Redirect {
        /// The URL of the request.
        url: String,
        /// The `Location` header.
        location: String,
    },
    /// Too many redirects.
    #[error("Get {url:?}: stopped after {MAX_REQUESTS} redirects")]
    TooManyRedirects {
        /// The URL of the last request.
        url: String,
    },
}

impl GetError {
    /// Whether the server responded to TLS with plain HTTP.
    pub fn is_plain_http(&self) -> bool {
        matches!(
            self,
            GetError::Get {
                source: HttpError::PlainHttp { .. },
                ..
            }
        )
    }

    /// Whether the connection failed for lack of file descriptors, which says nothing about the server.
    pub fn is_out_of_descriptors(&self) -> bool {
        matches!(
            self,
            GetError::Get {
                source: HttpError::Connect(error),
                ..
            } if error.is_out_of_descriptors()
        )
    }

    /// The failure of the request without its URL, which may hold secrets.
    pub fn http_error(&self) -> Option<&HttpError> {
        match self {
            GetError::Headers(error) | GetError::Get { source: error, .. } => Some(error),
            GetError::Redirect { .. } | GetError::TooManyRedirects { .. } => None,
        }
    }
}
