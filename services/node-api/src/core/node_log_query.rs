//! Queries of the node's logs (`/logs/?query=…`): parsed and validated as upstream, with its messages.

use jiff::Timestamp;
use jiff::civil::DateTime;
use regex_syntax::ast::{ErrorKind, parse::Parser};

const MAX_TAIL_LINES: i64 = 100_000;
const MAX_SERVICE_LENGTH: usize = 256;
const MAX_SERVICES: usize = 4;

/// What is asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NodeLogQuery {
    /// Units of the journal, or names of log files.
    pub(crate) services: Vec<String>,
    /// Paths below the directory of logs.
    pub(crate) files: Vec<String>,
    pub(crate) options: Options,
}

/// What is shown of a service's log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Options {
    since: Option<Time>,
    until: Option<Time>,
    tail_lines: Option<i64>,
    boot: Option<i64>,
    pattern: String,
}

/// A time as it was given, and what it means.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Time {
    text: String,
    instant: Timestamp,
    /// Without its offset, as upstream passes it to `journalctl`.
    civil: DateTime,
}

impl Time {
    /// A time in RFC 3339.
    fn parse(text: &str) -> Option<Self> {
        let has_t = text.as_bytes().get(10) == Some(&b'T');
        Some(Self {
            instant: text.parse().ok().filter(|_| has_t)?,
            civil: text.get(..19)?.parse().ok()?,
            text: text.to_owned(),
        })
    }

    fn argument(&self) -> String {
        self.civil.strftime("%Y-%-m-%-d %-H:%-M:%-S").to_string()
    }
}

/// Parses the parameters of a request; `None` for one that queries nothing, but names a file by its path.
///
/// # Errors
/// The message of status 400: a value cannot be parsed.
pub(crate) fn parse(pairs: &[(String, String)]) -> Result<Option<NodeLogQuery>, String> {
    let mut errors = Vec::new();
    let mut query = NodeLogQuery::default();
    let values = pairs.iter().filter(|(name, _)| name == "query");
    let values: Vec<_> = values.map(|(_, value)| value.as_str()).collect();
    for value in &values {
        if value.contains(['/', '\\']) {
            query.files.push((*value).to_owned());
        } else if !value.trim().is_empty() {
            query.services.push((*value).to_owned());
        }
    }
    if !values.is_empty() && query.files.is_empty() && query.services.is_empty() {
        errors.push(invalid("query", &json(&values), "may not be empty"));
    }
    let get = |name: &str| {
        let pair = pairs.iter().find(|(key, _)| key == name);
        pair.map(|(_, value)| value.as_str())
            .filter(|value| !value.is_empty())
    };
    let mut time = |name: &str| {
        let text = get(name)?;
        let time = Time::parse(text);
        if time.is_none() {
            errors.push(invalid(name, &json(text), "invalid time format"));
        }
        time
    };
    query.options.since = time("sinceTime");
    query.options.until = time("untilTime");
    let mut number = |name: &str| {
        let text = get(name)?;
        let number = number(text);
        number
            .map_err(|error| errors.push(invalid(name, &json(text), &error)))
            .ok()
    };
    query.options.boot = number("boot");
    query.options.tail_lines = number("tailLines");
    query.options.pattern = get("pattern").unwrap_or_default().to_owned();
    if !errors.is_empty() {
        return Err(aggregate(errors));
    }
    Ok(Some(query).filter(|query| *query != NodeLogQuery::default()))
}

/// As Go's `strconv.Atoi`.
fn number(text: &str) -> Result<i64, String> {
    use std::num::IntErrorKind::{NegOverflow, PosOverflow};
    text.parse().map_err(|error: std::num::ParseIntError| {
        let why = match error.kind() {
            PosOverflow | NegOverflow => "value out of range",
            _ => "invalid syntax",
        };
        format!("strconv.Atoi: parsing {}: {why}", json(text))
    })
}

impl NodeLogQuery {
    /// Whether upstream serves the query. `stat` is asked for the one file: why it cannot be served.
    ///
    /// # Errors
    /// The message of status 406.
    pub(crate) fn validate(
        &self,
        stat: impl FnOnce(&str) -> Result<(), String>,
    ) -> Result<(), String> {
        let mut errors = self.service_errors();
        let has_options = self.options != Options::default();
        match (self.files.as_slice(), self.services.is_empty()) {
            ([], true) => {
                errors.push("query: Required value: cannot be empty with options".to_owned());
            }
            ([], false) => {}
            (files, false) => {
                let value = format!("[{}], [{}]", files.join(" "), self.services.join(" "));
                let why = "cannot specify a file and service";
                errors.push(invalid("query", &json(&value), why));
            }
            ([file], true) => {
                let why = if has_options {
                    Err("cannot specify file with options".to_owned())
                } else {
                    stat(file)
                };
                if let Err(why) = why {
                    errors.push(invalid("query", &json(&self.files), &why));
                }
            }
            (files, true) => {
                let why = "cannot specify more than one file";
                errors.push(invalid("query", &json(files), why));
            }
        }
        errors.extend(self.options.errors());
        if errors.is_empty() {
            return Ok(());
        }
        Err(aggregate(errors))
    }

