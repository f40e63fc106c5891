//! Targets of requests, and where redirects lead: references resolved as RFC 3986 and Go's `net/url`
//! do. Pure.

use crate::connect::host_port;

/// Go's HTTP client gives up on redirects after this many requests.
pub(crate) const MAX_REQUESTS: usize = 10;

/// The `Location` of a redirect, resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ResolvedTarget {
    /// On the host of the request.
    SameHost(GetTarget),
    /// On another host; `None` for one that cannot be requested from.
    OtherHost(Option<GetTarget>),
    /// On the same host, and cannot be requested.
    Invalid,
}

/// An http or https URL in parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GetTarget {
    pub(crate) https: bool,
    /// An address or a name, without brackets.
    pub(crate) host: String,
    pub(crate) port: u16,
    /// Whether the URL names the port; the `Host` header does so then.
    names_port: bool,
    /// `user:password` as written in the URL, sent as basic authentication.
    pub(crate) user_info: Option<String>,
    /// Path and query.
    pub(crate) path: String,
}

/// A URL that is not http or https, has no host or an invalid port. Does not show the URL, which may
/// hold secrets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("is not an http or https URL with a host")]
pub struct InvalidUrl;

impl GetTarget {
    /// From parts; `path` may have a query. Bytes that a path may not have are escaped.
    pub fn new(https: bool, host: &str, port: u16, path: &str) -> Self {
        GetTarget {
            https,
            host: without_brackets(host).to_owned(),
            port,
            names_port: true,
            user_info: None,
            path: clean(path),
        }
    }

    /// From an absolute URL.
    pub fn parse(url: &str) -> Result<Self, InvalidUrl> {
        let (scheme, rest) = split_scheme(url).ok_or(InvalidUrl)?;
        let rest = rest.strip_prefix("//").ok_or(InvalidUrl)?;
        let https = is_https(&scheme.to_ascii_lowercase()).ok_or(InvalidUrl)?;
        let (authority, path) = Authority::split(rest);
        let authority = authority.filter(|authority| !authority.host.is_empty());
        let target = authority.and_then(|authority| authority.target(https, path));
        target.ok_or(InvalidUrl)
    }

    /// The address or name, without brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Whether the request goes over TLS.
    pub fn is_https(&self) -> bool {
        self.https
    }

    /// The same target without TLS, on the same port.
    pub fn without_tls(mut self) -> Self {
        self.https = false;
        self
    }

    /// Host and port.
    pub fn authority(&self) -> String {
        host_port(&self.host, self.port)
    }

    /// The value of the `Host` header.
    pub(crate) fn host_header(&self) -> String {
        match (self.names_port, self.host.contains(':')) {
            (true, _) => self.authority(),
            (false, true) => format!("[{}]", self.host),
            (false, false) => self.host.clone(),
        }
    }

    /// The URL without user and password.
    pub fn url(&self) -> String {
        let scheme = if self.https { "https" } else { "http" };
        format!("{scheme}://{}{}", self.authority(), self.path)
    }

    /// Resolves the `Location` of a redirect.
    pub(crate) fn resolve(&self, location: &str) -> ResolvedTarget {
        let (scheme, rest) = match split_scheme(location) {
            Some((scheme, rest)) => (Some(scheme.to_ascii_lowercase()), rest),
            None => (None, location),
        };
        let Some(rest) = rest.strip_prefix("//") else {
            // `mailto:x` names no host.
            return match scheme {
                Some(_) => ResolvedTarget::OtherHost(None),
                None => ResolvedTarget::SameHost(GetTarget {
                    path: clean(&self.join(location)),
                    ..self.clone()
                }),
            };
        };
        let https = match scheme.as_deref() {
            None => Some(self.https),
            Some(scheme) => is_https(scheme),
        };
        let (authority, path) = Authority::split(rest);
        let Some(authority) = authority else {
            return ResolvedTarget::Invalid;
        };
        let is_same_host = authority.host == self.host;
        let target = https.and_then(|https| authority.target(https, path));
        match (is_same_host, target) {
            (true, Some(target)) => ResolvedTarget::SameHost(target),
            (true, None) => ResolvedTarget::Invalid,
            (false, target) => ResolvedTarget::OtherHost(target),
        }
    }

