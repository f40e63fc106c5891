//! `/debug/flags/v`: the log verbosity of all services that this one calls, and its own.

use std::sync::Arc;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::header::{CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use futures::FutureExt;
use futures::future::BoxFuture;
use polylet_kit::telemetry;

use crate::core::verbosity;
use crate::service_channels::ServiceChannels;

/// A number; more is none.
const MAX_BODY: usize = 1024;

/// Services that did not accept a verbosity, with the reasons.
type Failures = Vec<(&'static str, String)>;
/// Sets the verbosity of all services.
type Setter = Arc<dyn Fn(u32) -> BoxFuture<'static, Failures> + Send + Sync>;

/// The endpoint.
pub(super) fn router(services: ServiceChannels) -> Router {
    with_setter(Arc::new(move |verbosity| {
        let services = services.clone();
        async move {
            let mut failed = services.set_log_verbosity(verbosity).await;
            if let Err(error) = telemetry::set_verbosity(verbosity) {
                failed.push(("node-api", polylet_kit::report(&error)));
            }
            failed
        }
        .boxed()
    }))
}

fn with_setter(setter: Setter) -> Router {
    Router::new()
        .route("/debug/flags/v", any(set))
        .with_state(setter)
}

async fn set(State(setter): State<Setter>, request: Request) -> Response {
    if request.method() != Method::PUT {
        return text(StatusCode::NOT_ACCEPTABLE, "unsupported http method");
    }
    let body = match read(request.into_body()).await {
        Ok(body) => body,
        Err(message) => return text(StatusCode::BAD_REQUEST, &message),
    };
    let verbosity = match verbosity::parse(&body) {
        Ok(verbosity) => verbosity,
        Err(message) => return text(StatusCode::BAD_REQUEST, &message),
    };
    let failed = setter(verbosity).await;
    if failed.is_empty() {
        text(StatusCode::OK, &verbosity::is_set(&body))
    } else {
        let message = verbosity::is_partly_set(&body, &failed);
        text(StatusCode::INTERNAL_SERVER_ERROR, &message)
    }
}

async fn read(body: Body) -> Result<String, String> {
    let bytes = to_bytes(body, MAX_BODY)
        .await
        .map_err(|error| format!("error reading request body: {error}"))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn text(code: StatusCode, message: &str) -> Response {
    let headers = [
        (CONTENT_TYPE, "text/plain"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    (code, headers, format!("{message}\n")).into_response()
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use tower::ServiceExt;

    use super::*;

    /// The response, and the verbosities that were set.
    async fn send(method: &str, path: &str, body: &str, fail: bool) -> (u16, String, Vec<u32>) {
        let request = Request::builder().method(method).uri(path);
        let request = request.body(Body::from(body.to_owned())).unwrap();
        let set = Arc::new(Mutex::new(Vec::new()));
        let recorded = Arc::clone(&set);
        let setter: Setter = Arc::new(move |verbosity| {
            recorded.lock().unwrap().push(verbosity);
            let failed = fail.then(|| ("pleg", "no answer".to_owned()));
            std::future::ready(failed.into_iter().collect()).boxed()
        });
        let response = with_setter(setter).oneshot(request).await.unwrap();
        let code = response.status().as_u16();
        if code != 404 {
            assert_eq!(response.headers()[X_CONTENT_TYPE_OPTIONS], "nosniff");
            assert_eq!(response.headers()[CONTENT_TYPE], "text/plain");
        }
        let body = to_bytes(response.into_body(), 10_000).await.unwrap();
        let set = set.lock().unwrap().clone();
        (code, String::from_utf8(body.to_vec()).unwrap(), set)
    }

    #[tokio::test]
    async fn responses_are_upstreams() {
        let path = "/debug/flags/v";
        let message = "successfully set klog.logging.verbosity to 4\n";
        let expected = (200, message.to_owned(), vec![4]);
        assert_eq!(send("PUT", path, "4", false).await, expected);
        for method in ["GET", "POST", "DELETE"] {
            let refused = (406, "unsupported http method\n".to_owned(), vec![]);
            assert_eq!(send(method, path, "4", false).await, refused, "{method}");
        }
        let refused = "strconv.ParseUint: parsing \"debug\": invalid syntax\n";
        let refused = (400, refused.to_owned(), vec![]);
        assert_eq!(send("PUT", path, "debug", false).await, refused);
        let (code, message, set) = send("PUT", path, &"1".repeat(MAX_BODY + 1), false).await;
        assert_eq!((code, set), (400, vec![]));
        assert!(
            message.starts_with("error reading request body: "),
            "{message}"
        );
        assert_eq!(send("PUT", "/debug/flags/v/", "4", false).await.0, 404);
    }

    #[tokio::test]
    async fn services_without_the_verbosity_are_named() {
        let message =
            "failed set klog.logging.verbosity 4 in pleg (no answer); the other services have it\n";
        let expected = (500, message.to_owned(), vec![4]);
        assert_eq!(send("PUT", "/debug/flags/v", "4", true).await, expected);
    }
}
