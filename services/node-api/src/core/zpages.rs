//! `/statusz` and `/flagz`: what they contain, and in which form a client gets it.
//!
//! As upstream, the text is for people. A client that wants a structure names the kind and its version in
//! `Accept`, as in `application/json;as=Statusz;g=config.k8s.io;v=v1beta1`.

use std::collections::BTreeMap;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde_json::{Value, json};

/// The name of the component, which is the kubelet's.
const COMPONENT: &str = "kubelet";
const GROUP: &str = "config.k8s.io";
/// Most clauses of an `Accept` header that are considered.
const MAX_CLAUSES: usize = 64;

/// Which of the two pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PageKind {
    Statusz,
    Flagz,
}

impl PageKind {
    fn kind(self) -> &'static str {
        match self {
            Self::Statusz => "Statusz",
            Self::Flagz => "Flagz",
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Statusz => "statusz",
            Self::Flagz => "flagz",
        }
    }
}

/// Versions of the structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PageVersion {
    V1Alpha1,
    V1Beta1,
}

impl PageVersion {
    fn name(self) -> &'static str {
        match self {
            Self::V1Alpha1 => "v1alpha1",
            Self::V1Beta1 => "v1beta1",
        }
    }
}

/// How a structure is encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Encoding {
    Json,
    Yaml,
}

impl Encoding {
    pub(crate) fn media_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Yaml => "application/yaml",
        }
    }
}

/// The form of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PageForm {
    Text,
    Structure {
        version: PageVersion,
        encoding: Encoding,
        /// The client asks for indentation.
        pretty: bool,
    },
}

impl PageForm {
    /// The header `Content-Type`.
    pub(crate) fn media_type(self, page: PageKind) -> String {
        match self {
            Self::Text => "text/plain; charset=utf-8".to_owned(),
            Self::Structure {
                version, encoding, ..
            } => {
                let (media_type, version) = (encoding.media_type(), version.name());
                format!("{media_type};g={GROUP};v={version};as={}", page.kind())
            }
        }
    }

    /// The header `Warning`, for a version that is deprecated.
    pub(crate) fn warning(self, page: PageKind) -> Option<String> {
        let deprecated = matches!(
            self,
            Self::Structure {
                version: PageVersion::V1Alpha1,
                ..
            }
        );
        let name = page.name();
        deprecated.then(|| {
            format!(
                "299 - \"This version of the {name} endpoint is deprecated. Please use a newer version.\""
            )
        })
    }
}

/// No form is acceptable to the client: 406.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NotAcceptable {
    /// How the error is encoded. Without one that the client accepts, it is indented JSON.
    pub(crate) encoding: Option<Encoding>,
}

/// The body of the 406 response.
pub(crate) fn not_acceptable() -> Value {
    json!({
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": "only the following media types are accepted: application/json, application/yaml, text/plain",
        "reason": "NotAcceptable",
        "code": 406,
    })
}

/// A part of an `Accept` header.
struct AcceptClause<'a> {
    main_type: &'a str,
    sub_type: &'a str,
    quality: f32,
    parameters: BTreeMap<&'a str, &'a str>,
}

impl<'a> AcceptClause<'a> {
    fn parse(text: &'a str) -> Option<Self> {
        let mut parts = text.split(';').map(str::trim);
        let media_type = parts.next()?;
        let (main_type, sub_type) = match media_type.split_once('/') {
            Some((main_type, sub_type)) => (main_type.trim(), sub_type.trim()),
            None if media_type == "*" => ("*", "*"),
            None => return None,
        };
        let mut quality = 1.0;
        let mut parameters = BTreeMap::new();
        for parameter in parts {
            let Some((name, value)) = parameter.split_once('=') else {
                continue;
            };
            match name.trim() {
                "q" => quality = value.trim().parse().unwrap_or(1.0),
                name => drop(parameters.insert(name, value.trim())),
            }
        }
        Some(Self {
            main_type,
            sub_type,
            quality,
            parameters,
        })
    }

    fn matches(&self, main_type: &str, sub_type: &str) -> bool {
        match (self.main_type, self.sub_type) {
            ("*", "*") => true,
            (own, "*") => own == main_type,
            (own, own_sub_type) => own == main_type && own_sub_type == sub_type,
        }
    }

    /// Whether a structure is asked for, of whatever kind.
    fn converts(&self) -> bool {
        let names = ["as", "g", "v"];
        names.iter().any(|name| self.parameters.contains_key(name))
    }

    /// The version, if this page is the structure that is asked for.
    fn version(&self, page: PageKind) -> Option<PageVersion> {
        let parameter = |name| self.parameters.get(name).copied();
        if parameter("as") != Some(page.kind()) || parameter("g") != Some(GROUP) {
            return None;
        }
        match parameter("v") {
            Some("v1alpha1") => Some(PageVersion::V1Alpha1),
            Some("v1beta1") => Some(PageVersion::V1Beta1),
            _ => None,
        }
    }

