use std::time::Duration;

use kube::Error;

/// The kind of a failed request to the API server, which decides how the caller goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApiErrorKind {
    /// 401: the credentials were rejected.
    Unauthorized,
    /// 403: the node is not authorized for the request.
    Forbidden,
    /// 404: no such object, or no such resource.
    NotFound,
    /// 409 on a create: the name is taken.
    AlreadyExists,
    /// 409: the object has changed since it was read, or its uid is another one.
    Conflict,
    /// 410: the resource version is too old.
    Gone,
    /// 400, 413, 422 and other client errors: the same request will fail again.
    Invalid,
    /// 429, with the server's `Retry-After` if it sent one.
    TooManyRequests(Option<Duration>),
    /// 5xx: the server failed.
    ServerError,
    /// No response: no connection, a timeout, or a truncated response.
    Unreachable,
}

impl ApiErrorKind {
    /// Classifies an error of the client.
    pub fn from_error(error: &Error) -> ApiErrorKind {
        let Error::Api(status) = error else {
            return ApiErrorKind::Unreachable;
        };
        match status.code {
            401 => ApiErrorKind::Unauthorized,
            403 => ApiErrorKind::Forbidden,
            404 => ApiErrorKind::NotFound,
            409 if status.reason == "AlreadyExists" => ApiErrorKind::AlreadyExists,
            409 => ApiErrorKind::Conflict,
            410 => ApiErrorKind::Gone,
            429 => ApiErrorKind::TooManyRequests(retry_after(status)),
            400..=499 => ApiErrorKind::Invalid,
            _ => ApiErrorKind::ServerError,
        }
    }

    /// Whether the same request may succeed later although nothing about it has changed.
    pub fn is_transient(self) -> bool {
        matches!(
            self,
            ApiErrorKind::TooManyRequests(_)
                | ApiErrorKind::ServerError
                | ApiErrorKind::Unreachable
                | ApiErrorKind::Unauthorized
        )
    }

    /// The delay that the server asked for.
    pub fn retry_after(self) -> Option<Duration> {
        match self {
            ApiErrorKind::TooManyRequests(retry_after) => retry_after,
            _ => None,
        }
    }
}

fn retry_after(status: &kube::core::Status) -> Option<Duration> {
    let seconds = status.details.as_ref()?.retry_after_seconds;
    (seconds > 0).then(|| Duration::from_secs(u64::from(seconds)))
}
