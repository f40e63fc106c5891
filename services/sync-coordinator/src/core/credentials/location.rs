//! Locations of logins: `registry.example`, `*.example:5000/team`, `https://registry.example/v1/`.
//! Matching follows upstream's keyring (`URLsMatch`).

use std::borrow::Cow;

/// Host, port and path of a location or an image name.
#[derive(Debug, PartialEq, Eq)]
struct ImageLocation<'a> {
    host: Vec<&'a str>,
    port: &'a str,
    path: &'a str,
}

impl<'a> ImageLocation<'a> {
    fn parse(text: &'a str) -> Self {
        let end = text.find('/').unwrap_or(text.len());
        let (address, path) = text.split_at(end);
        let (host, port) = split_port(address);
        ImageLocation {
            host: host.split('.').collect(),
            port,
            path,
        }
    }
}

/// Splits at the last colon outside of brackets.
fn split_port(address: &str) -> (&str, &str) {
    match address.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => {
            let bare = host.strip_prefix('[').and_then(|h| h.strip_suffix(']'));
            match bare {
                Some(bare) => (bare, port),
                // Several colons without brackets: there is no port.
                None if host.contains(':') => (address, ""),
                None => (host, port),
            }
        }
        _ => (address, ""),
    }
}

/// A location without its scheme and without a path that only names the registry's API version.
/// `None` when it is invalid.
pub fn normalize(location: &str) -> Option<Cow<'_, str>> {
    let bare = ["https://", "http://"]
        .iter()
        .find_map(|scheme| location.strip_prefix(scheme))
        .unwrap_or(location);
    let bare = bare.split(['?', '#']).next().unwrap_or_default();
    if bare.chars().any(|c| c.is_control() || c == ' ') {
        return None;
    }
    let (host, path) = bare.split_at(bare.find('/').unwrap_or(bare.len()));
    let (_, port) = split_port(host);
    if !port.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let versioned = path.starts_with("/v1/") || path.starts_with("/v2/");
    let path = if versioned { &path[3..] } else { path };
    Some(match path {
        "" | "/" => Cow::Borrowed(host),
        _ if versioned => Cow::Owned(format!("{host}{path}")),
        _ => Cow::Borrowed(bare),
    })
}

/// Whether a location matches an image: equal ports, hosts with the same number of labels that match
/// each (`*`, `?` and classes within a label), and the location's path as a prefix of the image's.
pub fn matches(location: &str, image: &str) -> bool {
    let (location, image) = (ImageLocation::parse(location), ImageLocation::parse(image));
    location.port == image.port
        && location.host.len() == image.host.len()
        && image.path.starts_with(location.path)
        && location
            .host
            .iter()
            .zip(&image.host)
            .all(|(pattern, label)| glob(pattern.as_bytes(), label.as_bytes()))
}

/// The registry of an image name.
pub fn registry(image: &str) -> &str {
    image.split('/').next().unwrap_or(image)
}

/// Whether an image name refers to Docker Hub.
pub fn is_docker_hub(image: &str) -> bool {
    match image.split_once('/') {
        None => !image.is_empty(),
        Some(("", _)) => false,
        Some((first, _)) => {
            first == "docker.io" || first == "index.docker.io" || !first.contains(['.', ':'])
        }
    }
}

/// Shell patterns within one label of a host name. An invalid pattern matches nothing.
fn glob(pattern: &[u8], text: &[u8]) -> bool {
    match pattern.split_first() {
        None => text.is_empty(),
        Some((b'*', rest)) => (0..=text.len()).any(|at| glob(rest, &text[at..])),
        Some((b'?', rest)) => text
            .split_first()
            .is_some_and(|(_, after)| glob(rest, after)),
        Some((b'[', rest)) => {
            let Some((&byte, after)) = text.split_first() else {
                return false;
            };
            matches!(class(rest, byte), Some((true, rest)) if glob(rest, after))
        }
        Some((b'\\', rest)) => {
            let both = rest.split_first().zip(text.split_first());
            both.is_some_and(|((p, rest), (t, after))| p == t && glob(rest, after))
        }
        Some((byte, rest)) => text
            .split_first()
            .is_some_and(|(t, after)| t == byte && glob(rest, after)),
    }
}