    fn service_errors(&self) -> Vec<String> {
        let mut errors = Vec::new();
        for service in &self.services {
            let is_safe = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:@".contains(&byte);
            let why = if service.len() > MAX_SERVICE_LENGTH {
                format!("length must be less than {MAX_SERVICE_LENGTH}")
            } else if !service.bytes().all(is_safe) {
                "input contains unsupported characters".to_owned()
            } else {
                continue;
            };
            errors.push(invalid("query", &json(service), &why));
        }
        let count = self.services.len();
        if count > MAX_SERVICES {
            errors.push(format!(
                "query: Too many: {count}: must have at most {MAX_SERVICES} items"
            ));
        }
        errors
    }

    /// Whether options were given: files have none.
    pub(crate) fn has_options(&self) -> bool {
        self.options != Options::default()
    }
}

impl Options {
    fn errors(&self) -> Vec<String> {
        let mut errors = Vec::new();
        if let (Some(since), Some(until)) = (&self.since, &self.until)
            && since.instant > until.instant
        {
            let value = json(&until.text);
            errors.push(invalid("untilTime", &value, "must be after `sinceTime`"));
        }
        if let Some(boot) = self.boot.filter(|boot| *boot > 0) {
            errors.push(invalid("boot", &boot.to_string(), "must be less than 1"));
        }
        if let Some(lines) = self.tail_lines
            && !(0..=MAX_TAIL_LINES).contains(&lines)
        {
            let why = format!("must be between 0 and {MAX_TAIL_LINES}, inclusive");
            errors.push(invalid("tailLines", &lines.to_string(), &why));
        }
        if let Err(error) = Parser::new().parse(&self.pattern) {
            let why = pattern_error(&self.pattern, &error);
            errors.push(invalid("pattern", &json(&self.pattern), &why));
        }
        errors
    }

    /// The arguments of `journalctl`. Each value is part of its option's argument, so that none is read as an
    /// option.
    pub(crate) fn arguments(&self, services: &[String]) -> Vec<String> {
        let mut arguments = ["--utc", "--no-pager", "--output=short-precise"]
            .map(str::to_owned)
            .to_vec();
        let since = self.since.as_ref();
        arguments.extend(since.map(|time| format!("--since={}", time.argument())));
        let until = self.until.as_ref();
        arguments.extend(until.map(|time| format!("--until={}", time.argument())));
        if let Some(lines) = self.tail_lines {
            arguments.push("--pager-end".to_owned());
            arguments.push(format!("--lines={lines}"));
        }
        arguments.extend(services.iter().map(|service| format!("--unit={service}")));
        if !self.pattern.is_empty() {
            arguments.push(format!("--grep={}", self.pattern));
        }
        arguments.extend(self.boot.map(|boot| format!("--boot={boot}")));
        arguments
    }
}

/// What Go says of the commonest errors; other errors are described in the parser's words.
fn pattern_error(pattern: &str, error: &regex_syntax::ast::Error) -> String {
    let rest = pattern.get(error.span().start.offset..).unwrap_or_default();
    let why = match error.kind() {
        ErrorKind::GroupUnclosed => format!("missing closing ): `{pattern}`"),
        ErrorKind::GroupUnopened => format!("unexpected ): `{pattern}`"),
        ErrorKind::ClassUnclosed => format!("missing closing ]: `{rest}`"),
        ErrorKind::EscapeUnexpectedEof => "trailing backslash at end of expression: ``".to_owned(),
        kind => format!("{kind}: `{rest}`"),
    };
    format!("error parsing regexp: {why}")
}

fn invalid(field: &str, value: &str, why: &str) -> String {
    format!("{field}: Invalid value: {value}: {why}")
}

fn json(value: &(impl serde::Serialize + ?Sized)) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

/// Several errors as one text, each once.
fn aggregate(errors: Vec<String>) -> String {
    let mut once: Vec<String> = Vec::new();
    for error in errors {
        if !once.contains(&error) {
            once.push(error);
        }
    }
    match once.as_slice() {
        [error] => error.clone(),
        errors => format!("[{}]", errors.join(", ")),
    }
}

#[cfg(test)]
#[path = "node_log_query_tests.rs"]
mod tests;
