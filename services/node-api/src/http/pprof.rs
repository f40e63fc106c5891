//! `/debug/pprof/`: profiles of this process, and with `?service=` of another service.

use std::time::Duration;

use axum::Router;
use axum::extract::{Path, Query, RawQuery, State};
use axum::http::header::{CONTENT_DISPOSITION, CONTENT_TYPE, HeaderName, X_CONTENT_TYPE_OPTIONS};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use polylet_kit::profile;
use polylet_wire::lifecycle::v1::ProfileKind;
use tonic::{Code, Status};

use crate::core::pprof::{self, PprofPage};
use crate::service_channels::ServiceChannels;

/// Tells clients that a response is the error of a profiler.
const GO_PPROF: HeaderName = HeaderName::from_static("x-go-pprof");
const TEXT: &str = "text/plain; charset=utf-8";

/// The endpoints.
pub(super) fn router(services: ServiceChannels) -> Router {
    Router::new()
        .route("/debug/pprof/", get(index))
        .route("/debug/pprof/{*name}", get(named))
        .with_state(services)
}

async fn index(State(services): State<ServiceChannels>) -> Response {
    text(
        "text/html; charset=utf-8",
        pprof::index(services.service_names()),
    )
}

async fn named(
    State(services): State<ServiceChannels>,
    Path(name): Path<String>,
    Query(query): Query<Vec<(String, String)>>,
    RawQuery(raw): RawQuery,
) -> Response {
    let page = pprof::page(&name);
    match page {
        PprofPage::Profile => take(&services, page, ProfileKind::Cpu, &name, &query).await,
        PprofPage::Heap => take(&services, page, ProfileKind::Heap, &name, &query).await,
        PprofPage::CommandLine => text(TEXT, command_line()),
        PprofPage::Symbol => symbols(raw.unwrap_or_default()).await,
        PprofPage::Index => index(State(services)).await,
        PprofPage::OfGo => error(
            StatusCode::NOT_IMPLEMENTED,
            &format!("{name:?} is of the runtime of Go, which this program does not have"),
        ),
        PprofPage::Unknown => error(StatusCode::NOT_FOUND, "Unknown profile"),
    }
}

async fn take(
    services: &ServiceChannels,
    page: PprofPage,
    kind: ProfileKind,
    name: &str,
    query: &[(String, String)],
) -> Response {
    let value = |key: &str| {
        let found = query.iter().find(|(name, _)| name == key);
        found.map(|(_, value)| value.as_str())
    };
    let seconds = value("seconds");
    let (usual, longest) = (profile::DEFAULT_DURATION, profile::MAX_DURATION);
    let duration = match pprof::duration(page, seconds, usual, longest) {
        Ok(duration) => duration,
        Err(message) => return error(StatusCode::BAD_REQUEST, &message),
    };
    match of_service(services, value("service"), kind, duration).await {
        Ok(profile) => download(name, profile),
        Err(status) => {
            let code = match status.code() {
                Code::NotFound => StatusCode::NOT_FOUND,
                Code::Unimplemented => StatusCode::NOT_IMPLEMENTED,
                _ => StatusCode::INTERNAL_SERVER_ERROR,
            };
            let message = status.message();
            // In Go's words, as far as it takes no profile.
            match kind {
                ProfileKind::Cpu if code == StatusCode::INTERNAL_SERVER_ERROR => {
                    error(code, &format!("Could not enable CPU profiling: {message}"))
                }
                _ => error(code, message),
            }
        }
    }
}

/// The profile of a service: of this one unless another one is named.
async fn of_service(
    services: &ServiceChannels,
    service: Option<&str>,
    kind: ProfileKind,
    duration: Duration,
) -> Result<Vec<u8>, Status> {
    match service {
        None | Some("node-api") => profile::take(kind, duration).await,
        Some(name) => {
            let Some(channel) = services.channel(name) else {
                let known: Vec<_> = services.service_names().collect();
                let known = known.join(", ");
                return Err(Status::not_found(format!(
                    "unknown service {name:?}; known are {known}"
                )));
            };
            profile::take_from(channel, kind, duration).await
        }
    }
}

fn download(name: &str, profile: Vec<u8>) -> Response {
    let mut response = ([(CONTENT_TYPE, "application/octet-stream")], profile).into_response();
    let disposition = format!("attachment; filename={name:?}");
    if let Ok(disposition) = HeaderValue::try_from(disposition) {
        let _ = response
            .headers_mut()
            .try_insert(CONTENT_DISPOSITION, disposition);
    }
    no_sniffing(response)
}

/// The arguments of this process, with zero bytes between them.
fn command_line() -> String {
    let arguments = std::env::args_os().map(|argument| argument.to_string_lossy().into_owned());
    let arguments: Vec<_> = arguments.collect();
    arguments.join("\0")
}