/// Whether a byte is in the class at the start of the pattern, and the pattern after the class.
fn class(pattern: &[u8], byte: u8) -> Option<(bool, &[u8])> {
    let (negated, mut rest) = match pattern.strip_prefix(b"^") {
        Some(rest) => (true, rest),
        None => (false, pattern),
    };
    let (mut found, mut first) = (false, true);
    loop {
        if let Some(after) = rest.strip_prefix(b"]").filter(|_| !first) {
            return Some((found != negated, after));
        }
        first = false;
        let (low, after) = letter(rest)?;
        let (high, after) = match after.strip_prefix(b"-") {
            Some(after) => letter(after)?,
            None => (low, after),
        };
        found |= (low..=high).contains(&byte);
        rest = after;
    }
}

fn letter(pattern: &[u8]) -> Option<(u8, &[u8])> {
    match pattern.split_first()? {
        (b'\\', rest) => rest.split_first().map(|(byte, rest)| (*byte, rest)),
        (b'-' | b']', _) => None,
        (byte, rest) => Some((*byte, rest)),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn locations_match_images() {
        for (location, image, expected) in [
            ("foo.kubernetes.io/path", "foo.kubernetes.io/path", true),
            ("*.kubernetes.io/path", "foo.kubernetes.io/path", true),
            ("*.*.kubernetes.io/path", "foo.bar.kubernetes.io/path", true),
            ("*.kubernetes.io/path", "foo.bar.kubernetes.io/path", false),
            ("*.*.kubernetes.io", "kubernetes.io", false),
            ("*kubernetes.io", "foo.kubernetes.io", false),
            ("*bernetes.io", "kubernetes.io", true),
            ("k?bernetes.io", "kubernetes.io", true),
            ("[k-m]ube.io", "kube.io", true),
            ("[^k]ube.io", "kube.io", false),
            ("[kube.io", "kube.io", false),
            ("kube.io", "kube.io/any/path", true),
            ("kube.io/team", "kube.io/team/app", true),
            // The path is a prefix of characters, not of whole segments.
            ("kube.io/team", "kube.io/teamwork/app", true),
            ("kube.io/team", "kube.io/other", false),
            ("kube.io:8888", "kube.io:8888/a", true),
            ("kube.io:8888", "kube.io/a", false),
            ("kube.io", "kube.io:8888/a", false),
            ("*.kube.io:5000/x", "a.kube.io:5000/x/y", true),
            ("[::1]:5000", "[::1]:5000/a", true),
        ] {
            assert_eq!(matches(location, image), expected, "{location} {image}");
        }
    }

    #[test]
    fn normalize_removes_scheme_and_api_version() {
        for (written, expected) in [
            ("registry.example", Some("registry.example")),
            ("https://registry.example", Some("registry.example")),
            ("http://registry.example:80/", Some("registry.example:80")),
            ("https://index.docker.io/v1/", Some("index.docker.io")),
            ("registry.example/v2/", Some("registry.example")),
            ("registry.example/v2/team", Some("registry.example/team")),
            ("registry.example/v2", Some("registry.example/v2")),
            ("registry.example/team", Some("registry.example/team")),
            ("two words", None),
            ("host:port", None),
        ] {
            assert_eq!(normalize(written).as_deref(), expected, "{written}");
        }
    }

    #[test]
    fn docker_hub_is_the_default_registry() {
        for (image, hub) in [
            ("busybox", true),
            ("library/busybox", true),
            ("docker.io/library/busybox", true),
            ("index.docker.io/a", true),
            ("registry.example/a", false),
            ("host:5000/a", false),
            ("/a", false),
            ("", false),
        ] {
            assert_eq!(is_docker_hub(image), hub, "{image}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_safe(location in ".{0,24}", image in ".{0,24}") {
            normalize(&location);
            matches(&location, &image);
            is_docker_hub(&image);
        }

        #[test]
        fn a_plain_location_matches_itself(location in "[a-z]{1,5}(\\.[a-z]{1,5}){0,3}(:[0-9]{1,4})?(/[a-z]{1,5}){0,2}") {
            prop_assert!(matches(&location, &location));
        }
    }
}
