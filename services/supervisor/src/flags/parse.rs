//! Words of a command line to settings.

use std::path::PathBuf;

use serde_json::Value;

use super::FlagError;
use super::table::{FLAGS, Flag, Kind, Means};
use super::value;

/// What a command line asks for.
pub(crate) enum Asked {
    Run(Parsed),
    Help,
    Version,
}

/// A value for a field of one of the two documents.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Setting {
    pub(super) flag: &'static Flag,
    pub(super) value: Value,
}

/// A command line that runs the node.
#[derive(Debug, Default)]
pub(crate) struct Parsed {
    /// `--config`.
    pub(crate) config: Option<PathBuf>,
    /// `--config-dir`.
    pub(crate) directory: Option<PathBuf>,
    pub(super) settings: Vec<Setting>,
    /// What people should know about their flags.
    pub(crate) notes: Vec<String>,
}

/// Reads the words after the program's name, or after `run`.
///
/// # Errors
/// At the first flag that is unknown or has a wrong value.
pub(crate) fn parse(words: impl IntoIterator<Item = String>) -> Result<Asked, FlagError> {
    let mut parsed = Parsed::default();
    let mut words = words.into_iter();
    while let Some(word) = words.next() {
        let (name, value) = split(&word)?;
        match name.as_str() {
            "help" | "h" => return Ok(Asked::Help),
            "version" if value.as_deref() == Some("false") => continue,
            "version" => return Ok(Asked::Version),
            _ => {}
        }
        let Some(flag) = FLAGS.iter().find(|flag| flag.name == name) else {
            return Err(FlagError::Unknown {
                near: near(&name),
                name,
            });
        };
        let name = flag.name;
        let value = match (flag.kind, value) {
            (_, Some(value)) => value,
            (Kind::Bool, None) => "true".to_owned(),
            (_, None) => words.next().ok_or(FlagError::NoValue { name })?,
        };
        parsed.take(flag, value)?;
    }
    Ok(Asked::Run(parsed))
}

/// `--name=value`, `--name`, `-v=4`, `-v4`; dashes and underscores are one.
fn split(word: &str) -> Result<(String, Option<String>), FlagError> {
    let unexpected = || FlagError::Word(word.to_owned());
    if let Some(flag) = word.strip_prefix("--") {
        let (name, value) = match flag.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (flag, None),
        };
        if name.is_empty() {
            return Err(unexpected());
        }
        return Ok((name.replace('_', "-"), value));
    }
    let short = word.strip_prefix('-').ok_or_else(unexpected)?;
    let mut letters = short.chars();
    let name = letters.next().ok_or_else(unexpected)?.to_string();
    let rest = letters.as_str();
    let rest = rest.strip_prefix('=').unwrap_or(rest);
    Ok((name, (!rest.is_empty()).then(|| rest.to_owned())))
}

impl Parsed {
    fn take(&mut self, flag: &'static Flag, text: String) -> Result<(), FlagError> {
        let name = flag.name;
        match flag.means {
            // Unit files hand on variables that may be empty: what is named so is not given.
            Means::Config => self.config = (!text.is_empty()).then(|| text.into()),
            Means::ConfigDirectory => self.directory = (!text.is_empty()).then(|| text.into()),
            Means::Polylet(_)
                if matches!(flag.kind, Kind::Text | Kind::Name) && text.trim().is_empty() =>
            {
                self.settings.retain(|setting| setting.flag.name != name);
                self.settings.push(Setting {
                    flag,
                    value: Value::Null,
                });
            }
            Means::Nothing(why) => self
                .notes
                .push(format!("--{name} counts for nothing: {why}")),
            Means::Kubelet(field) | Means::Deprecated(field) | Means::Polylet(field) => {
                let value = value::read(flag.kind, &text).map_err(|expected| FlagError::Value {
                    name,
                    value: text,
                    expected,
                })?;
                if matches!(flag.means, Means::Deprecated(_)) {
                    let note =
                        format!("--{name} is deprecated: the configuration's field is {field}");
                    self.notes.push(note);
                }
                // A flag that is given again adds to lists and maps, and replaces all else.
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

/// The known flag that is most like a word, if one is.
fn near(name: &str) -> Option<&'static str> {
    let distances = FLAGS
        .iter()
        .map(|flag| (distance(name, flag.name), flag.name));
    let (distance, nearest) = distances.min()?;
    (distance <= name.len() / 3 + 1).then_some(nearest)
}

/// How many letters have to be changed, added or taken away.
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.chars().count()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut before = i;
        let mut left = i + 1;
        for (place, y) in row.iter_mut().skip(1).zip(b.chars()) {
            let above = *place;
            left = (left + 1).min(above + 1).min(before + usize::from(x != y));
            before = above;
            *place = left;
        }
        if let Some(first) = row.first_mut() {
            *first = i + 1;
        }
    }
    row.last().copied().unwrap_or_default()
}