    /// The path of a reference without a host.
    fn join(&self, reference: &str) -> String {
        let own = self.path.split('?').next().unwrap_or("/");
        match reference.chars().next() {
            None | Some('#') => self.path.clone(),
            Some('/') => reference.to_owned(),
            Some('?') => format!("{own}{reference}"),
            Some(_) => {
                let directory = own.rsplit_once('/').map_or("", |(directory, _)| directory);
                let (path, query) = match reference.find(['?', '#']) {
                    Some(at) => reference.split_at(at),
                    None => (reference, ""),
                };
                format!(
                    "{}{query}",
                    remove_dot_segments(&format!("{directory}/{path}"))
                )
            }
        }
    }
}

/// The part of a URL between `//` and the path.
struct Authority<'a> {
    user_info: Option<&'a str>,
    /// Without brackets.
    host: &'a str,
    /// Digits, or nothing.
    port: &'a str,
}

impl<'a> Authority<'a> {
    /// Splits what follows `//` into authority and path; `None` for a port that is no number.
    fn split(rest: &'a str) -> (Option<Self>, &'a str) {
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        let (user_info, host) = match authority.rsplit_once('@') {
            Some((user_info, host)) => (Some(user_info), host),
            None => (None, authority),
        };
        let (host, port) = match host.rsplit_once(':') {
            Some((host, port)) if !port.contains(']') => (host, port),
            _ => (host, ""),
        };
        let is_number = port.bytes().all(|byte| byte.is_ascii_digit());
        let authority = is_number.then_some(Authority {
            user_info,
            host: without_brackets(host),
            port,
        });
        (authority, path)
    }

    /// `None` for a port out of range.
    fn target(&self, https: bool, path: &str) -> Option<GetTarget> {
        let port = match self.port {
            "" if https => 443,
            "" => 80,
            port => port.parse().ok().filter(|port| *port != 0)?,
        };
        Some(GetTarget {
            names_port: !self.port.is_empty(),
            user_info: self.user_info.map(str::to_owned),
            ..GetTarget::new(https, self.host, port, path)
        })
    }
}

fn is_https(scheme: &str) -> Option<bool> {
    match scheme {
        "http" => Some(false),
        "https" => Some(true),
        _ => None,
    }
}

/// Whether a URL has a scheme.
pub(crate) fn is_absolute(url: &str) -> bool {
    split_scheme(url).is_some()
}

/// The scheme of a URL and what follows its colon.
fn split_scheme(url: &str) -> Option<(&str, &str)> {
    let (scheme, rest) = url.split_once(':')?;
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte);
    let is_scheme = scheme.starts_with(|c: char| c.is_ascii_alphabetic());
    (is_scheme && scheme.bytes().all(is_part)).then_some((scheme, rest))
}

fn without_brackets(host: &str) -> &str {
    host.strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'))
        .unwrap_or(host)
}

/// RFC 3986, section 5.2.4.
fn remove_dot_segments(path: &str) -> String {
    let mut segments: Vec<&str> = Vec::new();
    for segment in path.split('/') {
        match segment {
            "." => {}
            ".." if segments.len() > 1 => drop(segments.pop()),
            ".." => {}
            segment => segments.push(segment),
        }
    }
    if path.ends_with("/.") || path.ends_with("/..") {
        segments.push("");
    }
    segments.join("/")
}

