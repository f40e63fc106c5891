//! Requests that a span is waiting for are part of its trace.

use std::pin::Pin;
use std::task::{Context, Poll};

use http::{HeaderName, Method, Request, Response, StatusCode, Uri};
use polylet_kit::trace_context;
use tower::Service;
use tracing::Span;

/// The header of an answer with the ID under which the request was logged.
const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");

/// A span with this attribute is about a request.
const METHOD: &str = "http.request.method";

/// A span about one request to the API server, whose client records the request and its answer in it.
#[macro_export]
macro_rules! request_span {
    ($($head:tt)*) => {
        tracing::info_span!(
            $($head)*
            otel.kind = "client",
            http.request.method = tracing::field::Empty,
            url.full = tracing::field::Empty,
            server.address = tracing::field::Empty,
            server.port = tracing::field::Empty,
            http.response.status_code = tracing::field::Empty,
            error.type = tracing::field::Empty,
        )
    };
}

/// A client whose requests carry the context of the span that they are made in. The API server records the request
/// in a trace of its own, unless the caller is an administrator: the ID in its audit log leads there.
#[derive(Clone)]
pub(crate) struct AddTraceContext<S>(pub(crate) S);

impl<S, Q, R> Service<Request<Q>> for AddTraceContext<S>
where
    S: Service<Request<Q>, Response = Response<R>>,
    S::Future: Send + 'static,
{
    type Response = Response<R>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<R>, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<Q>) -> Self::Future {
        let span = request_span(&Span::current(), request.method(), request.uri());
        if let Some(header) = trace_context::header(&span) {
            // Without room for it, the request is not part of the trace.
            let headers = request.headers_mut();
            let _ = headers.try_insert(trace_context::TRACEPARENT, header);
        }
        let response = self.0.call(request);
        Box::pin(async move {
            let response = response.await;
            record_answer(&span, response.as_ref().ok());
            response
        })
    }
}

/// The span of a request: the present one, if it is about a request, or else one within it; none outside of spans.
fn request_span(caller: &Span, method: &Method, uri: &Uri) -> Span {
    if caller.is_disabled() {
        return Span::none();
    }
    let span = match caller.has_field(METHOD) {
        true => caller.clone(),
        false => crate::request_span!(
            parent: caller,
            "api.request",
            otel.name = format!("api.{}", method.as_str().to_ascii_lowercase()),
            otel.status_code = tracing::field::Empty,
        ),
    };
    span.record(METHOD, method.as_str());
    span.record("url.full", url(uri));
    if let Some(host) = uri.host() {
        span.record("server.address", host.trim_matches(['[', ']']));
    }
    if let Some(port) = port(uri) {
        span.record("server.port", port);
    }
    span
}

/// The URL without credentials and parameters.
fn url(uri: &Uri) -> String {
    let scheme = uri.scheme_str().unwrap_or("https");
    let host = uri.host().unwrap_or_default();
    let port = uri.port_u16().map(|port| format!(":{port}"));
    let path = uri.path();
    format!("{scheme}://{host}{}{path}", port.unwrap_or_default())
}

fn port(uri: &Uri) -> Option<u16> {
    let default = match uri.scheme_str() {
        Some("http") => Some(80),
        Some("https") => Some(443),
        _ => None,
    };
    uri.port_u16().or(default)
}

