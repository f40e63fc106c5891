//! Where a proxy is, who asks it, and what language it speaks.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::Uri;

/// What is wrong with the address of a proxy. The address itself is not in it, as it may hold a
/// password.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProxyError {
    /// Another language than the three.
    #[error("unsupported scheme {0:?}, must be http, https, or socks5")]
    Scheme(String),
    /// No address that a connection could be made to.
    #[error("not a URL such as http://proxy:3128: {0}")]
    Url(&'static str),
}

/// What a proxy speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// HTTP, for CONNECT.
    Http,
    /// The same in TLS.
    Https,
    /// SOCKS, version 5. Names are resolved by the proxy.
    Socks,
}

/// Who asks a proxy.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct User {
    pub(super) name: String,
    pub(super) password: String,
}

/// A proxy, by its address. What is shown of it is without the user.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Proxy {
    pub(super) kind: Kind,
    /// Without user and path; the scheme is that of the way there.
    pub(super) at: Uri,
    pub(super) user: Option<User>,
}

impl Proxy {
    /// As a kubeconfig's `proxy-url` says it: with one of upstream's three schemes.
    pub(super) fn of_kubeconfig(text: &str) -> Result<Proxy, ProxyError> {
        match parts(text) {
            Some(("socks5h", _)) => Err(ProxyError::Scheme("socks5h".to_owned())),
            Some((scheme, rest)) => read(scheme, rest),
            None => Err(ProxyError::Scheme(String::new())),
        }
    }

    /// As a variable says it: `http` where no scheme is named.
    pub(super) fn of_environment(text: &str) -> Result<Proxy, ProxyError> {
        match parts(text) {
            Some((scheme, rest)) => read(scheme, rest),
            None => read("http", text),
        }
    }

    /// Host and port.
    pub(super) fn place(&self) -> &str {
        self.at.authority().map_or("", |at| at.as_str())
    }
}

impl User {
    /// What a proxy of HTTP is told (`Proxy-Authorization`).
    pub(super) fn basic(&self) -> String {
        let pair = format!("{}:{}", self.name, self.password);
        format!("Basic {}", STANDARD.encode(pair))
    }
}

impl fmt::Display for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match self.kind {
            Kind::Http => "http",
            Kind::Https => "https",
            Kind::Socks => "socks5",
        };
        write!(f, "{scheme}://{}", self.place())
    }
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Scheme, and what follows `://`.
fn parts(text: &str) -> Option<(&str, &str)> {
    let (scheme, rest) = text.trim().split_once("://")?;
    let word = |byte: u8| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte);
    let good = scheme.starts_with(|c: char| c.is_ascii_alphabetic()) && scheme.bytes().all(word);
    good.then_some((scheme, rest))
}

fn read(scheme: &str, rest: &str) -> Result<Proxy, ProxyError> {
    let (kind, way, standard) = match scheme.to_ascii_lowercase().as_str() {
        "http" => (Kind::Http, "http", 80),
        "https" => (Kind::Https, "https", 443),
        "socks5" | "socks5h" => (Kind::Socks, "http", 1080),
        _ => return Err(ProxyError::Scheme(scheme.to_owned())),
    };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let (user, place) = match authority.rsplit_once('@') {
        Some((user, place)) => (Some(user), place),
        None => (None, authority),
    };
    let user = user.map(asks).transpose()?;
    let (host, port) = match place.rsplit_once(':') {
        // The colons of an address in brackets are its own.
        Some((_, port)) if port.ends_with(']') => (place, ""),
        Some((host, port)) => (host, port),
        None => (place, ""),
    };
    let port = match port {
        "" => standard,
        port => port.parse().map_err(|_| ProxyError::Url("its port"))?,
    };
    if host.is_empty() {
        return Err(ProxyError::Url("no host"));
    }
    let at = format!("{way}://{host}:{port}/").parse::<Uri>();
    let at = at.map_err(|_| ProxyError::Url("its host"))?;
    if at.host() != Some(host) || at.port_u16() != Some(port) {
        return Err(ProxyError::Url("its host"));
    }
    Ok(Proxy { kind, at, user })
}

fn asks(text: &str) -> Result<User, ProxyError> {
    let (name, password) = text.split_once(':').unwrap_or((text, ""));
    let plain = |text| decoded(text).ok_or(ProxyError::Url("its user"));
    Ok(User {
        name: plain(name)?,
        password: plain(password)?,
    })
}

/// Percent signs resolved.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = text.bytes();
    let mut plain = Vec::new();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            plain.push(byte);
            continue;
        }
        let mut digit = || char::from(bytes.next()?).to_digit(16);
        let value = digit()? * 16 + digit()?;
        plain.push(u8::try_from(value).ok()?);
    }
    // A line's end would end the header.
    let text = String::from_utf8(plain).ok()?;
    (!text.contains(char::is_control)).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_may_leave_out_the_scheme() {
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
        ] {
            let proxy = Proxy::of_environment(text).expect(text);
            assert_eq!(proxy.to_string(), expected, "{text}");
        }
    }

    #[test]
    fn a_kubeconfig_names_the_scheme() {
        assert!(Proxy::of_kubeconfig("https://proxy:1").is_ok());
        assert!(Proxy::of_kubeconfig("socks5://proxy:1").is_ok());
        for (text, scheme) in [
            ("proxy:3128", ""),
            ("10.0.0.1:3128", ""),
            ("ftp://proxy", "ftp"),
            ("socks5h://proxy", "socks5h"),
            ("socks4://proxy", "socks4"),
        ] {
            let wrong = ProxyError::Scheme(scheme.to_owned());
            assert_eq!(Proxy::of_kubeconfig(text), Err(wrong), "{text}");
        }
    }

    #[test]
    fn nothing_of_a_user_is_shown() {
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
            let told = format!("{:?}", Proxy::of_kubeconfig(text));
            assert!(!told.contains("hunter2"), "{told}");
        }
        let proxy = Proxy::of_kubeconfig("http://me%40here:p:%C3%A4@proxy:1").unwrap();
        let user = proxy.user.unwrap();
        assert_eq!((&*user.name, &*user.password), ("me@here", "p:ä"));
        let proxy = Proxy::of_kubeconfig("http://Aladdin:opensesame@proxy").unwrap();
        let said = proxy.user.unwrap().basic();
        assert_eq!(said, "Basic QWxhZGRpbjpvcGVuc2VzYW1l");
    }

    #[test]
    fn what_is_no_address_is_told() {
        for text in [
            "http://",
            "http:///path",
            "http://h:99999",
            "http://h:-1",
            "http://a b",
        ] {
            let told = Proxy::of_environment(text);
            assert!(matches!(told, Err(ProxyError::Url(_))), "{text}: {told:?}");
        }
    }
}
