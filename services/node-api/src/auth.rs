//! Authentication and authorisation in front of every path of the node API.

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::config::Access;
use crate::core::access::{Caller, Verdict, attributes, decide};

/// What the layer needs.
#[derive(Clone)]
pub(crate) struct Guard {
    pub(crate) access: Access,
    pub(crate) node: String,
}

/// Lets a request through, or answers it with 401 or 403.
pub(crate) async fn guard(State(guard): State<Guard>, request: Request, next: Next) -> Response {
    let caller = request
        .extensions()
        .get::<Caller>()
        .cloned()
        .unwrap_or(Caller::Anonymous);
    let attributes = attributes(request.method().as_str(), request.uri().path());
    let (mode, anonymous) = (guard.access.mode, guard.access.anonymous);
    match decide(mode, anonymous, &caller, &guard.node, &attributes) {
        Verdict::Allow => next.run(request).await,
        Verdict::Unauthorized => (StatusCode::UNAUTHORIZED, "Unauthorized").into_response(),
        Verdict::Forbidden(why) => (StatusCode::FORBIDDEN, why).into_response(),
    }
}
