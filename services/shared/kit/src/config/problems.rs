use std::fmt::{self, Display};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::go_duration;

/// An error or warning about one field of the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigProblem {
    /// The configuration file.
    pub file: PathBuf,
    /// Path of the field (`authentication.x509.clientCAFile`); empty for the whole file.
    pub field: String,
    /// The value and the allowed values.
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

/// Problems of one file, in the order they were found.
pub(super) struct Problems {
    file: PathBuf,
    pub(super) found: Vec<ConfigProblem>,
}

impl Problems {
    pub(super) fn new(file: &Path) -> Problems {
        Problems {
            file: file.to_owned(),
            found: Vec::new(),
        }
    }

    pub(super) fn add(&mut self, field: &str, message: String) {
        let (file, field) = (self.file.clone(), field.to_owned());
        self.found.push(ConfigProblem {
            file,
            field,
            message,
        });
    }

    pub(super) fn not_allowed(&mut self, field: &str, value: impl Display, allowed: &str) {
        self.add(field, format!("{value} is not allowed; {allowed}"));
    }

    pub(super) fn at_least<T: PartialOrd + Display>(&mut self, field: &str, value: T, least: T) {
        if value < least {
            let allowed = format!("allowed is {least} or more");
            self.not_allowed(field, value, &allowed);
        }
    }

    pub(super) fn within<T: PartialOrd + Display>(
        &mut self,
        field: &str,
        value: T,
        from: T,
        to: T,
    ) {
        if value < from || value > to {
            let allowed = format!("allowed is {from} to {to}");
            self.not_allowed(field, value, &allowed);
        }
    }

    pub(super) fn one_of(&mut self, field: &str, value: &str, allowed: &[&str]) {
        if !allowed.contains(&value) {
            self.not_allowed(
                field,
                format!("{value:?}"),
                &format!("allowed are {}", allowed.join(", ")),
            );
        }
    }

    pub(super) fn duration(&mut self, field: &str, value: Duration, from: Duration, to: Duration) {
        if value < from || value > to {
            let [value, from, to] = [value, from, to].map(go_duration::format);
            self.not_allowed(field, value, &format!("allowed is {from} to {to}"));
        }
    }
}
