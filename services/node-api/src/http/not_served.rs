//! Responses where nothing is served, as upstream's routers give them. Unlike there, only after the request
//! was authorized.

use axum::Router;
use axum::extract::Request;
use axum::http::header::{ALLOW, CONTENT_TYPE, LOCATION, X_CONTENT_TYPE_OPTIONS};
use axum::http::{HeaderValue, Method, StatusCode, Uri};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};

use crate::core::not_served::{allowed, is_of_framework, not_found, redirect};

const PLAIN_TEXT: &str = "text/plain; charset=utf-8";
/// As Go's `http.Error` sets it.
pub(crate) const NO_SNIFF: HeaderValue = HeaderValue::from_static("nosniff");

/// A router that answers as upstream where it serves nothing.
pub(crate) fn with_upstream_answers(router: Router) -> Router {
    let inner = router.fallback(missing);
    // A layer of the router itself would run after the choice of the method.
    Router::new().fallback_service(inner).layer(from_fn(answer))
}

async fn missing(uri: Uri) -> Response {
    let text = not_found(uri.path());
    let is_plain = !is_of_framework(uri.path());
    let header = is_plain.then_some([(X_CONTENT_TYPE_OPTIONS, NO_SNIFF)]);
    (
        StatusCode::NOT_FOUND,
        [(CONTENT_TYPE, PLAIN_TEXT)],
        header,
        text,
    )
        .into_response()
}

async fn answer(mut request: Request, next: Next) -> Response {
    let path = request.uri().path();
    if let Some(to) = redirect(path) {
        return redirected(request.method(), &to, request.uri().query());
    }
    if request.method() == Method::HEAD && is_of_framework(path) {
        // No route has it, so that the response lists the methods that the path has.
        *request.method_mut() = Method::TRACE;
    }
    let response = next.run(request).await;
    match response.headers().get(ALLOW) {
        Some(allow) if response.status() == StatusCode::METHOD_NOT_ALLOWED => {
            let allow = allowed(allow.to_str().unwrap_or_default());
            let headers = [(CONTENT_TYPE, PLAIN_TEXT.to_owned()), (ALLOW, allow)];
            let text = "405: Method Not Allowed";
            (StatusCode::METHOD_NOT_ALLOWED, headers, text).into_response()
        }
        _ => response,
    }
}

/// Go's `http.Redirect`: only who may show it gets a text.
fn redirected(method: &Method, to: &str, query: Option<&str>) -> Response {
    let query = query.map(|query| format!("?{query}")).unwrap_or_default();
    let to = format!("{to}{query}");
    let shown = to.replace('&', "&amp;").replace('"', "&#34;");
    let body = format!("<a href=\"{shown}\">Temporary Redirect</a>.\n\n");
    let location = [(LOCATION, to)];
    let html = [(CONTENT_TYPE, "text/html; charset=utf-8")];
    match *method {
        Method::GET | Method::HEAD => {
            (StatusCode::TEMPORARY_REDIRECT, location, html, body).into_response()
        }
        _ => (StatusCode::TEMPORARY_REDIRECT, location).into_response(),
    }
}

#[cfg(test)]
mod tests {
    use axum::body::{Body, to_bytes};
    use axum::routing::{any, get};
    use tower::ServiceExt;

    use super::*;

    async fn ask(method: &str, path: &str) -> (u16, String, String) {
        let router = Router::new()
            .route("/pods", get(|| async { "pods" }))
            .route(
                "/logs/{*path}",
                get(|| async { "log" }).post(|| async { "" }),
            )
            .route("/metrics", any(|| async { "metrics" }));
        let request = Request::builder().method(method).uri(path);
        let request = request.body(Body::empty()).unwrap();
        let router = with_upstream_answers(router);
        let response = router.oneshot(request).await.unwrap();
        let code = response.status().as_u16();
        let headers = response.headers();
        let header = headers.get(ALLOW).or_else(|| headers.get(LOCATION));
        let header = header
            .map_or("", |value| value.to_str().unwrap())
            .to_owned();
        let body = to_bytes(response.into_body(), 1000).await.unwrap();
        (code, header, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn responses_are_upstreams_where_nothing_is_served() {
        let not_allowed = "405: Method Not Allowed";
        for (method, path, code, header, body) in [
            ("GET", "/pods", 200, "", "pods"),
            ("HEAD", "/pods", 405, "GET", not_allowed),
            ("PUT", "/pods", 405, "GET", not_allowed),
            ("PUT", "/logs/a", 405, "GET, POST", not_allowed),
            ("BREW", "/metrics", 200, "", "metrics"),
            ("GET", "/pods/none", 404, "", "404: Page Not Found"),
            ("GET", "/none", 404, "", "404 page not found\n"),
            ("POST", "/logs", 307, "/logs/", ""),
            (
                "GET",
                "/logs/../pods?a=b&c",
                307,
                "/pods?a=b&c",
                "<a href=\"/pods?a=b&amp;c\">Temporary Redirect</a>.\n\n",
            ),
        ] {
            let expected = (code, header.to_owned(), body.to_owned());
            assert_eq!(ask(method, path).await, expected, "{method} {path}");
        }
    }
}