/// A path as it may be sent: starting with a slash, without a fragment, other bytes escaped.
fn clean(path: &str) -> String {
    let path = path.split('#').next().unwrap_or_default();
    let mut out = String::with_capacity(path.len() + 1);
    if !path.starts_with('/') {
        out.push('/');
    }
    for byte in path.bytes() {
        match byte {
            b'"' | b'<' | b'>' | b'\\' | b'^' | b'`' | b'{' | b'|' | b'}' | 0..=b' ' | 0x7f.. => {
                out.push_str(&format!("%{byte:02X}"));
            }
            byte => out.push(char::from(byte)),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn resolves_redirects() {
        for (host, location, expected) in [
            ("10.0.0.1", "/x", "http://10.0.0.1:8080/x"),
            ("10.0.0.1", "x?y=1", "http://10.0.0.1:8080/a/x?y=1"),
            ("10.0.0.1", "../x", "http://10.0.0.1:8080/x"),
            ("10.0.0.1", "./", "http://10.0.0.1:8080/a/"),
            ("10.0.0.1", "?z", "http://10.0.0.1:8080/a/b?z"),
            ("10.0.0.1", "", "http://10.0.0.1:8080/a/b?q"),
            ("10.0.0.1", "https://10.0.0.1/x#y", "https://10.0.0.1:443/x"),
            ("10.0.0.1", "HTTP://10.0.0.1:/", "http://10.0.0.1:80/"),
            ("10.0.0.1", "//10.0.0.1:81/x", "http://10.0.0.1:81/x"),
            ("fd00::1", "//[fd00::1]:81/x", "http://[fd00::1]:81/x"),
            ("fd00::1", "https://[fd00::1]/", "https://[fd00::1]:443/"),
            ("10.0.0.1", "http://me@10.0.0.1/", "http://10.0.0.1:80/"),
            (
                "10.0.0.1",
                "/login?next=http://other/",
                "http://10.0.0.1:8080/login?next=http://other/",
            ),
            ("10.0.0.1", "http://example.com", "other host"),
            ("10.0.0.1", "//example.com/x", "other host"),
            ("10.0.0.1", "ftp://example.com/", "other host"),
            ("10.0.0.1", "http://example.com:99999/", "other host"),
            ("10.0.0.1", "http:x", "other host"),
            ("10.0.0.1", "mailto:x", "other host"),
            ("10.0.0.1", "http:\\\\h\\x", "other host"),
            ("10.0.0.1", "http://2130706433/", "other host"),
            ("h", "http://h:0/", "invalid"),
            ("h", "http://h:99999/", "invalid"),
            ("h", "http://h:http/", "invalid"),
            ("h", "ftp://h/", "invalid"),
        ] {
            let resolved = match GetTarget::new(false, host, 8080, "/a/b?q").resolve(location) {
                ResolvedTarget::SameHost(target) => target.url(),
                ResolvedTarget::OtherHost(_) => "other host".to_owned(),
                ResolvedTarget::Invalid => "invalid".to_owned(),
            };
            assert_eq!(resolved, expected, "{location}");
        }
    }

    #[test]
    fn escapes_paths() {
        for (path, sent) in [
            ("", "/"),
            ("x", "/x"),
            ("/a b", "/a%20b"),
            ("/%20", "/%20"),
            ("/é#f", "/%C3%A9"),
        ] {
            assert_eq!(GetTarget::new(false, "h", 1, path).path, sent);
        }
    }

    #[test]
    fn parses_absolute_urls() {
        for (url, host, sent) in [
            ("http://h", "h", "http://h:80/"),
            ("HTTPS://h:1/p?q#f", "h:1", "https://h:1/p?q"),
            (
                "https://[fd00::1]/x",
                "[fd00::1]",
                "https://[fd00::1]:443/x",
            ),
            (
                "http://[fd00::1]:8/x",
                "[fd00::1]:8",
                "http://[fd00::1]:8/x",
            ),
        ] {
            let target = GetTarget::parse(url).unwrap();
            assert_eq!(target.host_header(), host, "{url}");
            assert_eq!(target.url(), sent, "{url}");
            assert_eq!(target.user_info, None);
        }
        let target = GetTarget::parse("https://u:p@h/x").unwrap();
        assert_eq!(target.user_info.as_deref(), Some("u:p"));
        assert_eq!(target.url(), "https://h:443/x");
        for url in [
            "",
            "h",
            "/x",
            "//h/x",
            "ftp://h/",
            "http:h",
            "http://",
            "http:///x",
            "http://h:x/",
        ] {
            assert_eq!(GetTarget::parse(url), Err(InvalidUrl), "{url}");
        }
    }

    proptest! {
        #[test]
        fn resolves_any_location(location in "\\PC*", path in "\\PC*") {
            let from = GetTarget::new(true, "h", 1, &path);
            let resolved = from.resolve(&location);
            if let ResolvedTarget::SameHost(to) | ResolvedTarget::OtherHost(Some(to)) = resolved {
                prop_assert!(to.path.parse::<http::uri::PathAndQuery>().is_ok(), "{:?}", to);
            }
        }
    }
}