    /// Neither streams nor versions of the server are known here.
    fn is_possible(&self) -> bool {
        let is_empty = |name| {
            self.parameters
                .get(name)
                .is_none_or(|value| value.is_empty())
        };
        is_empty("stream") && is_empty("sv")
    }
}

/// The clauses in the order of the client's preference.
fn clauses(accept: &str) -> Vec<AcceptClause<'_>> {
    let clauses = accept.split(',').take(MAX_CLAUSES);
    let mut clauses: Vec<_> = clauses.filter_map(AcceptClause::parse).collect();
    clauses.sort_by(|a, b| {
        let is_wildcard =
            |clause: &AcceptClause<'_>| (clause.main_type == "*", clause.sub_type == "*");
        let by_quality = b.quality.total_cmp(&a.quality);
        by_quality.then_with(|| is_wildcard(a).cmp(&is_wildcard(b)))
    });
    clauses
}

const ENCODINGS: [(&str, &str, Encoding); 2] = [
    ("application", "json", Encoding::Json),
    ("application", "yaml", Encoding::Yaml),
];

/// Chooses the form by the `Accept` header; `pretty` is what else the request says about indentation.
///
/// # Errors
/// When the client accepts none.
pub(crate) fn negotiate(
    accept: &str,
    pretty: bool,
    page: PageKind,
) -> Result<PageForm, NotAcceptable> {
    if accept.trim().is_empty() {
        return Ok(PageForm::Text);
    }
    let clauses = clauses(accept);
    for clause in clauses.iter().filter(|clause| clause.is_possible()) {
        let version = clause.version(page);
        let encoded = ENCODINGS.iter();
        let encoded = encoded.filter(|(main, sub, _)| clause.matches(main, sub));
        if let (Some(version), Some((_, _, encoding))) = (version, encoded.clone().next()) {
            let asked = clause.parameters.get("pretty") == Some(&"1");
            return Ok(PageForm::Structure {
                version,
                encoding: *encoding,
                pretty: pretty || asked,
            });
        }
        if clause.matches("text", "plain") && !clause.converts() {
            return Ok(PageForm::Text);
        }
    }
    let mut plain = clauses.iter().filter(|clause| !clause.converts());
    let encoding = plain.find_map(|clause| {
        let mut encodings = ENCODINGS.iter();
        let found = encodings.find(|(main, sub, _)| clause.matches(main, sub));
        found.map(|(_, _, encoding)| *encoding)
    });
    Err(NotAcceptable { encoding })
}

/// What `/statusz` says.
#[derive(Clone, Debug)]
pub(crate) struct ComponentStatus {
    pub(crate) started_at: Timestamp,
    /// The version of Kubernetes.
    pub(crate) version: &'static str,
    pub(crate) paths: Vec<&'static str>,
}

impl ComponentStatus {
    fn uptime(&self, now: Timestamp) -> i64 {
        now.duration_since(self.started_at).as_secs().max(0)
    }

    fn emulation_version(&self) -> &str {
        let patch = self.version.rsplit_once('.');
        patch.map_or(self.version, |(minor, _)| minor)
    }

    /// The structure. There is no version of Go.
    pub(crate) fn structure(&self, version: PageVersion, now: Timestamp) -> Value {
        let started = self.started_at.as_second();
        let started = Timestamp::from_second(started).unwrap_or(self.started_at);
        json!({
            "kind": "Statusz",
            "apiVersion": format!("{GROUP}/{}", version.name()),
            "metadata": {"name": COMPONENT},
            "startTime": started.to_string(),
            "uptimeSeconds": self.uptime(now),
            "goVersion": "",
            "binaryVersion": self.version,
            "emulationVersion": self.emulation_version(),
            "paths": self.paths,
        })
    }

    pub(crate) fn text(&self, now: Timestamp) -> String {
        let uptime = self.uptime(now);
        let started = self.started_at.to_zoned(TimeZone::UTC);
        format!(
            "{}\nStarted: {}\nUp: {} hr {:02} min {:02} sec\nGo version: \nBinary version: {}\n\
             Emulation version: {}\nPaths: {}\n",
            header(PageKind::Statusz),
            started.strftime("%a %b %e %H:%M:%S %Z %Y"),
            uptime / 3600,
            uptime / 60 % 60,
            uptime % 60,
            self.version,
            self.emulation_version(),
            self.paths.join(" "),
        )
    }
}

/// Flags with their values.
pub(crate) type Flags = BTreeMap<&'static str, String>;

/// The structure of `/flagz`.
pub(crate) fn flags_structure(flags: &Flags, version: PageVersion) -> Value {
    json!({
        "kind": "Flagz",
        "apiVersion": format!("{GROUP}/{}", version.name()),
        "metadata": {"name": COMPONENT},
        "flags": flags,
    })
}

pub(crate) fn flags_text(flags: &Flags) -> String {
    let mut text = header(PageKind::Flagz);
    for (name, value) in flags {
        text += &format!("{name}={value}\n");
    }
    text
}

