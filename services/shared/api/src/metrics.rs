//! Counts of requests to the API server, under client-go's names.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use http::{Request, Response, Uri};
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::{Body, Bytes, Frame, SizeHint};
use polylet_metrics::{Metric, register};
use tower::{BoxError, Service};

const SECONDS: [f64; 12] = [
    0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0,
];
const BYTES: [f64; 11] = [
    64.0,
    256.0,
    512.0,
    1024.0,
    4096.0,
    16384.0,
    65536.0,
    262_144.0,
    1_048_576.0,
    4_194_304.0,
    16_777_216.0,
];

static REQUESTS: Metric = Metric::counter(
    "rest_client_requests_total",
    "[ALPHA] Number of HTTP requests, partitioned by status code, method, and host.",
    &["code", "method", "host"],
);
static DURATION: Metric = Metric::histogram(
    "rest_client_request_duration_seconds",
    "[ALPHA] Request latency in seconds. Broken down by verb, and host.",
    &["verb", "host"],
    &SECONDS,
);
static REQUEST_SIZE: Metric = Metric::histogram(
    "rest_client_request_size_bytes",
    "[ALPHA] Request size in bytes. Broken down by verb and host.",
    &["verb", "host"],
    &BYTES,
);
static RESPONSE_SIZE: Metric = Metric::histogram(
    "rest_client_response_size_bytes",
    "[ALPHA] Response size in bytes. Broken down by verb and host.",
    &["verb", "host"],
    &BYTES,
);

/// Makes the counts those of this process.
pub(crate) fn register_counts() {
    register(&[&REQUESTS, &DURATION, &REQUEST_SIZE, &RESPONSE_SIZE]);
}

/// The body of a counted response.
type CountedBody = UnsyncBoxBody<Bytes, BoxError>;

/// A client whose requests are counted.
#[derive(Clone)]
pub(crate) struct CountRequests<S>(pub(crate) S);

impl<S, Q, R> Service<Request<Q>> for CountRequests<S>
where
    S: Service<Request<Q>, Response = Response<R>>,
    S::Future: Send + 'static,
    Q: Body,
    R: Body<Data = Bytes> + Send + 'static,
    R::Error: Into<BoxError>,
{
    type Response = Response<CountedBody>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, request: Request<Q>) -> Self::Future {
        let verb = request.method().to_string();
        let host = host(request.uri());
        let is_watch = is_watch(request.uri());
        // As upstream: the watch itself has neither a size nor a duration.
        if !is_watch && let Some(bytes) = request.body().size_hint().exact() {
            REQUEST_SIZE.observe(&[&verb, &host], bytes as f64);
        }
        let mut exchange = Exchange {
            verb,
            host,
            begun: (!is_watch).then(Instant::now),
            received: None,
        };
        let response = self.0.call(request);
        Box::pin(async move {
            let response = response.await;
            let code = response.as_ref().ok().map(Response::status);
            let code = code.as_ref().map_or("<error>", |code| code.as_str());
            REQUESTS.increment(&[code, &exchange.verb, &exchange.host]);
            let response = response?;
            exchange.received = Some(0);
            Ok(response.map(|body| {
                let body = http_body_util::BodyExt::map_err(body, Into::into);
                let body = Box::pin(body);
                UnsyncBoxBody::new(CountedReceipt { body, exchange })
            }))
        })
    }
}

/// A request and its response; counted on drop.
struct Exchange {
    verb: String,
    host: String,
    /// `None` for a watch.
    begun: Option<Instant>,
    /// Bytes of the response; `None` while there is none.
    received: Option<u64>,
}

impl Drop for Exchange {
    fn drop(&mut self) {
        let Some(begun) = self.begun else {
            return;
        };
        let labels = [self.verb.as_str(), self.host.as_str()];
        DURATION.observe(&labels, begun.elapsed().as_secs_f64());
        if let Some(bytes) = self.received {
            RESPONSE_SIZE.observe(&labels, bytes as f64);
        }
    }
}

