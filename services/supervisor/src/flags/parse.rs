//! Arguments to settings.

use std::path::PathBuf;

use serde_json::Value;

use super::FlagError;
use super::table::{FLAGS, Flag, FlagEffect, FlagKind};
use super::value;
use crate::backend::BackendKind;

/// A parsed command line.
pub(crate) enum ParsedArgs {
    Run(RunArgs),
    Help,
    Version,
}

/// The value of a flag that sets a field.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Setting {
    pub(super) flag: &'static Flag,
    pub(super) value: Value,
}

/// The arguments of `polylet run`.
#[derive(Debug, Default)]
pub(crate) struct RunArgs {
    /// `--config`.
    pub(crate) config: Option<PathBuf>,
    /// `--config-dir`.
    pub(crate) directory: Option<PathBuf>,
    /// `--backend`, which is not a flag of the kubelet.
    pub(crate) backend: BackendKind,
    pub(super) settings: Vec<Setting>,
    /// Warnings about deprecated and ignored flags.
    pub(crate) warnings: Vec<String>,
}

/// Parses the arguments after the program's name, or after `run`.
///
/// # Errors
/// For the first flag that is unknown or has an invalid value.
pub(crate) fn parse(args: impl IntoIterator<Item = String>) -> Result<ParsedArgs, FlagError> {
    let mut parsed = RunArgs::default();
    let mut args = args.into_iter();
    while let Some(arg) = args.next() {
        let (name, value) = split(&arg)?;
        match name.as_str() {
            "help" | "h" => return Ok(ParsedArgs::Help),
            "version" if value.as_deref() == Some("false") => continue,
            "version" => return Ok(ParsedArgs::Version),
            "backend" => {
                let value = value.or_else(|| args.next());
                parsed.backend = backend(value.ok_or(FlagError::NoValue { name: "backend" })?)?;
                continue;
            }
            _ => {}
        }
        let Some(flag) = FLAGS.iter().find(|flag| flag.name == name) else {
            return Err(FlagError::Unknown {
                similar: similar(&name),
                name,
            });
        };
        let name = flag.name;
        let value = match (flag.kind, value) {
            (_, Some(value)) => value,
            (FlagKind::Bool, None) => "true".to_owned(),
            (_, None) => args.next().ok_or(FlagError::NoValue { name })?,
        };
        parsed.set(flag, value)?;
    }
    Ok(ParsedArgs::Run(parsed))
}

fn backend(value: String) -> Result<BackendKind, FlagError> {
    match value.as_str() {
        "child" => Ok(BackendKind::Child),
        "systemd" => Ok(BackendKind::Systemd),
        "external" => Ok(BackendKind::External),
        _ => Err(FlagError::Value {
            name: "backend",
            value,
            expected: "expected child, systemd or external".to_owned(),
        }),
    }
}

/// Splits `--name=value`, `--name`, `-v=4` or `-v4`; underscores are dashes.
fn split(arg: &str) -> Result<(String, Option<String>), FlagError> {
    let unexpected = || FlagError::Argument(arg.to_owned());
    if let Some(flag) = arg.strip_prefix("--") {
        let (name, value) = match flag.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (flag, None),
        };
        if name.is_empty() {
            return Err(unexpected());
        }
        return Ok((name.replace('_', "-"), value));
    }
    let short = arg.strip_prefix('-').ok_or_else(unexpected)?;
    let mut letters = short.chars();
    let name = letters.next().ok_or_else(unexpected)?.to_string();
    let rest = letters.as_str();
    let rest = rest.strip_prefix('=').unwrap_or(rest);
    Ok((name, (!rest.is_empty()).then(|| rest.to_owned())))
}

impl RunArgs {
    fn set(&mut self, flag: &'static Flag, text: String) -> Result<(), FlagError> {
        let name = flag.name;
        match flag.effect {
            // Variables in unit files may be empty: such a flag is unset.
            FlagEffect::Config => self.config = (!text.is_empty()).then(|| text.into()),
            FlagEffect::ConfigDirectory => self.directory = (!text.is_empty()).then(|| text.into()),
            FlagEffect::Polylet(_)
                if matches!(flag.kind, FlagKind::Text | FlagKind::Name)
                    && text.trim().is_empty() =>
            {
                self.settings.retain(|setting| setting.flag.name != name);
                self.settings.push(Setting {
                    flag,
                    value: Value::Null,
                });
            }
            FlagEffect::Ignored(reason) => {
                self.warnings.push(format!("--{name} is ignored: {reason}"))
            }
            FlagEffect::Kubelet(field)
            | FlagEffect::Deprecated(field)
            | FlagEffect::Polylet(field) => {
                let value =
                    value::parse(flag.kind, &text).map_err(|expected| FlagError::Value {
                        name,
                        value: text,
                        expected,
                    })?;
                if matches!(flag.effect, FlagEffect::Deprecated(_)) {
                    self.warnings.push(format!(
                        "--{name} is deprecated; set {field} in the configuration file"
                    ));
                }
                // A repeated flag extends lists and maps, and replaces other values.
                match self
                    .settings
                    .iter_mut()
                    .find(|setting| setting.flag.name == name)
                {
                    Some(setting) => value::add(&mut setting.value, value),
                    None => self.settings.push(Setting { flag, value }),
                }
            }
        }
        Ok(())
    }
}

/// The most similar flag, if any is.
fn similar(name: &str) -> Option<&'static str> {
    let distances = FLAGS
        .iter()
        .map(|flag| (distance(name, flag.name), flag.name));
    let (distance, nearest) = distances.min()?;
    (distance <= name.len() / 3 + 1).then_some(nearest)
}

/// The Levenshtein distance.
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.chars().count()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut before = i;
        let mut left = i + 1;
        for (cell, y) in row.iter_mut().skip(1).zip(b.chars()) {
            let above = *cell;
            left = (left + 1).min(above + 1).min(before + usize::from(x != y));
            before = above;
            *cell = left;
        }
        if let Some(first) = row.first_mut() {
            *first = i + 1;
        }
    }
    row.last().copied().unwrap_or_default()
}