fn header(page: PageKind) -> String {
    let name = page.name();
    format!(
        "\n{COMPONENT} {name}\nWarning: This endpoint is not meant to be machine parseable, has no formatting \
         compatibility guarantees and is for debugging purposes only.\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(accept: &str) -> Result<String, Option<Encoding>> {
        let form = negotiate(accept, false, PageKind::Statusz);
        let form = form.map(|form| form.media_type(PageKind::Statusz));
        form.map_err(|error| error.encoding)
    }

    #[test]
    fn form_follows_from_what_the_client_accepts() {
        let text = "text/plain; charset=utf-8";
        let kind = "as=Statusz;g=config.k8s.io";
        let json = "application/json;g=config.k8s.io;v=v1beta1;as=Statusz";
        for (accept, expected) in [
            (String::new(), Ok(text)),
            ("  ".to_owned(), Ok(text)),
            ("*/*".to_owned(), Ok(text)),
            ("text/*".to_owned(), Ok(text)),
            ("text/html, text/plain;q=0.5".to_owned(), Ok(text)),
            (format!("application/json;{kind};v=v1beta1"), Ok(json)),
            (format!("*/*;{kind};v=v1beta1"), Ok(json)),
            (
                format!("text/plain;q=0.9, application/json;{kind};v=v1beta1"),
                Ok(json),
            ),
            (
                format!("application/yaml; {kind}; v=v1alpha1"),
                Ok("application/yaml;g=config.k8s.io;v=v1alpha1;as=Statusz"),
            ),
            // A structure needs a kind, and this one.
            ("application/json".to_owned(), Err(Some(Encoding::Json))),
            ("application/yaml".to_owned(), Err(Some(Encoding::Yaml))),
            ("application/json, */*".to_owned(), Ok(text)),
            (format!("application/json;{kind};v=v1"), Err(None)),
            (
                "application/json;as=Flagz;g=config.k8s.io;v=v1beta1".to_owned(),
                Err(None),
            ),
            (format!("text/plain;{kind};v=v1beta1"), Err(None)),
            (
                format!("application/json;{kind};v=v1beta1;stream=watch"),
                Err(None),
            ),
            ("text/html".to_owned(), Err(None)),
            ("text".to_owned(), Err(None)),
        ] {
            let expected = expected.map(str::to_owned);
            assert_eq!(form(&accept), expected, "{accept:?}");
        }
    }

    #[test]
    fn deprecated_version_has_a_warning() {
        let form = |version| {
            let accept = format!("application/json;as=Flagz;g=config.k8s.io;v={version}");
            negotiate(&accept, false, PageKind::Flagz).unwrap()
        };
        let warning = form("v1alpha1").warning(PageKind::Flagz).unwrap();
        assert!(warning.starts_with("299 - \"This version of the flagz endpoint"));
        assert_eq!(form("v1beta1").warning(PageKind::Flagz), None);
        assert_eq!(PageForm::Text.warning(PageKind::Flagz), None);
    }

    #[test]
    fn status_says_when_it_started_and_what_else_can_be_asked() {
        let status = ComponentStatus {
            started_at: "2026-01-02T03:04:05.678Z".parse().unwrap(),
            version: "1.36.3",
            paths: vec!["/configz", "/healthz"],
        };
        let now = "2026-01-03T04:06:08Z".parse().unwrap();
        let text = status.text(now);
        for line in [
            "kubelet statusz",
            "Started: Fri Jan  2 03:04:05 UTC 2026",
            "Up: 25 hr 02 min 02 sec",
            "Binary version: 1.36.3",
            "Emulation version: 1.36",
            "Paths: /configz /healthz",
        ] {
            assert!(text.lines().any(|one| one == line), "{line:?} in {text}");
        }
        let expected = json!({
            "kind": "Statusz",
            "apiVersion": "config.k8s.io/v1beta1",
            "metadata": {"name": "kubelet"},
            "startTime": "2026-01-02T03:04:05Z",
            "uptimeSeconds": 90122,
            "goVersion": "",
            "binaryVersion": "1.36.3",
            "emulationVersion": "1.36",
            "paths": ["/configz", "/healthz"],
        });
        assert_eq!(status.structure(PageVersion::V1Beta1, now), expected);
        // A clock that was set back.
        let before = "2025-01-01T00:00:00Z".parse().unwrap();
        assert_eq!(status.uptime(before), 0);
    }

    #[test]
    fn flags_are_sorted() {
        let flags = Flags::from([("root-dir", "/x".to_owned()), ("cert-dir", "/y".to_owned())]);
        assert!(flags_text(&flags).ends_with("\ncert-dir=/y\nroot-dir=/x\n"));
        let structure = flags_structure(&flags, PageVersion::V1Alpha1);
        assert_eq!(structure["apiVersion"], "config.k8s.io/v1alpha1");
        assert_eq!(structure["flags"]["cert-dir"], "/y");
    }
}