/// Records the head of an answer; `None` if there was none.
fn record_answer<R>(span: &Span, response: Option<&Response<R>>) {
    let Some(response) = response else {
        // The caller records which.
        span.record("error.type", "_OTHER");
        span.record("otel.status_code", "ERROR");
        return;
    };
    let status = response.status();
    span.record("http.response.status_code", status.as_u16());
    if status.is_client_error() || status.is_server_error() {
        span.record("error.type", status.as_str());
        // Of what is missing or has changed meanwhile, the caller decides whether it is an error.
        if !matches!(status, StatusCode::NOT_FOUND | StatusCode::CONFLICT) {
            span.record("otel.status_code", "ERROR");
        }
    }
    trace_context::record_audit_id(span, response.headers().get(AUDIT_ID));
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    use super::*;
    use opentelemetry::trace::TracerProvider;
    use opentelemetry_sdk::error::OTelSdkResult;
    use opentelemetry_sdk::trace::{SdkTracerProvider, SpanData, SpanProcessor};
    use tower::ServiceExt;
    use tracing::Instrument;
    use tracing_subscriber::layer::SubscriberExt;

    /// Keeps the spans that have ended.
    #[derive(Debug, Clone, Default)]
    struct EndedSpans(Arc<Mutex<Vec<SpanData>>>);

    impl SpanProcessor for EndedSpans {
        fn on_start(&self, _: &mut opentelemetry_sdk::trace::Span, _: &opentelemetry::Context) {}

        fn on_end(&self, span: SpanData) {
            self.0.lock().unwrap().push(span);
        }

        fn force_flush(&self) -> OTelSdkResult {
            Ok(())
        }

        fn shutdown_with_timeout(&self, _: Duration) -> OTelSdkResult {
            Ok(())
        }
    }

    fn recorded(of: &SpanData) -> Vec<String> {
        let attributes = of.attributes.iter();
        let attributes = attributes.map(|one| format!("{}={}", one.key, one.value));
        let is_ours = |text: &String| {
            let prefixes = ["http", "url", "server", "error", "polylet"];
            prefixes.iter().any(|prefix| text.starts_with(prefix))
        };
        let mut attributes: Vec<_> = attributes.filter(is_ours).collect();
        attributes.sort();
        attributes
    }

    #[tokio::test]
    async fn requests_within_a_span_carry_its_context_and_are_recorded() {
        let server = tower::service_fn(|request: Request<()>| async move {
            let sent = request.headers().get("traceparent").cloned();
            let response = Response::builder().header("Audit-Id", "a-1");
            let response = match *request.method() {
                Method::POST => response.status(409),
                Method::GET => return Err(tower::BoxError::from("gone")),
                _ => response,
            };
            response.body(sent).map_err(tower::BoxError::from)
        });
        let client = AddTraceContext(server);
        let exporter = EndedSpans::default();
        let provider = SdkTracerProvider::builder()
            .with_span_processor(exporter.clone())
            .build();
        let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("test"));
        let _guard = tracing::subscriber::set_default(tracing_subscriber::registry().with(layer));
        let request = |method: Method, uri: &str| {
            let request = Request::builder().method(method).uri(uri);
            request.body(()).unwrap()
        };
        let url = "https://admin:secret@[::1]:6443/api/v1/pods/web/status?token=secret";
        let patch = || request(Method::PATCH, url);
        let outside = client.clone().oneshot(patch()).await.unwrap();
        assert_eq!(*outside.body(), None);
        let span = crate::request_span!("status.request",);
        let sent = client.clone().oneshot(patch()).instrument(span).await;
        let patched = exporter.0.lock().unwrap().remove(0);
        let id = patched.span_context.span_id().to_string();
        let sent = sent.unwrap().into_body().unwrap();
        assert!(sent.to_str().unwrap().contains(&id), "{sent:?}");
        let expected = [
            "http.request.method=PATCH",
            "http.response.status_code=200",
            "polylet.audit_id=a-1",
            "server.address=::1",
            "server.port=6443",
            "url.full=https://[::1]:6443/api/v1/pods/web/status",
        ];
        assert_eq!(recorded(&patched), expected);
        // Any other span has one within it for each request.
        let span = tracing::info_span!("volume.setup");
        let requests = async {
            let token = request(Method::POST, "https://api.example/api/v1/token");
            let sent = client.clone().oneshot(token).await.unwrap().into_body();
            let gone = request(Method::GET, "http://api.example/x");
            client.clone().oneshot(gone).await.unwrap_err();
            sent.unwrap()
        };
        let sent = requests.instrument(span).await;
        let [posted, got, caller] = &exporter.0.lock().unwrap()[..] else {
            panic!("three spans are expected");
        };
        let id = posted.span_context.span_id().to_string();
        assert!(sent.to_str().unwrap().contains(&id), "{sent:?}");
        assert_eq!(posted.parent_span_id, caller.span_context.span_id());
        assert_eq!((&*posted.name, &*got.name), ("api.post", "api.get"));
        let expected = [
            "error.type=409",
            "http.request.method=POST",
            "http.response.status_code=409",
            "polylet.audit_id=a-1",
            "server.address=api.example",
            "server.port=443",
            "url.full=https://api.example/api/v1/token",
        ];
        assert_eq!(recorded(posted), expected);
        let expected = [
            "error.type=_OTHER",
            "http.request.method=GET",
            "server.address=api.example",
            "server.port=80",
            "url.full=http://api.example/x",
        ];
        assert_eq!(recorded(got), expected);
    }
}
