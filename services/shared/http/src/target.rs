//! Addresses that are asked, and where a redirect leads. Pure.

use crate::net::authority;

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

    /// Where `location` leads from here; `None` when it is no HTTP address.
    pub(crate) fn resolve(&self, location: &str) -> Option<Target> {
        let (https, rest) = match location.split_once("://") {
            Some((scheme, rest)) if !scheme.contains(['/', '?', '#']) => {
                match scheme.to_ascii_lowercase().as_str() {
                    "http" => (false, rest),
                    "https" => (true, rest),
                    _ => return None,
                }
            }
            _ => match location.strip_prefix("//") {
                Some(rest) => (self.https, rest),
                None => {
                    return Some(Target {
                        path: clean(&self.join(location)),
                        ..self.clone()
                    });
                }
            },
        };
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (place, path) = rest.split_at(end);
        let place = place.rsplit_once('@').map_or(place, |(_, place)| place);
        let (host, port) = match place.rsplit_once(':') {
            Some((host, port)) if !port.contains(']') => (host, Some(port)),
            _ => (place, None),
        };
        let port = match port.filter(|port| !port.is_empty()) {
            Some(port) => port.parse().ok().filter(|port| *port > 0)?,
            None if https => 443,
            None => 80,
        };
        Some(Target::new(https, host, port, path))
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
        let from = Target::new(false, "10.0.0.1", 8080, "/a/b?q");
        for (location, expected) in [
            ("/x", Some("http://10.0.0.1:8080/x")),
            ("x?y=1", Some("http://10.0.0.1:8080/a/x?y=1")),
            ("../x", Some("http://10.0.0.1:8080/x")),
            ("./", Some("http://10.0.0.1:8080/a/")),
            ("?z", Some("http://10.0.0.1:8080/a/b?z")),
            ("", Some("http://10.0.0.1:8080/a/b?q")),
            ("https://10.0.0.1/x#y", Some("https://10.0.0.1:443/x")),
            ("http://example.com", Some("http://example.com:80/")),
            ("//[fd00::1]:81/x", Some("http://[fd00::1]:81/x")),
            ("https://[fd00::1]/", Some("https://[fd00::1]:443/")),
            ("http://h:0/", None),
            ("http://h:99999/", None),
            ("ftp://h/", None),
            (
                "/login?next=http://other/",
                Some("http://10.0.0.1:8080/login?next=http://other/"),
            ),
        ] {
            assert_eq!(
                from.resolve(location).map(|to| to.url()).as_deref(),
                expected,
                "{location}"
            );
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
            if let Some(to) = from.resolve(&location) {
                prop_assert!(to.path.parse::<http::uri::PathAndQuery>().is_ok(), "{:?}", to);
            }
        }
    }
}
