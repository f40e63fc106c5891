//! The query of a log request.

use jiff::{SignedDuration, Timestamp};
use polylet_cri::log::{Options, Streams};

/// What was asked for.
#[derive(Debug)]
pub(crate) struct LogQuery {
    pub(crate) options: Options,
    pub(crate) previous: bool,
}

/// Why a query is refused. Upstream tells the two apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// A value that cannot be read: 400.
    Unreadable(String),
    /// A value that is not allowed: 422.
    Invalid(String),
}

/// Reads a query as upstream does: `tailLines` (or `tail`), `sinceSeconds` or `sinceTime`,
/// `timestamps`, `limitBytes`, `follow`, `previous`, `stream`. What is unknown is ignored.
///
/// # Errors
/// A refusal that names the parameter and what it must be.
pub(crate) fn parse(pairs: &[(String, String)], now: Timestamp) -> Result<LogQuery, Refusal> {
    let get = |name: &str| {
        let pair = pairs.iter().find(|(key, _)| key == name);
        pair.map(|(_, value)| value.as_str())
            .filter(|v| !v.is_empty())
    };
    let unreadable = |name: &str, text: &str, what: &str| {
        Refusal::Unreadable(format!("{name}: {text:?} is {what}"))
    };
    let count = |name: &str, least: i64| match get(name) {
        None => Ok(None),
        Some(text) => match text.parse::<i64>() {
            Err(_) => Err(unreadable(name, text, "not a whole number")),
            Ok(number) if number < least => Err(Refusal::Invalid(format!(
                "{name}: {text:?} must be at least {least}"
            ))),
            Ok(number) => Ok(Some(number.unsigned_abs())),
        },
    };
    let flag = |name: &str| match get(name) {
        None | Some("false" | "0" | "False" | "F" | "f" | "FALSE") => Ok(false),
        Some("true" | "1" | "True" | "T" | "t" | "TRUE") => Ok(true),
        Some(text) => Err(unreadable(name, text, "neither true nor false")),
    };
    let tail = match (get("tailLines"), get("tail")) {
        (Some(_), _) => count("tailLines", 0)?,
        (None, Some("all")) => None,
        (None, _) => count("tail", 0)?,
    };
    let since_time = match get("sinceTime") {
        None => None,
        Some(text) => Some(
            text.parse::<Timestamp>()
                .map_err(|_| unreadable("sinceTime", text, "not a time in RFC 3339"))?,
        ),
    };
    let since_seconds = count("sinceSeconds", 1)?;
    if since_time.is_some() && since_seconds.is_some() {
        let why = "at most one of sinceTime and sinceSeconds may be given";
        return Err(Refusal::Invalid(why.to_owned()));
    }
    let since = match since_seconds {
        None => since_time,
        Some(seconds) => {
            let back = SignedDuration::from_secs(i64::try_from(seconds).unwrap_or(i64::MAX));
            Some(now.saturating_sub(back).unwrap_or(Timestamp::MIN))
        }
    };
    let streams = match get("stream") {
        None | Some("All") => Streams::All,
        Some("Stdout") => Streams::Stdout,
        Some("Stderr") => Streams::Stderr,
        Some(text) => {
            return Err(Refusal::Invalid(format!(
                "stream: {text:?} is none of All, Stdout, Stderr"
            )));
        }
    };
    Ok(LogQuery {
        options: Options {
            tail,
            since,
            timestamps: flag("timestamps")?,
            limit_bytes: count("limitBytes", 1)?,
            follow: flag("follow")?,
            streams,
        },
        previous: flag("previous")?,
    })
}
