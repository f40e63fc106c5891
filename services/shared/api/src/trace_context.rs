//! Requests that a span is waiting for are part of its trace.

use std::pin::Pin;
use std::task::{Context, Poll};

use http::{HeaderName, Request, Response};
use polylet_kit::trace_context;
use tower::Service;

/// The header of an answer with the ID under which the request was logged.
const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");

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
        let span = tracing::Span::current();
        if let Some(header) = trace_context::header(&span) {
            // Without room for it, the request is not part of the trace.
            let headers = request.headers_mut();
            let _ = headers.try_insert(trace_context::TRACEPARENT, header);
        }
        let response = self.0.call(request);
        Box::pin(async move {
            let response = response.await?;
            trace_context::record_audit_id(&span, response.headers().get(AUDIT_ID));
            Ok(response)
        })
    }
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

    #[tokio::test]
    async fn requests_within_a_span_carry_its_context_and_the_audit_id_is_recorded() {
        let server = tower::service_fn(|request: Request<()>| async move {
            let sent = request.headers().get("traceparent").cloned();
            let response = Response::builder().header("Audit-Id", "a-1").body(sent);
            response.map_err(tower::BoxError::from)
        });
        let client = AddTraceContext(server);
        let exporter = EndedSpans::default();
        let provider = SdkTracerProvider::builder()
            .with_span_processor(exporter.clone())
            .build();
        let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("test"));
        let _guard = tracing::subscriber::set_default(tracing_subscriber::registry().with(layer));
        let outside = client.clone().oneshot(Request::new(())).await.unwrap();
        assert_eq!(*outside.body(), None);
        let span = tracing::info_span!("status.patch");
        let sent = client
            .oneshot(Request::new(()))
            .instrument(span)
            .await
            .unwrap();
        let recorded = exporter.0.lock().unwrap().remove(0);
        let id = recorded.span_context.span_id().to_string();
        let sent = sent.into_body().unwrap();
        assert!(sent.to_str().unwrap().contains(&id), "{sent:?}");
        let audit = recorded
            .attributes
            .iter()
            .find(|one| one.key.as_str() == "polylet.audit_id");
        assert_eq!(audit.unwrap().value.as_str(), "a-1");
    }
}
