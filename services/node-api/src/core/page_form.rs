//! In which form a client gets a page: negotiation of `Accept`.
//!
//! As upstream, the text is for people. A client that wants a structure names the kind and its version in
//! `Accept`, as in `application/json;as=Statusz;g=config.k8s.io;v=v1beta1`.

use std::collections::BTreeMap;

use serde_json::{Value, json};

/// The API group of the pages' kinds.
pub(super) const GROUP: &str = "config.k8s.io";
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

    pub(super) fn name(self) -> &'static str {
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
    pub(super) fn name(self) -> &'static str {
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
}
