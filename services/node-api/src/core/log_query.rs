//! Query parameters of a log request.

use jiff::{SignedDuration, Timestamp};
use polylet_cri::log::{LogOptions, StreamFilter};

/// Parsed query parameters.
#[derive(Debug)]
pub(crate) struct LogQuery {
    pub(crate) options: LogOptions,
    pub(crate) previous: bool,
}

/// Why a query is rejected. Upstream responds to each in another way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum QueryError {
    /// 400: a value cannot be parsed.
    Malformed(String),
    /// 422: a value is not allowed.
    Invalid(String),
    /// 400, with the message: a feature gate is off.
    Disabled(String),
}

/// Parses a query as upstream does. `split_streams` is the feature gate `PodLogsQuerySplitStreams`: one
/// stream alone may be requested. Parameters: `tailLines` (or `tail`), `sinceSeconds` or `sinceTime`,
/// `timestamps`, `limitBytes`, `follow`, `previous`, `stream`. Unknown parameters are ignored.
///
/// # Errors
/// Names the parameter and the expected value.
pub(crate) fn parse(
    pairs: &[(String, String)],
    split_streams: bool,
    now: Timestamp,
) -> Result<LogQuery, QueryError> {
    let get = |name: &str| {
        let pair = pairs.iter().find(|(key, _)| key == name);
        pair.map(|(_, value)| value.as_str())
            .filter(|v| !v.is_empty())
    };
    let malformed = |name: &str, text: &str, what: &str| {
        QueryError::Malformed(format!("{name}: {text:?} is {what}"))
    };
    let count = |name: &str, least: i64| match get(name) {
        None => Ok(None),
        Some(text) => match text.parse::<i64>() {
            Err(_) => Err(malformed(name, text, "not a whole number")),
            Ok(number) if number < least => Err(QueryError::Invalid(format!(
                "{name}: {text:?} must be at least {least}"
            ))),
            Ok(number) => Ok(Some(number.unsigned_abs())),
        },
    };
    let flag = |name: &str| match get(name) {
        None | Some("false" | "0" | "False" | "F" | "f" | "FALSE") => Ok(false),
        Some("true" | "1" | "True" | "T" | "t" | "TRUE") => Ok(true),
        Some(text) => Err(malformed(name, text, "neither true nor false")),
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
                .map_err(|_| malformed("sinceTime", text, "not a time in RFC 3339"))?,
        ),
    };
    let since_seconds = count("sinceSeconds", 1)?;
    if since_time.is_some() && since_seconds.is_some() {
        let message = "at most one of sinceTime and sinceSeconds may be given";
        return Err(QueryError::Invalid(message.to_owned()));
    }
    let since = match since_seconds {
        None => since_time,
        Some(seconds) => {
            let back = SignedDuration::from_secs(i64::try_from(seconds).unwrap_or(i64::MAX));
            Some(now.saturating_sub(back).unwrap_or(Timestamp::MIN))
        }
    };
    let streams = match get("stream") {
        None | Some("All") => StreamFilter::All,
        Some("Stdout") => StreamFilter::Stdout,
        Some("Stderr") => StreamFilter::Stderr,
        Some(text) => {
            return Err(QueryError::Invalid(format!(
                "stream: {text:?} is none of All, Stdout, Stderr"
            )));
        }
    };
    if streams != StreamFilter::All {
        if tail.is_some() {
            let message = "`tailLines` and specific `stream` are mutually exclusive for now";
            return Err(QueryError::Invalid(message.to_owned()));
        }
        if !split_streams {
            return Err(QueryError::Disabled(format!(
                "unable to return the given log stream: {:?}. Please enable \
                 PodLogsQuerySplitStreams feature gate in kubelet",
                get("stream").unwrap_or_default()
            )));
        }
    }
    Ok(LogQuery {
        options: LogOptions {
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
