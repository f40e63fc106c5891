use std::time::Duration;

use kube::Error;

/// What kind of failure an error of the API server is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// 401: the credentials are not taken.
    Unauthorized,
    /// 403: we may not.
    Forbidden,
    /// 404.
    NotFound,
    /// 409 of a create: there is one of that name.
    AlreadyExists,
    /// 409: what we meant to change has changed, or its uid is another's.
    Conflict,
    /// 410: the resource version is too old.
    Gone,
    /// 400, 413, 422: asking the same again is no use.
    Invalid,
    /// 429, and how long to wait when the server said so.
    Busy(Option<Duration>),
    /// 5xx.
    Broken,
    /// No answer: not reached, timed out, half an answer.
    Unreachable,
}

impl Refusal {
    /// Reads it out of an error.
    pub fn of(error: &Error) -> Refusal {
        let Error::Api(status) = error else {
            return Refusal::Unreachable;
        };
        match status.code {
            401 => Refusal::Unauthorized,
            403 => Refusal::Forbidden,
            404 => Refusal::NotFound,
            409 if status.reason == "AlreadyExists" => Refusal::AlreadyExists,
            409 => Refusal::Conflict,
            410 => Refusal::Gone,
            429 => Refusal::Busy(asked(status)),
            400..=499 => Refusal::Invalid,
            _ => Refusal::Broken,
        }
    }

    /// Whether the same request may succeed later with nothing changed.
    pub fn passes(self) -> bool {
        matches!(
            self,
            Refusal::Busy(_) | Refusal::Broken | Refusal::Unreachable | Refusal::Unauthorized
        )
    }
}

fn asked(status: &kube::core::Status) -> Option<Duration> {
    let seconds = status.details.as_ref()?.retry_after_seconds;
    (seconds > 0).then(|| Duration::from_secs(u64::from(seconds)))
}
