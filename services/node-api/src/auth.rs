//! Authentication and authorization of every request to the node API.

use std::net::IpAddr;
use std::sync::Arc;

use axum::Extension;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::http::header::{AUTHORIZATION, RETRY_AFTER};
use axum::http::request::Parts;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use polylet_kit::report;

use crate::config::AccessPolicy;
use crate::core::access::{
    AuthDecision, RequestUser, attributes, authorization_error, decide, forbidden,
};
use crate::reviews::{ReviewError, Reviews};
use crate::server::HttpConnection;

/// The state of the middleware.
#[derive(Clone)]
pub(crate) struct Guard {
    pub(crate) access: AccessPolicy,
    /// The API server's reviews; `None` on a standalone node.
    pub(crate) reviews: Option<Reviews>,
}

/// Passes a request on, or responds with 401, 403, 429 or 500.
pub(crate) async fn guard(
    State(guard): State<Guard>,
    Extension(connection): Extension<Arc<HttpConnection>>,
    request: Request,
    next: Next,
) -> Response {
    let (parts, body) = request.into_parts();
    match guard.check(&parts, connection.address()).await {
        Ok(()) => {
            connection.trust();
            next.run(Request::from_parts(parts, body)).await
        }
        Err(response) => response,
    }
}

impl Guard {
    /// Whether a client may make this request; otherwise the response that says why not.
    async fn check(&self, request: &Parts, client: IpAddr) -> Result<(), Response> {
        // Of the certificate, which has been verified for this request.
        let certificate_user = request.extensions.get::<RequestUser>().cloned();
        let caller = match (
            certificate_user.unwrap_or(RequestUser::Anonymous),
            token(request),
        ) {
            (RequestUser::Anonymous, Some(token)) => self.authenticate(&token, client).await?,
            (caller, _) => caller,
        };
        let attributes = attributes(request.method.as_str(), request.uri.path());
        let user = match decide(self.access.mode, self.access.anonymous, &caller) {
            AuthDecision::Allow => return Ok(()),
            AuthDecision::Unauthorized => return Err(unauthorized()),
            AuthDecision::Review(user) => user,
        };
        let forbidden = forbidden(&user, &attributes);
        let Some(reviews) = &self.reviews else {
            let message = format!(
                "{}: no API server to review the access\n",
                forbidden.trim_end()
            );
            return Err((StatusCode::FORBIDDEN, message).into_response());
        };
        for subresource in &attributes.subresources {
            let review = reviews.authorize(&user, attributes.verb, subresource, client);
            match review.await {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                Err(error) if matches!(*error, ReviewError::TooMany) => return Err(too_many()),
                Err(error) => {
                    let (name, error) = (&user.name, report(&*error));
                    tracing::warn!(user = name, error, "failed to authorize request");
                    let message = authorization_error(&user, attributes.verb, subresource);
                    return Err((StatusCode::INTERNAL_SERVER_ERROR, message).into_response());
                }
            }
        }
        Err((StatusCode::FORBIDDEN, forbidden).into_response())
    }

    /// The user of a token. Without token reviews nobody reads it, as upstream: the request is anonymous.
    async fn authenticate(&self, token: &str, client: IpAddr) -> Result<RequestUser, Response> {
        if !self.access.token_reviews {
            return Ok(RequestUser::Anonymous);
        }
        let Some(reviews) = &self.reviews else {
            return Err(unauthorized());
        };
        match reviews.authenticate(token, client).await {
            Ok(Some(user)) => Ok(RequestUser::Authenticated(user)),
            Ok(None) => Err(unauthorized()),
            Err(error) if matches!(*error, ReviewError::TooMany) => Err(too_many()),
            Err(error) => {
                tracing::warn!(error = report(&*error), "failed to authenticate request");
                Err(unauthorized())
            }
        }
    }
}

fn token(request: &Parts) -> Option<String> {
    let header = request.headers.get(AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = header.trim().split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then(|| token.to_owned())
}

fn unauthorized() -> Response {
    (StatusCode::UNAUTHORIZED, "Unauthorized").into_response()
}

/// The client may try again: reviews are limited, since each of them is a request to the API server.
fn too_many() -> Response {
    let headers = [(RETRY_AFTER, "1")];
    (StatusCode::TOO_MANY_REQUESTS, headers, "Too many requests").into_response()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::access::{AuthorizationMode, UserInfo};

    #[tokio::test]
    async fn tokens_are_ignored_without_token_reviews() {
        // With token reviews, this standalone node has no API server to ask.
        for (token_reviews, anonymous, token, expected) in [
            (false, true, None, 200),
            (false, true, Some("Bearer abc"), 200),
            (false, false, None, 401),
            (false, false, Some("Bearer abc"), 401),
            (true, true, None, 200),
            (true, true, Some("Bearer abc"), 401),
            (true, false, Some("Bearer abc"), 401),
        ] {
            let guard = Guard {
                access: AccessPolicy {
                    anonymous,
                    mode: AuthorizationMode::AlwaysAllow,
                    token_reviews,
                },
                reviews: None,
            };
            let mut request = axum::http::Request::builder().uri("/pods");
            if let Some(token) = token {
                request = request.header(AUTHORIZATION, token);
            }
            let (mut parts, ()) = request.body(()).unwrap().into_parts();
            let client = IpAddr::from([10, 0, 0, 1]);
            let status = |checked: Result<(), Response>| match checked {
                Ok(()) => 200,
                Err(response) => response.status().as_u16(),
            };
            let case = format!("{token_reviews} {anonymous} {token:?}");
            assert_eq!(
                status(guard.check(&parts, client).await),
                expected,
                "{case}"
            );
            // A certificate counts before a token.
            let user = RequestUser::Authenticated(UserInfo::default());
            parts.extensions.insert(user);
            assert_eq!(status(guard.check(&parts, client).await), 200, "{case}");
        }
    }
}
