//! Counts of requests, under upstream's names.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;

use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use polylet_metrics::{DEFAULT_BUCKETS, Metric, register};

use crate::core::request_labels;

const LABELS: [&str; 4] = ["method", "path", "server_type", "long_running"];

static REQUESTS: Metric = Metric::counter(
    "kubelet_http_requests_total",
    "[ALPHA] Number of the http requests received since the server started",
    &LABELS,
);
static DURATION: Metric = Metric::histogram(
    "kubelet_http_requests_duration_seconds",
    "[ALPHA] Duration in seconds to serve http requests",
    &LABELS,
    &DEFAULT_BUCKETS,
);
static IN_FLIGHT: Metric = Metric::gauge(
    "kubelet_http_inflight_requests",
    "[ALPHA] Number of the inflight http requests",
    &LABELS,
);

/// Which port a request came to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IsReadOnly(pub(crate) bool);

/// Makes the counts those of this process.
pub(crate) fn register_counts() {
    register(&[&REQUESTS, &DURATION, &IN_FLIGHT]);
}

/// Counts a request until its response is written.
pub(crate) async fn count(
    State(IsReadOnly(is_read_only)): State<IsReadOnly>,
    request: Request,
    next: Next,
) -> Response {
    let (method, path) = (request.method().as_str(), request.uri().path());
    let labels = request_labels::of_request(method, path, is_read_only);
    let served = CountedRequest::begin(labels);
    let response = next.run(request).await;
    response.map(|body| {
        Body::new(CountedResponse {
            body,
            _served: served,
        })
    })
}

/// A request that is being served.
struct CountedRequest {
    labels: [&'static str; 4],
    begun: Instant,
}

impl CountedRequest {
    fn begin(labels: [&'static str; 4]) -> Self {
        REQUESTS.increment(&labels);
        IN_FLIGHT.add(&labels, 1.0);
        Self {
            labels,
            begun: Instant::now(),
        }
    }
}

impl Drop for CountedRequest {
    fn drop(&mut self) {
        IN_FLIGHT.add(&self.labels, -1.0);
        DURATION.observe(&self.labels, self.begun.elapsed().as_secs_f64());
    }
}

/// The body of a response, dropped once it is written or given up.
struct CountedResponse {
    body: Body,
    _served: CountedRequest,
}

impl HttpBody for CountedResponse {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use axum::Router;
    use axum::middleware::from_fn_with_state;
    use axum::routing::get;
    use polylet_metrics::SeriesValue;
    use tower::ServiceExt;

    use super::*;

    fn value(metric: &Metric) -> Option<SeriesValue> {
        let of_test = |series: &polylet_metrics::Series| {
            series
                .labels
                .iter()
                .any(|(_, value)| value == "runningpods")
        };
        let found = metric.series().into_iter().find(of_test);
        found.map(|series| series.value)
    }

    #[tokio::test]
    async fn a_request_is_in_flight_until_its_response_is_written() {
        let router = Router::new()
            .route("/runningpods", get(|| async { "text" }))
            .layer(from_fn_with_state(IsReadOnly(false), count));
        let request = Request::get("/runningpods").body(Body::empty()).unwrap();
        let response = router.oneshot(request).await.unwrap();
        assert_eq!(value(&REQUESTS), Some(SeriesValue::Number(1.0)));
        assert_eq!(value(&IN_FLIGHT), Some(SeriesValue::Number(1.0)));
        assert_eq!(value(&DURATION), None);
        axum::body::to_bytes(response.into_body(), 10)
            .await
            .unwrap();
        assert_eq!(value(&IN_FLIGHT), Some(SeriesValue::Number(0.0)));
        assert!(value(&DURATION).is_some());
    }
}
