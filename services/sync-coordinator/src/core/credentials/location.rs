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
    let below_version = ["/v1", "/v2"]
        .iter()
        .filter_map(|version| path.strip_prefix(version))
        .find(|below| below.starts_with('/'));
    Some(match below_version.unwrap_or(path) {
        "" | "/" => Cow::Borrowed(host),
        below if below_version.is_some() => Cow::Owned(format!("{host}{below}")),
        _ => Cow::Borrowed(bare),
    })
}

/// Steps that are left for comparing the locations of one keyring with an image. Pull secrets come from
/// anyone who may create pods, so the work for their patterns is bounded.
#[derive(Debug)]
pub struct MatchBudget {
    steps: usize,
}

impl Default for MatchBudget {
    fn default() -> Self {
        MatchBudget {
            steps: Self::MAX_STEPS,
        }
    }
}

impl MatchBudget {
    /// Enough for thousands of locations of usual length. A step takes nanoseconds.
    const MAX_STEPS: usize = 1 << 20;

    /// Whether all steps were used: further locations match nothing.
    pub fn is_exhausted(&self) -> bool {
        self.steps == 0
    }

    /// Takes a step; `None` when none is left.
    fn step(&mut self) -> Option<()> {
        self.steps = self.steps.checked_sub(1)?;
        Some(())
    }
}

/// Whether a location matches an image: equal ports, hosts with the same number of labels that match
/// each (`*`, `?` and classes within a label), and the location's path as a prefix of the image's.
pub fn matches(location: &str, image: &str, budget: &mut MatchBudget) -> bool {
    let (location, image) = (ImageLocation::parse(location), ImageLocation::parse(image));
    location.port == image.port
        && location.host.len() == image.host.len()
        && image.path.starts_with(location.path)
        && location
            .host
            .iter()
            .zip(&image.host)
            .all(|(pattern, label)| glob(pattern.as_bytes(), label.as_bytes(), budget))
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

/// Shell patterns within one label of a host name. An invalid pattern matches nothing, nor does one
/// that exhausts the budget.
///
/// After a mismatch only the last star takes one byte more: what an earlier one could take instead, the
/// last one can take as well. So the steps are at most the product of both lengths.
fn glob(pattern: &[u8], text: &[u8], budget: &mut MatchBudget) -> bool {
    let (mut pattern, mut text) = (pattern, text);
    // The pattern after the last star, and the text that it was compared with.
    let mut last_star: Option<(&[u8], &[u8])> = None;
    while budget.step().is_some() {
        if let [b'*', rest @ ..] = pattern {
            pattern = rest;
            last_star = Some((pattern, text));
            continue;
        }
        if pattern.is_empty() && text.is_empty() {
            return true;
        }
        let next = match_one(pattern, text, budget);
        let next = next.or_else(|| {
            let (after, [_, rest @ ..]) = last_star? else {
                return None;
            };
            last_star = Some((after, rest));
            last_star
        });
        let Some(next) = next else {
            return false;
        };
        (pattern, text) = next;
    }
    false
}

/// Matches one byte of the text with the start of a pattern that begins with no star. Returns what
/// follows in both.
fn match_one<'a>(
    pattern: &'a [u8],
    text: &'a [u8],
    budget: &mut MatchBudget,
) -> Option<(&'a [u8], &'a [u8])> {
    let (&byte, text) = text.split_first()?;
    match pattern {
        [b'?', rest @ ..] => Some((rest, text)),
        [b'[', rest @ ..] => {
            let (found, rest) = class(rest, byte, budget)?;
            found.then_some((rest, text))
        }
        [b'\\', rest @ ..] => {
            let (&escaped, rest) = rest.split_first()?;
            (escaped == byte).then_some((rest, text))
        }
        [first, rest @ ..] => (*first == byte).then_some((rest, text)),
        [] => None,
    }
}

/// Whether a byte is in the class at the start of the pattern, and the pattern after the class.
fn class<'a>(pattern: &'a [u8], byte: u8, budget: &mut MatchBudget) -> Option<(bool, &'a [u8])> {
    let (negated, mut rest) = match pattern.strip_prefix(b"^") {
        Some(rest) => (true, rest),
        None => (false, pattern),
    };
    let (mut found, mut first) = (false, true);
    loop {
        budget.step()?;
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

    fn matches(location: &str, image: &str) -> bool {
        super::matches(location, image, &mut MatchBudget::default())
    }

    fn steps(pattern: &str, text: &str) -> usize {
        let mut budget = MatchBudget::default();
        assert!(!glob(pattern.as_bytes(), text.as_bytes(), &mut budget));
        MatchBudget::MAX_STEPS - budget.steps
    }

    /// What the patterns mean, by trying all lengths for each star.
    fn glob_by_definition(pattern: &[u8], text: &[u8]) -> bool {
        match pattern {
            [] => text.is_empty(),
            [b'*', rest @ ..] => {
                (0..=text.len()).any(|taken| glob_by_definition(rest, &text[taken..]))
            }
            _ => match_one(pattern, text, &mut MatchBudget::default())
                .is_some_and(|(rest, text)| glob_by_definition(rest, text)),
        }
    }

    /// Twelve stars before a host of 200 characters: more than 10^18 ways to divide it.
    #[test]
    fn hostile_patterns_take_few_steps() {
        let text = "a".repeat(200) + "!";
        let stars = "*a".repeat(12);
        let classes = "*[a-z]".repeat(12);
        let unclosed = "*[".to_owned() + &"a".repeat(200);
        for pattern in [stars, classes, unclosed] {
            let steps = steps(&pattern, &text);
            assert!(
                steps <= 2 * pattern.len() * text.len(),
                "{steps} for {pattern}"
            );
        }
    }

    #[test]
    fn an_exhausted_budget_matches_nothing() {
        let mut budget = MatchBudget::default();
        let pattern = "*".to_owned() + &"a".repeat(3000) + "b";
        let host = "a".repeat(6000);
        assert!(!super::matches(&pattern, &host, &mut budget));
        assert!(budget.is_exhausted());
        assert!(!super::matches("a", "a", &mut budget));
    }

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
            ("*b*t*s.io", "kubernetes.io", true),
            ("*b*z*s.io", "kubernetes.io", false),
            ("k*es*.io", "kubernetes.io", true),
            ("*[a-c]\\ernetes.io", "kubernetes.io", true),
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
            ("registry.example/v1é", Some("registry.example/v1é")),
            ("registry.example/v3/", Some("registry.example/v3/")),
            ("https://registry.example/v1/é", Some("registry.example/é")),
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
        fn patterns_match_by_their_definition(pattern in "([ab*?]|\\[a\\]|\\[\\^a-b\\]|\\[|\\\\){0,8}", text in "[abc]{0,8}") {
            let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
            let expected = glob_by_definition(pattern, text);
            prop_assert_eq!(glob(pattern, text, &mut MatchBudget::default()), expected);
        }

        #[test]
        fn a_plain_location_matches_itself(location in "[a-z]{1,5}(\\.[a-z]{1,5}){0,3}(:[0-9]{1,4})?(/[a-z]{1,5}){0,2}") {
            prop_assert!(matches(&location, &location));
        }
    }
}
