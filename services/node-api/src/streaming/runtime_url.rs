//! The URL of the runtime's streaming server.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use url::{Host, Url};

/// Where a prepared stream is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RuntimeUrl {
    pub(crate) address: SocketAddr,
    /// Path and query: it is the permission for the stream, and is kept out of logs.
    pub(crate) path: String,
}

/// A URL that is not used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RuntimeUrlError {
    /// It is not a URL.
    #[error("the runtime returned an invalid URL of its streaming server")]
    Invalid,
    /// Its streams would be readable on a network, or need certificates that nobody configures.
    #[error(
        "the runtime's streaming server is at {0}: only http on a loopback address is supported"
    )]
    NotLoopback(String),
}

/// Reads a URL. Without a scheme it is `http`, as upstream.
pub(crate) fn parse(text: &str) -> Result<RuntimeUrl, RuntimeUrlError> {
    let url = if text.contains("://") {
        Url::parse(text)
    } else {
        Url::parse(&format!("http://{}", text.trim_start_matches('/')))
    };
    let url = url.map_err(|_| RuntimeUrlError::Invalid)?;
    let ip = match url.host() {
        Some(Host::Ipv4(ip)) => Some(IpAddr::V4(ip)),
        Some(Host::Ipv6(ip)) => Some(IpAddr::V6(ip)),
        Some(Host::Domain("localhost")) => Some(IpAddr::V4(Ipv4Addr::LOCALHOST)),
        _ => None,
    };
    let ip = ip.filter(|ip| ip.to_canonical().is_loopback() && url.scheme() == "http");
    let (Some(ip), Some(port)) = (ip, url.port_or_known_default()) else {
        let host = url.host_str().unwrap_or_default();
        let origin = format!("{}://{host}", url.scheme());
        return Err(RuntimeUrlError::NotLoopback(origin));
    };
    let query = url.query().map(|query| format!("?{query}"));
    Ok(RuntimeUrl {
        address: SocketAddr::new(ip, port),
        path: format!("{}{}", url.path(), query.unwrap_or_default()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_of_runtimes() {
        for (text, address, path) in [
            (
                "http://127.0.0.1:4000/exec/abc",
                "127.0.0.1:4000",
                "/exec/abc",
            ),
            ("http://[::1]:1/attach/x?y=z", "[::1]:1", "/attach/x?y=z"),
            ("http://localhost/", "127.0.0.1:80", "/"),
            (
                "//127.0.0.2:5/portforward/x",
                "127.0.0.2:5",
                "/portforward/x",
            ),
        ] {
            let parsed = parse(text).unwrap();
            assert_eq!(
                (parsed.address.to_string().as_str(), parsed.path.as_str()),
                (address, path),
                "{text}"
            );
        }
        for text in [
            "https://127.0.0.1:4000/exec/abc",
            "http://10.0.0.1:4000/exec/abc",
            "http://0.0.0.0:4000/exec/abc",
            "http://runtime.example/exec/abc",
            "unix:///run/streaming.sock",
        ] {
            let error = parse(text).unwrap_err();
            assert!(matches!(error, RuntimeUrlError::NotLoopback(_)), "{text}");
            assert!(!error.to_string().contains("abc"), "{error}");
        }
        for text in ["", "http://", "http://[::1"] {
            assert_eq!(parse(text), Err(RuntimeUrlError::Invalid), "{text}");
        }
    }
}
