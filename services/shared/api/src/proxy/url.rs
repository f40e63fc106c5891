//! The URL of a proxy.
//!
//! Parsed by the `url` crate. It follows the WHATWG standard, which accepts more than Go's `net/url`
//! (an IPv4 address such as `127.1`, a stray percent sign in the user); what Go rejects for other
//! reasons, it rejects as well. IPv6 zones (`[fe80::1%25eth0]`), which Go accepts, are rejected.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::Uri;
use percent_encoding::percent_decode_str;
use url::Url;

/// An invalid proxy URL. The URL itself is not in the message, as it may contain a password.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProxyError {
    /// The scheme is not supported.
    #[error("unsupported scheme {0:?}, must be http, https, or socks5")]
    Scheme(String),
    /// The text is not a URL.
    #[error("not a URL such as http://proxy:3128")]
    Url(#[source] url::ParseError),
    /// The user or password is not valid UTF-8, or has control characters.
    #[error("invalid user or password")]
    Credentials,
}

/// The protocol of a proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProxyScheme {
    /// HTTP, for CONNECT.
    Http,
    /// The same over TLS.
    Https,
    /// SOCKS version 5; the proxy resolves names.
    Socks,
}

/// The user of a proxy.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct ProxyCredentials {
    pub(super) username: String,
    pub(super) password: String,
}

/// The URL of a proxy. Its text is without credentials.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct ProxyUrl {
    pub(super) scheme: ProxyScheme,
    /// Host and port of the proxy, with the scheme of the connection to it.
    pub(super) address: Uri,
    pub(super) credentials: Option<ProxyCredentials>,
}

impl ProxyUrl {
    /// The `proxy-url` of a kubeconfig: with one of upstream's three schemes.
    pub(super) fn from_kubeconfig(text: &str) -> Result<ProxyUrl, ProxyError> {
        let url = Url::parse(text).map_err(ProxyError::Url)?;
        if url.scheme() == "socks5h" {
            return Err(ProxyError::Scheme("socks5h".to_owned()));
        }
        from_url(&url)
    }

    /// The value of an environment variable: `http` where it has no scheme.
    pub(super) fn from_environment(text: &str) -> Result<ProxyUrl, ProxyError> {
        let url = if text.contains("://") {
            Url::parse(text)
        } else {
            Url::parse(&format!("http://{text}"))
        };
        from_url(&url.map_err(ProxyError::Url)?)
    }

    /// Host and port.
    pub(super) fn authority(&self) -> &str {
        self.address.authority().map_or("", |it| it.as_str())
    }
}

impl ProxyCredentials {
    /// The value of `Proxy-Authorization` for an HTTP proxy.
    pub(super) fn basic_auth(&self) -> String {
        let pair = format!("{}:{}", self.username, self.password);
        format!("Basic {}", STANDARD.encode(pair))
    }
}

impl fmt::Display for ProxyUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match self.scheme {
            ProxyScheme::Http => "http",
            ProxyScheme::Https => "https",
            ProxyScheme::Socks => "socks5",
        };
        write!(f, "{scheme}://{}", self.authority())
    }
}

impl fmt::Debug for ProxyUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

fn from_url(url: &Url) -> Result<ProxyUrl, ProxyError> {
    let (scheme, transport, default_port) = match url.scheme() {
        "http" => (ProxyScheme::Http, "http", 80),
        "https" => (ProxyScheme::Https, "https", 443),
        "socks5" | "socks5h" => (ProxyScheme::Socks, "http", 1080),
        other => return Err(ProxyError::Scheme(other.to_owned())),
    };
    let no_host = || ProxyError::Url(url::ParseError::EmptyHost);
    let host = url.host_str().filter(|host| !host.is_empty());
    let host = host.ok_or_else(no_host)?;
    let port = url.port().unwrap_or(default_port);
    let address = format!("{transport}://{host}:{port}/").parse();
    Ok(ProxyUrl {
        scheme,
        address: address.map_err(|_| no_host())?,
        credentials: credentials(url)?,
    })
}

