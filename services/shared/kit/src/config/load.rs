use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_yaml_ng::Value;

use super::problems::{ConfigProblem, Problems};
use super::unsupported;
use super::{Config, KubeletConfiguration, PolyletConfiguration};
use super::{gates, validate};

const KUBELET: (&str, &str) = ("kubelet.config.k8s.io/v1beta1", "KubeletConfiguration");
const POLYLET: (&str, &str) = ("polylet.dev/v1alpha1", "PolyletConfiguration");

/// Files beyond this size are not configuration.
const MAX_BYTES: u64 = 1 << 20;

/// Why the configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("reading the configuration {path}")]
    Read {
        /// The configuration file.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: std::io::Error,
    },
    /// The content is invalid; all errors, at least one.
    #[error("{}", joined(.0))]
    Invalid(Vec<ConfigProblem>),
}

fn joined(problems: &[ConfigProblem]) -> String {
    problems
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join("\n")
}

/// Reads the configuration as a node does at start: invalid values are errors, unknown fields
/// warnings.
pub fn load(path: &Path) -> Result<Config, ConfigError> {
    let text = read(path)?;
    from_text(path, &text)
}

/// The same for a text that was read already.
pub fn from_text(path: &Path, text: &str) -> Result<Config, ConfigError> {
    let (config, unknown, errors) = parse(path, text);
    match config {
        Some(mut config) if errors.is_empty() => {
            let unknown = unknown.iter().map(ToString::to_string);
            config.warnings = unknown.chain(config.warnings).collect();
            Ok(config)
        }
        _ => Err(ConfigError::Invalid(errors)),
    }
}

/// Reads the configuration strictly: returns all errors and unknown fields.
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
            let (_, unknown, errors) = parse(path, &text);
            unknown.into_iter().chain(errors).collect()
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

/// The configuration as far as it can be parsed, with warnings about settings without effect; its unknown
/// fields; and its errors.
fn parse(path: &Path, text: &str) -> (Option<Config>, Vec<ConfigProblem>, Vec<ConfigProblem>) {
    let mut unknown = Problems::new(path);
    let mut errors = Problems::new(path);
    let mut kubelet: Option<(KubeletConfiguration, Value)> = None;
    let mut polylet: Option<PolyletConfiguration> = None;
    for document in serde_yaml_ng::Deserializer::from_str(text) {
        let mut value = match Value::deserialize(document) {
            Ok(value) => value,
            Err(error) => {
                errors.add("", format!("not YAML: {error}"));
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
            errors.add(
                "kind",
                format!("unknown kind {kind:?}; allowed are {allowed}"),
            );
            continue;
        };
        if version != expected {
            errors.add(
                "apiVersion",
                format!("{version:?} of a {kind}; allowed is {expected:?}"),
            );
            continue;
        }
        let duplicate = format!("more than one {kind}");
        if kind == KUBELET.1 {
            let parsed = parse_document(value.clone(), &mut unknown, &mut errors);
            if kubelet.is_some() {
                errors.add("kind", duplicate);
            }
            kubelet = parsed.map(|parsed| (parsed, value)).or(kubelet);
        } else {
            let parsed = parse_document(value, &mut unknown, &mut errors);
            if polylet.is_some() {
                errors.add("kind", duplicate);
            }
            polylet = parsed.or(polylet);
        }
    }
    let (mut kubelet, given) = kubelet.unwrap_or_default();
    kubelet.fill_in(|field| given.get(field).is_some());
    let polylet = polylet.unwrap_or_default();
    validate::kubelet(&kubelet, &mut errors);
    gates::check(&kubelet, &mut errors);
    gates::fields(&kubelet, |field| given.get(field).is_some(), &mut errors);
    gates::apply_all_alpha_beta(&mut kubelet.feature_gates);
    validate::polylet(&polylet, &mut errors);
    let config = Config {
        warnings: unsupported::warnings(&kubelet, |field| given.get(field).is_some()),
        kubelet,
        polylet,
        path: path.to_owned(),
    };
    (Some(config), unknown.found, errors.found)
}

/// Parses one document; unknown fields and errors go to the lists.
fn parse_document<T: DeserializeOwned>(
    mut value: Value,
    unknown: &mut Problems,
    errors: &mut Problems,
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
            errors.add(field, user_message(&error.to_string()));
        })
        .ok()
}

/// An explicit null is the same as a missing field.
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

/// Replaces the names of Rust types in serde's errors by the allowed values.
fn user_message(message: &str) -> String {
    let mut text = message.to_owned();
    for (name, allowed) in [
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
        text = text.replace(name, allowed);
    }
    text
}
