//! Authentication and authorization of every request to the node API.

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::http::header::AUTHORIZATION;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use polylet_kit::report;

use crate::config::AccessPolicy;
use crate::core::access::{AuthDecision, RequestUser, attributes, decide, forbidden};
use crate::reviews::Reviews;

/// The state of the middleware.
#[derive(Clone)]
pub(crate) struct Guard {
    pub(crate) access: AccessPolicy,
    /// The API server's reviews; `None` on a standalone node.
    pub(crate) reviews: Option<Reviews>,
}

/// Passes a request on, or responds with 401, 403 or 500.
pub(crate) async fn guard(State(guard): State<Guard>, request: Request, next: Next) -> Response {
    let certificate_caller = request.extensions().get::<RequestUser>().cloned();
    let caller = match (
        certificate_caller.unwrap_or(RequestUser::Anonymous),
        token(&request),
    ) {
        (RequestUser::Anonymous, Some(token)) => match guard.authenticate(&token).await {
            Some(caller) => caller,
            None => return unauthorized(),
        },
        (caller, _) => caller,
    };
    let attributes = attributes(request.method().as_str(), request.uri().path());
    let user = match decide(guard.access.mode, guard.access.anonymous, &caller) {
        AuthDecision::Allow => return next.run(request).await,
        AuthDecision::Unauthorized => return unauthorized(),
        AuthDecision::Review(user) => user,
    };
    let forbidden = forbidden(&user, &attributes);
    let Some(reviews) = guard.reviews else {
        let message = format!(
            "{}: no API server to review the access\n",
            forbidden.trim_end()
        );
        return (StatusCode::FORBIDDEN, message).into_response();
    };
    for subresource in &attributes.subresources {
        match reviews.authorize(&user, attributes.verb, subresource).await {
            Ok(true) => return next.run(request).await,
            Ok(false) => {}
            Err(error) => {
                tracing::warn!(
                    user = user.name,
                    error = report(&error),
                    "failed to authorize request"
                );
                let message = format!(
                    "Authorization error {}",
                    forbidden.trim_start_matches("Forbidden ")
                );
                return (StatusCode::INTERNAL_SERVER_ERROR, message).into_response();
            }
        }
    }
    (StatusCode::FORBIDDEN, forbidden).into_response()
}

impl Guard {
    async fn authenticate(&self, token: &str) -> Option<RequestUser> {
        let reviews = self
            .reviews
            .as_ref()
            .filter(|_| self.access.token_reviews)?;
        match reviews.authenticate(token).await {
            Ok(user) => user.map(RequestUser::Authenticated),
            Err(error) => {
                tracing::warn!(error = report(&error), "failed to authenticate request");
                None
            }
        }
    }
}

fn token(request: &Request) -> Option<String> {
    let header = request.headers().get(AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = header.trim().split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then(|| token.to_owned())
}

fn unauthorized() -> Response {
    (StatusCode::UNAUTHORIZED, "Unauthorized").into_response()
}
