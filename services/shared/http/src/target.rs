//! Addresses that are asked, and where a redirect leads. Pure.

use crate::net::authority;

/// Where a redirect leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Led {
    /// To the same host.
    Here(Target),
    /// To another host, or to what is no host: not followed.
    Away,
    /// To nothing that can be asked.
    Nowhere,
}

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) https: bool,
    /// Without brackets.
    pub(crate) host: String,
    pub(crate) port: u16,
    /// Path and query.
    pub(crate) path: String,
}

impl Target {
    pub(crate) fn new(https: bool, host: &str, port: u16, path: &str) -> Self {
        Target {
            https,
            host: bare(host).to_owned(),
            port,
            path: clean(path),
        }
    }

    pub(crate) fn authority(&self) -> String {
        authority(&self.host, self.port)
    }

    /// As people write it.
    pub(crate) fn url(&self) -> String {
        let scheme = if self.https { "https" } else { "http" };
        format!("{scheme}://{}{}", self.authority(), self.path)
    }

    /// Where `location` leads from here.
    pub(crate) fn resolve(&self, location: &str) -> Led {
        let (scheme, rest) = match scheme(location) {
            Some((scheme, rest)) => (Some(scheme.to_ascii_lowercase()), rest),
            None => (None, location),
        };
        let Some(rest) = rest.strip_prefix("//") else {
            // `mailto:x` names no host.
            return match scheme {
                Some(_) => Led::Away,
                None => Led::Here(Target {
                    path: clean(&self.join(location)),
                    ..self.clone()
                }),
            };
        };
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (place, path) = rest.split_at(end);
        let place = place.rsplit_once('@').map_or(place, |(_, place)| place);
        let (host, port) = match place.rsplit_once(':') {
            Some((host, port)) if !port.contains(']') => (host, port),
            _ => (place, ""),
        };
        if !port.bytes().all(|byte| byte.is_ascii_digit()) {
            return Led::Nowhere;
        }
        if bare(host) != self.host {
            return Led::Away;
        }
        let https = match scheme.as_deref() {
            None => self.https,
            Some("http") => false,
            Some("https") => true,
            Some(_) => return Led::Nowhere,
        };
        let port = match (port.parse(), https) {
            (Ok(0), _) => return Led::Nowhere,
            (Ok(port), _) => port,
            (Err(_), _) if !port.is_empty() => return Led::Nowhere,
            (Err(_), true) => 443,
            (Err(_), false) => 80,
        };
        Led::Here(Target::new(https, host, port, path))
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
                format!("{}{query}", without_dots(&format!("{directory}/{path}")))
            }
        }
    }
}

/// Whether an address says itself where it leads, scheme and all.
pub(crate) fn is_absolute(location: &str) -> bool {
    scheme(location).is_some()
}

/// The scheme of an address, and what follows its colon.
fn scheme(location: &str) -> Option<(&str, &str)> {
    let (scheme, rest) = location.split_once(':')?;
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte);
    let named = scheme.starts_with(|c: char| c.is_ascii_alphabetic());
    (named && scheme.bytes().all(is_part)).then_some((scheme, rest))
}

fn bare(host: &str) -> &str {
    host.strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'))
        .unwrap_or(host)
}

fn without_dots(path: &str) -> String {
    let mut kept: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "." => {}
            ".." if kept.len() > 1 => drop(kept.pop()),
            ".." => {}
            part => kept.push(part),
        }
    }
    if path.ends_with("/.") || path.ends_with("/..") {
        kept.push("");
    }
    kept.join("/")
}

/// A path as it may be sent: from a slash on, without a fragment, odd bytes escaped.
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
    fn redirects_lead_where_browsers_would_go() {
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
            ("10.0.0.1", "http://example.com", "away"),
            ("10.0.0.1", "//example.com/x", "away"),
            ("10.0.0.1", "ftp://example.com/", "away"),
            ("10.0.0.1", "http://example.com:99999/", "away"),
            ("10.0.0.1", "http:x", "away"),
            ("10.0.0.1", "mailto:x", "away"),
            ("h", "http://h:0/", "nowhere"),
            ("h", "http://h:99999/", "nowhere"),
            ("h", "http://h:http/", "nowhere"),
            ("h", "ftp://h/", "nowhere"),
        ] {
            let led = match Target::new(false, host, 8080, "/a/b?q").resolve(location) {
                Led::Here(target) => target.url(),
                Led::Away => "away".to_owned(),
                Led::Nowhere => "nowhere".to_owned(),
            };
            assert_eq!(led, expected, "{location}");
        }
    }

    #[test]
    fn paths_are_sent_as_paths() {
        for (path, sent) in [
            ("", "/"),
            ("x", "/x"),
            ("/a b", "/a%20b"),
            ("/%20", "/%20"),
            ("/é#f", "/%C3%A9"),
        ] {
            assert_eq!(Target::new(false, "h", 1, path).path, sent);
        }
    }

    proptest! {
        #[test]
        fn any_location_is_answered(location in "\\PC*", path in "\\PC*") {
            let from = Target::new(true, "h", 1, &path);
            if let Led::Here(to) = from.resolve(&location) {
                prop_assert!(to.path.parse::<http::uri::PathAndQuery>().is_ok(), "{:?}", to);
            }
        }
    }
}