fn credentials(url: &Url) -> Result<Option<ProxyCredentials>, ProxyError> {
    let decode = |text: &str| {
        let text = percent_decode_str(text).decode_utf8();
        let text = text.map_err(|_| ProxyError::Credentials)?;
        // A line break would end the header.
        if text.contains(char::is_control) {
            return Err(ProxyError::Credentials);
        }
        Ok(text.into_owned())
    };
    if url.username().is_empty() && url.password().is_none() {
        return Ok(None);
    }
    Ok(Some(ProxyCredentials {
        username: decode(url.username())?,
        password: decode(url.password().unwrap_or_default())?,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn environment_variables_may_omit_the_scheme() {
        for (text, expected) in [
            ("127.0.0.1:8080", "http://127.0.0.1:8080"),
            (
                "cache.corp.example.com:1234",
                "http://cache.corp.example.com:1234",
            ),
            ("cache.corp.example.com", "http://cache.corp.example.com:80"),
            ("localhost", "http://localhost:80"),
            (
                "https://cache.corp.example.com",
                "https://cache.corp.example.com:443",
            ),
            ("HTTP://127.0.0.1:8080/", "http://127.0.0.1:8080"),
            ("https://127.0.0.1:8080/a?b#c", "https://127.0.0.1:8080"),
            ("socks5://127.0.0.1", "socks5://127.0.0.1:1080"),
            ("socks5h://127.0.0.1:9", "socks5://127.0.0.1:9"),
            ("[fe80::1]:3128", "http://[fe80::1]:3128"),
            ("http://[fe80::1]", "http://[fe80::1]:80"),
            ("user:pass@host", "http://host:80"),
            (" http://host ", "http://host:80"),
        ] {
            let proxy = ProxyUrl::from_environment(text).expect(text);
            assert_eq!(proxy.to_string(), expected, "{text}");
        }
    }

    #[test]
    fn kubeconfigs_name_a_supported_scheme() {
        assert!(ProxyUrl::from_kubeconfig("https://proxy:1").is_ok());
        assert!(ProxyUrl::from_kubeconfig("socks5://proxy:1").is_ok());
        for (text, scheme) in [
            ("proxy:3128", "proxy"),
            ("ftp://proxy", "ftp"),
            ("socks5h://proxy", "socks5h"),
            ("socks4://proxy", "socks4"),
        ] {
            let expected = ProxyError::Scheme(scheme.to_owned());
            assert_eq!(ProxyUrl::from_kubeconfig(text), Err(expected), "{text}");
        }
        let relative = ProxyUrl::from_kubeconfig("10.0.0.1:3128");
        assert!(matches!(relative, Err(ProxyError::Url(_))));
    }

    #[test]
    fn credentials_are_not_shown() {
        for text in [
            "http://hunter2:hunter2@proxy:3128",
            "socks5://u:hunter2@proxy",
            "http://u:hunter2@proxy:port",
            "http://u:hunter2@:1",
            "http://u:hunter2@a b",
            "http://u:hunter2@[::1",
            "http://u%2:hunter2@host",
            "http://u%0a:hunter2@host",
            "http://u:hunter2",
        ] {
            let shown = format!("{:?}", ProxyUrl::from_kubeconfig(text));
            assert!(!shown.contains("hunter2"), "{shown}");
        }
        let credentials = |text: &str| {
            let proxy = ProxyUrl::from_kubeconfig(text).unwrap();
            proxy.credentials.unwrap()
        };
        let user = credentials("http://me%40here:p:%C3%A4@proxy:1");
        assert_eq!((&*user.username, &*user.password), ("me@here", "p:ä"));
        let header = credentials("http://Aladdin:opensesame@proxy").basic_auth();
        assert_eq!(header, "Basic QWxhZGRpbjpvcGVuc2VzYW1l");
    }

    #[test]
    fn invalid_urls_are_rejected() {
        for text in ["http://", "http://h:99999", "http://h:-1", "http://a b"] {
            let result = ProxyUrl::from_environment(text);
            assert!(
                matches!(result, Err(ProxyError::Url(_))),
                "{text}: {result:?}"
            );
        }
        for user in ["u%0a", "u%0d%0aHost: x", "%ff"] {
            let result = ProxyUrl::from_environment(&format!("http://{user}:p@h"));
            assert_eq!(result, Err(ProxyError::Credentials), "{user}");
        }
    }
}
