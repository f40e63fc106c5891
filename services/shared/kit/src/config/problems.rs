use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::go_duration;
use super::load::ConfigProblem;

/// Problems of one file, in the order found.
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

    pub(super) fn wrong(&mut self, field: &str, value: impl Display, allowed: &str) {
        self.add(field, format!("{value} is not allowed; {allowed}"));
    }

    pub(super) fn at_least<T: PartialOrd + Display>(&mut self, field: &str, value: T, least: T) {
        if value < least {
            let allowed = format!("allowed is {least} or more");
            self.wrong(field, value, &allowed);
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
            self.wrong(field, value, &allowed);
        }
    }

    pub(super) fn one_of(&mut self, field: &str, value: &str, allowed: &[&str]) {
        if !allowed.contains(&value) {
            self.wrong(
                field,
                format!("{value:?}"),
                &format!("allowed are {}", allowed.join(", ")),
            );
        }
    }

    pub(super) fn duration(&mut self, field: &str, value: Duration, from: Duration, to: Duration) {
        if value < from || value > to {
            let [value, from, to] = [value, from, to].map(go_duration::write);
            self.wrong(field, value, &format!("allowed is {from} to {to}"));
        }
    }
}