/// The body of a response as it is received.
struct CountedReceipt<B> {
    body: Pin<Box<B>>,
    exchange: Exchange,
}

impl<B: Body<Data = Bytes>> Body for CountedReceipt<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let frame = ready!(self.body.as_mut().poll_frame(context));
        let data = frame
            .as_ref()
            .and_then(|frame| frame.as_ref().ok()?.data_ref());
        if let (Some(data), Some(received)) = (data, &mut self.exchange.received) {
            *received += data.len() as u64;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The host with its port, if that is written.
fn host(uri: &Uri) -> String {
    uri.authority().map_or_else(
        || "none".to_owned(),
        |authority| match authority.port() {
            Some(port) => format!("{}:{port}", authority.host()),
            None => authority.host().to_owned(),
        },
    )
}

fn is_watch(uri: &Uri) -> bool {
    let query = uri.query().unwrap_or_default();
    query
        .split('&')
        .any(|one| matches!(one, "watch=true" | "watch=1"))
}

#[cfg(test)]
mod tests {
    use http_body_util::{BodyExt, Full};
    use polylet_metrics::SeriesValue;
    use tower::{ServiceExt, service_fn};

    use super::*;

    fn client() -> impl Service<
        Request<Full<Bytes>>,
        Response = Response<CountedBody>,
        Error = std::io::Error,
        Future: Send,
    > {
        CountRequests(service_fn(|request: Request<Full<Bytes>>| async move {
            if request.uri().path() == "/broken" {
                return Err(std::io::Error::other("no connection"));
            }
            Ok(Response::new(Full::new(Bytes::from_static(b"0123456789"))))
        }))
    }

    async fn send(uri: &str) -> Result<Bytes, std::io::Error> {
        let request = Request::post(uri).body(Full::new(Bytes::from_static(b"abc")));
        let response = client().oneshot(request.unwrap()).await?;
        Ok(response.into_body().collect().await.unwrap().to_bytes())
    }

    /// The counts of a family's series with this value of one of the labels.
    fn counts(metric: &Metric, label: &str) -> Vec<(f64, u64)> {
        let has = |series: &polylet_metrics::Series| series.labels.iter().any(|(_, v)| v == label);
        let all = metric.series().into_iter().filter(has);
        all.map(|series| match series.value {
            SeriesValue::Number(number) => (number, 0),
            SeriesValue::Histogram(histogram) => (histogram.sum, histogram.count),
        })
        .collect()
    }

    #[tokio::test]
    async fn requests_count_with_their_sizes() {
        assert_eq!(
            send("https://a:6443/api/v1/pods?x=y").await.unwrap().len(),
            10
        );
        assert_eq!(counts(&REQUESTS, "a:6443"), [(1.0, 0)]);
        assert_eq!(counts(&REQUEST_SIZE, "a:6443"), [(3.0, 1)]);
        assert_eq!(counts(&RESPONSE_SIZE, "a:6443"), [(10.0, 1)]);
        assert_eq!(counts(&DURATION, "a:6443")[0].1, 1);
    }

    #[tokio::test]
    async fn watches_and_failures_have_no_sizes() {
        send("https://watched/api/v1/pods?watch=true&x=y")
            .await
            .unwrap();
        assert_eq!(counts(&REQUESTS, "watched"), [(1.0, 0)]);
        assert_eq!(counts(&DURATION, "watched"), []);
        assert_eq!(counts(&REQUEST_SIZE, "watched"), []);
        send("https://failing/broken").await.unwrap_err();
        let codes = REQUESTS.series().into_iter().map(|series| series.labels);
        let failed = codes.filter(|labels| labels.iter().any(|(_, v)| v == "failing"));
        let failed: Vec<_> = failed.collect();
        assert_eq!(failed[0][0].1, "<error>");
        assert_eq!(counts(&DURATION, "failing")[0].1, 1);
        assert_eq!(counts(&RESPONSE_SIZE, "failing"), []);
    }
}