async fn symbols(query: String) -> Response {
    let resolve = move || {
        let addresses = pprof::addresses(&query);
        let names = profile::function_names(&addresses);
        pprof::symbols(addresses.into_iter().zip(names))
    };
    match tokio::task::spawn_blocking(resolve).await {
        Ok(body) => text(TEXT, body),
        Err(failure) => error(StatusCode::INTERNAL_SERVER_ERROR, &failure.to_string()),
    }
}

fn text(kind: &'static str, body: String) -> Response {
    no_sniffing(([(CONTENT_TYPE, kind)], body).into_response())
}

fn error(code: StatusCode, message: &str) -> Response {
    let headers = [
        (CONTENT_TYPE, HeaderValue::from_static(TEXT)),
        (GO_PPROF, HeaderValue::from_static("1")),
    ];
    no_sniffing((code, headers, format!("{message}\n")).into_response())
}

fn no_sniffing(mut response: Response) -> Response {
    let value = HeaderValue::from_static("nosniff");
    // A response has a handful of headers.
    let _ = response
        .headers_mut()
        .try_insert(X_CONTENT_TYPE_OPTIONS, value);
    response
}

#[cfg(test)]
mod tests {
    use axum::body::{Body, to_bytes};
    use axum::http::{HeaderMap, Request};
    use tower::ServiceExt;

    use super::*;

    async fn send(method: &str, path: &str) -> (u16, HeaderMap, Vec<u8>) {
        let request = Request::builder().method(method).uri(path);
        let request = request.body(Body::empty()).unwrap();
        let response = router(ServiceChannels::default())
            .oneshot(request)
            .await
            .unwrap();
        let (parts, body) = response.into_parts();
        let body = to_bytes(body, 10_000_000).await.unwrap();
        (parts.status.as_u16(), parts.headers, body.to_vec())
    }

    async fn get(path: &str) -> (u16, String) {
        let (code, headers, body) = send("GET", path).await;
        assert_eq!(headers[X_CONTENT_TYPE_OPTIONS], "nosniff", "{path}");
        (code, String::from_utf8(body).unwrap())
    }

    #[tokio::test]
    async fn profiles_are_taken_for_the_seconds_of_the_query() {
        let (code, headers, body) = send("GET", "/debug/pprof/profile?seconds=1").await;
        assert_eq!(code, 200);
        assert_eq!(body.get(..2), Some(&[0x1f, 0x8b][..]), "gzip");
        assert_eq!(
            headers[CONTENT_DISPOSITION],
            "attachment; filename=\"profile\""
        );
        assert_eq!(headers[CONTENT_TYPE], "application/octet-stream");
    }

    #[tokio::test]
    async fn responses_are_gos_where_they_make_sense() {
        let (code, page) = get("/debug/pprof/").await;
        assert!(code == 200 && page.contains("href='profile'"), "{page}");
        let (code, arguments) = get("/debug/pprof/cmdline").await;
        let expected: Vec<_> = std::env::args().collect();
        assert_eq!((code, arguments), (200, expected.join("\0")));
        let address = command_line as *const () as usize + 1;
        let (code, symbols) = get(&format!("/debug/pprof/symbol?{address:#x}+0x1")).await;
        assert_eq!(code, 200);
        let lines: Vec<_> = symbols.lines().collect();
        assert_eq!((lines.len(), lines[0]), (2, "num_symbols: 1"), "{symbols}");
        assert!(lines[1].ends_with("command_line"), "{symbols}");
        for (path, code, message) in [
            (
                "goroutine",
                501,
                "\"goroutine\" is of the runtime of Go, which this program does not have\n",
            ),
            (
                "trace?seconds=1",
                501,
                "\"trace\" is of the runtime of Go, which this program does not have\n",
            ),
            ("nonsense", 404, "Unknown profile\n"),
            (
                "heap?seconds=x",
                400,
                "invalid value for \"seconds\" - must be a positive integer\n",
            ),
            (
                "profile?seconds=301",
                400,
                "a profile lasts 300 seconds at most\n",
            ),
            // The tests have another allocator than the service.
            (
                "heap?seconds=1",
                501,
                "the allocator of this program does not record samples\n",
            ),
            (
                "profile?service=etcd&seconds=1",
                404,
                "unknown service \"etcd\"; known are node-api\n",
            ),
        ] {
            let response = get(&format!("/debug/pprof/{path}")).await;
            assert_eq!(response, (code, message.to_owned()), "{path}");
        }
        assert_eq!(send("POST", "/debug/pprof/profile").await.0, 405);
    }
}
