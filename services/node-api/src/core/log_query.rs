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

/// The parameters of a query, decoded.
#[derive(Debug, Default)]
struct Parameters<'a> {
    tail: Option<i64>,
    since_seconds: Option<i64>,
    /// `Some(None)` for an empty time, which is none.
    since_time: Option<Option<Timestamp>>,
    limit_bytes: Option<i64>,
    timestamps: bool,
    follow: bool,
    previous: bool,
    stream: Option<&'a str>,
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
    let parameters = decode(pairs)?;
    let tail = at_least("tailLines", parameters.tail, 0)?;
    let limit_bytes = at_least("limitBytes", parameters.limit_bytes, 1)?;
    if parameters.since_time.is_some() && parameters.since_seconds.is_some() {
        let message = "at most one of sinceTime and sinceSeconds may be given";
        return Err(QueryError::Invalid(message.to_owned()));
    }
    let since = match at_least("sinceSeconds", parameters.since_seconds, 1)? {
        None => parameters.since_time.flatten(),
        Some(seconds) => {
            let back = SignedDuration::from_secs(i64::try_from(seconds).unwrap_or(i64::MAX));
            Some(now.saturating_sub(back).unwrap_or(Timestamp::MIN))
        }
    };
    Ok(LogQuery {
        options: LogOptions {
            tail,
            since,
            timestamps: parameters.timestamps,
            limit_bytes,
            follow: parameters.follow,
            streams: streams(parameters.stream, tail.is_some(), split_streams)?,
        },
        previous: parameters.previous,
    })
}

fn decode(pairs: &[(String, String)]) -> Result<Parameters<'_>, QueryError> {
    let get = |name: &str| {
        let pair = pairs.iter().find(|(key, _)| key == name);
        pair.map(|(_, value)| value.as_str())
    };
    let malformed = |name: &str, text: &str, what: &str| {
        QueryError::Malformed(format!("{name}: {text:?} is {what}"))
    };
    let number = |name: &str| {
        let text = get(name);
        let number = text.map(|text| {
            text.parse::<i64>()
                .map_err(|_| malformed(name, text, "not a whole number"))
        });
        number.transpose()
    };
    // Any other value is true, also none: `?follow`.
    let flag = |name: &str| {
        get(name).is_some_and(|text| text != "0" && !text.eq_ignore_ascii_case("false"))
    };
    let tail = match get("tail") {
        None | Some("") => number("tailLines")?,
        Some("all") => None,
        Some(_) => number("tail")?,
    };
    let since_time = match get("sinceTime") {
        None => None,
        Some("" | "null") => Some(None),
        Some(text) => {
            let time = text.parse::<Timestamp>();
            let time = time.map_err(|_| malformed("sinceTime", text, "not a time in RFC 3339"))?;
            Some(Some(time))
        }
    };
    Ok(Parameters {
        tail,
        since_seconds: number("sinceSeconds")?,
        since_time,
        limit_bytes: number("limitBytes")?,
        timestamps: flag("timestamps"),
        follow: flag("follow"),
        previous: flag("previous"),
        stream: get("stream"),
    })
}

fn at_least(name: &str, number: Option<i64>, least: i64) -> Result<Option<u64>, QueryError> {
    match number {
        Some(number) if number < least => Err(QueryError::Invalid(format!(
            "{name}: {number} must be at least {least}"
        ))),
        number => Ok(number.map(i64::unsigned_abs)),
    }
}

fn streams(
    text: Option<&str>,
    with_tail: bool,
    split_streams: bool,
) -> Result<StreamFilter, QueryError> {
    let (filter, name) = match text {
        None | Some("All") => return Ok(StreamFilter::All),
        Some("Stdout") => (StreamFilter::Stdout, "Stdout"),
        Some("Stderr") => (StreamFilter::Stderr, "Stderr"),
        Some(text) => {
            let message = format!("stream: {text:?} is none of All, Stdout, Stderr");
            return Err(QueryError::Invalid(message));
        }
    };
    if with_tail {
        let message = "`tailLines` and specific `stream` are mutually exclusive for now";
        return Err(QueryError::Invalid(message.to_owned()));
    }
    if !split_streams {
        return Err(QueryError::Disabled(format!(
            "unable to return the given log stream: {name:?}. Please enable \
             PodLogsQuerySplitStreams feature gate in kubelet"
        )));
    }
    Ok(filter)
}
