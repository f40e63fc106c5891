//! The query of a log request.

use jiff::{SignedDuration, Timestamp};
use polylet_cri::log::{Options, Streams};

/// What was asked for.
#[derive(Debug)]
pub(crate) struct LogQuery {
    pub(crate) options: Options,
    pub(crate) previous: bool,
}

/// Reads a query as upstream does: `tailLines` (or `tail`), `sinceSeconds` or `sinceTime`,
/// `timestamps`, `limitBytes`, `follow`, `previous`, `stream`. What is unknown is ignored.
///
/// # Errors
/// A sentence that names the parameter and what it must be.
pub(crate) fn parse(pairs: &[(String, String)], now: Timestamp) -> Result<LogQuery, String> {
    let get = |name: &str| {
        let pair = pairs.iter().find(|(key, _)| key == name);
        pair.map(|(_, value)| value.as_str())
            .filter(|v| !v.is_empty())
    };
    let count = |name: &str, least: u64| match get(name) {
        None => Ok(None),
        Some(text) => match text.parse::<u64>() {
            Ok(number) if number >= least => Ok(Some(number)),
            _ => Err(format!(
                "{name}: {text:?} is not a whole number of at least {least}"
            )),
        },
    };
    let flag = |name: &str| match get(name) {
        None | Some("false" | "0" | "False" | "F" | "f" | "FALSE") => Ok(false),
        Some("true" | "1" | "True" | "T" | "t" | "TRUE") => Ok(true),
        Some(text) => Err(format!("{name}: {text:?} is neither true nor false")),
    };
    let tail = match get("tailLines").or(get("tail")) {
        None | Some("all") => None,
        Some(text) => Some(
            text.parse::<u64>()
                .map_err(|_| format!("tailLines: {text:?} is not a whole number of at least 0"))?,
        ),
    };
    let since_time = match get("sinceTime") {
        None => None,
        Some(text) => Some(
            text.parse::<Timestamp>()
                .map_err(|_| format!("sinceTime: {text:?} is not a time in RFC 3339"))?,
        ),
    };
    let since_seconds = count("sinceSeconds", 1)?;
    if since_time.is_some() && since_seconds.is_some() {
        return Err("at most one of sinceTime and sinceSeconds may be given".to_owned());
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
        Some(text) => return Err(format!("stream: {text:?} is none of All, Stdout, Stderr")),
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
