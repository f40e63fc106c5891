//! Authentication and authorisation in front of every path of the node API.

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::http::header::AUTHORIZATION;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use polylet_kit::report;

use crate::config::Access;
use crate::core::access::{Caller, Verdict, attributes, decide, forbidden};
use crate::reviews::Reviews;

/// What the layer needs.
#[derive(Clone)]
pub(crate) struct Guard {
    pub(crate) access: Access,
    /// Who answers reviews; nobody on a node that stands alone.
    pub(crate) reviews: Option<Reviews>,
}

/// Lets a request through, or answers it with 401, 403 or 500.
pub(crate) async fn guard(State(guard): State<Guard>, request: Request, next: Next) -> Response {
    let certified = request.extensions().get::<Caller>().cloned();
    let caller = match (certified.unwrap_or(Caller::Anonymous), token(&request)) {
        (Caller::Anonymous, Some(token)) => match guard.by_token(&token).await {
            Some(caller) => caller,
            None => return unauthorized(),
        },
        (caller, _) => caller,
    };
    let attributes = attributes(request.method().as_str(), request.uri().path());
    let user = match decide(guard.access.mode, guard.access.anonymous, &caller) {
        Verdict::Allow => return next.run(request).await,
        Verdict::Unauthorized => return unauthorized(),
        Verdict::Ask(user) => user,
    };
    let refused = forbidden(&user, &attributes);
    let Some(reviews) = guard.reviews else {
        let why = format!(
            "{}: no API server to ask for a review\n",
            refused.trim_end()
        );
        return (StatusCode::FORBIDDEN, why).into_response();
    };
    for subresource in &attributes.subresources {
        match reviews.may(&user, attributes.verb, subresource).await {
            Ok(true) => return next.run(request).await,
            Ok(false) => {}
            Err(error) => {
                tracing::warn!(user = user.name, "{}", report(&error));
                let why = format!(
                    "Authorization error {}",
                    refused.trim_start_matches("Forbidden ")
                );
                return (StatusCode::INTERNAL_SERVER_ERROR, why).into_response();
            }
        }
    }
    (StatusCode::FORBIDDEN, refused).into_response()
}

impl Guard {
    async fn by_token(&self, token: &str) -> Option<Caller> {
        let reviews = self.reviews.as_ref().filter(|_| self.access.tokens)?;
        match reviews.user(token).await {
            Ok(user) => user.map(Caller::Known),
            Err(error) => {
                tracing::warn!("{}", report(&error));
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
