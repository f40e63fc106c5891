use std::fmt;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_yaml_ng::Value;

use super::problems::Problems;
use super::unheeded;
use super::{Config, KubeletConfiguration, PolyletConfiguration};
use super::{allowed, gates};

const KUBELET: (&str, &str) = ("kubelet.config.k8s.io/v1beta1", "KubeletConfiguration");
const POLYLET: (&str, &str) = ("polylet.dev/v1alpha1", "PolyletConfiguration");

/// Files beyond this size are not configuration.
const MAX_BYTES: u64 = 1 << 20;

/// Something wrong in the configuration: where, and what is allowed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigProblem {
    /// The file.
    pub file: PathBuf,
    /// The field's path (`authentication.x509.clientCAFile`); empty when it is the whole file.
    pub field: String,
    /// What is wrong, with the value, and what is allowed.
    pub message: String,
}

impl fmt::Display for ConfigProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.file.display())?;
        if !self.field.is_empty() {
            write!(f, "{}: ", self.field)?;
        }
        f.write_str(&self.message)
    }
}

/// Why a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("reading the configuration {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// Its content is wrong; every problem found, at least one.
    #[error("{}", joined(.0))]
    Wrong(Vec<ConfigProblem>),
}

fn joined(problems: &[ConfigProblem]) -> String {
    problems
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join("\n")
}

/// Reads the configuration as a node does at start: wrong values are an error, unknown fields are
/// warnings.
pub fn load(path: &Path) -> Result<Config, ConfigError> {
    let text = read(path)?;
    from_text(path, &text)
}

/// The same, of a text that was read before.
pub fn from_text(path: &Path, text: &str) -> Result<Config, ConfigError> {
    let (config, unknown, wrong) = parse(path, text);
    match config {
        Some(mut config) if wrong.is_empty() => {
            config.warnings = unknown.iter().map(ToString::to_string).collect();
            config.warnings.extend(unheeded::warnings(&config.kubelet));
            Ok(config)
        }
        _ => Err(ConfigError::Wrong(wrong)),
    }
}

/// Reads the configuration strictly and tells everything that is wrong with it.
pub fn check(path: &Path) -> Vec<ConfigProblem> {
    match read(path) {
        Err(error) => {
            vec![ConfigProblem {
                file: path.to_owned(),
                field: String::new(),
                message: crate::report(&error),
            }]
        }
        Ok(text) => {
            let (_, unknown, wrong) = parse(path, &text);
            unknown.into_iter().chain(wrong).collect()
        }
    }
}

fn read(path: &Path) -> Result<String, ConfigError> {
    use std::io::Read;
    let failed = |source| ConfigError::Read {
        path: path.to_owned(),
        source,
    };
    let file = std::fs::File::open(path).map_err(failed)?;
    let meta = file.metadata().map_err(failed)?;
    if !meta.is_file() {
        return Err(failed(std::io::Error::other("not a file")));
    }
    let mut text = String::new();
    file.take(MAX_BYTES + 1)
        .read_to_string(&mut text)
        .map_err(failed)?;
    if text.len() as u64 > MAX_BYTES {
        return Err(failed(std::io::Error::other("larger than 1 MiB")));
    }
    Ok(text)
}

/// The configuration as far as it could be read, its unknown fields, and what is wrong.
fn parse(path: &Path, text: &str) -> (Option<Config>, Vec<ConfigProblem>, Vec<ConfigProblem>) {
    let mut unknown = Problems::new(path);
    let mut wrong = Problems::new(path);
    let mut kubelet: Option<(KubeletConfiguration, Value)> = None;
    let mut polylet: Option<PolyletConfiguration> = None;
    for document in serde_yaml_ng::Deserializer::from_str(text) {
        let mut value = match Value::deserialize(document) {
            Ok(value) => value,
            Err(error) => {
                wrong.add("", format!("not YAML: {error}"));
                break;
            }
        };
        if value.is_null() {
            continue;
        }
        drop_nulls(&mut value);
        let header = |field| value.get(field).and_then(Value::as_str).unwrap_or_default();
        let (version, kind) = (header("apiVersion").to_owned(), header("kind").to_owned());
        let expected = if kind == KUBELET.1 {
            KUBELET.0
        } else if kind == POLYLET.1 {
            POLYLET.0
        } else {
            let allowed = format!("{} and {}", KUBELET.1, POLYLET.1);
            wrong.add(
                "kind",
                format!("{kind:?} is not known here; allowed are {allowed}"),
            );
            continue;
        };
        if version != expected {
            wrong.add(
                "apiVersion",
                format!("{version:?} of a {kind}; allowed is {expected:?}"),
            );
            continue;
        }
        let twice = format!("there is more than one {kind}");
        if kind == KUBELET.1 {
            let parsed = document_of(value.clone(), &mut unknown, &mut wrong);
            if kubelet.is_some() {
                wrong.add("kind", twice);
            }
            kubelet = parsed.map(|parsed| (parsed, value)).or(kubelet);
        } else {
            let parsed = document_of(value, &mut unknown, &mut wrong);
            if polylet.is_some() {
                wrong.add("kind", twice);
            }
            polylet = parsed.or(polylet);
        }
    }
    let (mut kubelet, given) = kubelet.unwrap_or_default();
    kubelet.fill_in(|field| given.get(field).is_some());
    let polylet = polylet.unwrap_or_default();
    allowed::kubelet(&kubelet, &mut wrong);
    gates::check(&kubelet, &mut wrong);
    gates::fields(&kubelet, |field| given.get(field).is_some(), &mut wrong);
    gates::spread(&mut kubelet.feature_gates);
    allowed::polylet(&polylet, &mut wrong);
    let config = Config {
        kubelet,
        polylet,
        warnings: Vec::new(),
        path: path.to_owned(),
    };
    (Some(config), unknown.found, wrong.found)
}

/// One document; its unknown fields and what is wrong with it go to the lists.
fn document_of<T: DeserializeOwned>(
    mut value: Value,
    unknown: &mut Problems,
    wrong: &mut Problems,
) -> Option<T> {
    if let Value::Mapping(fields) = &mut value {
        fields.shift_remove("apiVersion");
        fields.shift_remove("kind");
    }
    let mut track = serde_path_to_error::Track::new();
    let tracked = serde_path_to_error::Deserializer::new(value, &mut track);
    let parsed = serde_ignored::deserialize(tracked, |path| {
        unknown.add(&path.to_string(), "no such field".to_owned());
    });
    parsed
        .map_err(|error: serde_yaml_ng::Error| {
            let field = track.path().to_string();
            let field = if field == "." { "" } else { &field };
            wrong.add(field, in_words(&error.to_string()));
        })
        .ok()
}

/// An explicit null means that the field was not given.
fn drop_nulls(value: &mut Value) {
    match value {
        Value::Mapping(fields) => {
            fields.retain(|_, value| !value.is_null());
            fields.values_mut().for_each(drop_nulls);
        }
        Value::Sequence(items) => items.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

/// serde names Rust's types; people want to know what is allowed.
fn in_words(message: &str) -> String {
    let mut text = message.to_owned();
    for (name, words) in [
        ("expected u16", "allowed are numbers from 0 to 65535"),
        ("expected u32", "allowed are numbers from 0 to 4294967295"),
        (
            "expected i32",
            "allowed are numbers from -2147483648 to 2147483647",
        ),
        ("expected i64", "allowed are whole numbers"),
        ("expected usize", "allowed are whole numbers from 0"),
        ("expected f64", "allowed are numbers"),
        ("expected a boolean", "allowed are true and false"),
    ] {
        text = text.replace(name, words);
    }
    text
}
