//! Why there was no answer.

use crate::get::MAX_REQUESTS;

/// Why nobody answered one request.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// Nobody took the connection.
    #[error("{0}")]
    Connect(String),
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
    /// An answer that broke off behind its head.
    #[error("reading what {place} answers")]
    Body {
        /// Host and port.
        place: String,
        /// What the head said.
        status: u16,
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
    #[error("Get {url:?}: stopped after {MAX_REQUESTS} redirects")]
    TooManyRedirects {
        /// What was asked for last.
        url: String,
    },
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
