//! What processes above this one have counted: they may call it, and it may not ask them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::stream::BoxStream;
use futures::{Stream, StreamExt, TryStreamExt, future};
use polylet_kit::CancellationToken;
use polylet_wire::lifecycle::v1::metrics_service_server::{MetricsService, MetricsServiceServer};
use polylet_wire::lifecycle::v1::{MetricFamily, PublishMetricsRequest, PublishMetricsResponse};
use tonic::{Request, Response, Status, Streaming};

/// Largest request: many times what a process counts.
const MAX_REQUEST_BYTES: usize = 1 << 20;

/// The families of the supervisor, the only process above. Clones share them.
#[derive(Clone)]
pub(crate) struct PublishedMetrics {
    latest: Arc<Mutex<LatestPublication>>,
    drain: CancellationToken,
}

#[derive(Default)]
struct LatestPublication {
    /// The number of the latest call.
    number: u64,
    families: Vec<MetricFamily>,
}

/// A call that publishes families; its end removes them.
struct Publication {
    metrics: PublishedMetrics,
    number: u64,
}

impl PublishedMetrics {
    /// None; calls end at the drain.
    pub(crate) fn new(drain: CancellationToken) -> Self {
        Self {
            latest: Arc::default(),
            drain,
        }
    }

    /// The families that are published at present.
    pub(crate) fn families(&self) -> Vec<MetricFamily> {
        self.lock().families.clone()
    }

    /// The gRPC server.
    pub(crate) fn server(&self) -> MetricsServiceServer<Self> {
        MetricsServiceServer::new(self.clone()).max_decoding_message_size(MAX_REQUEST_BYTES)
    }

    /// A publication that takes the place of the one before: that of a process which is gone, although its
    /// connection is not closed yet.
    fn begin(&self) -> Publication {
        let mut latest = self.lock();
        latest.number += 1;
        latest.families.clear();
        Publication {
            metrics: self.clone(),
            number: latest.number,
        }
    }

    /// Begins a publication and publishes what each request has. Ends at the drain, so that the caller publishes
    /// to the next process: this one may live on for minutes, for the streams of its clients.
    fn responses(
        &self,
        requests: impl Stream<Item = Result<PublishMetricsRequest, Status>> + Send + 'static,
    ) -> impl Stream<Item = Result<PublishMetricsResponse, Status>> + Send + 'static {
        let publication = self.begin();
        let responses = requests.and_then(move |request| {
            let published = publication.publish(request.families);
            future::ready(published.map(|()| PublishMetricsResponse {}))
        });
        responses.take_until(self.drain.clone().cancelled_owned())
    }

    fn lock(&self) -> MutexGuard<'_, LatestPublication> {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Publication {
    fn publish(&self, families: Vec<MetricFamily>) -> Result<(), Status> {
        let mut latest = self.metrics.lock();
        if latest.number != self.number {
            return Err(Status::aborted("another call publishes metrics"));
        }
        latest.families = families;
        Ok(())
    }
}

impl Drop for Publication {
    fn drop(&mut self) {
        let mut latest = self.metrics.lock();
        if latest.number == self.number {
            latest.families.clear();
        }
    }
}

#[tonic::async_trait]
impl MetricsService for PublishedMetrics {
    type PublishMetricsStream = BoxStream<'static, Result<PublishMetricsResponse, Status>>;

    async fn publish_metrics(
        &self,
        request: Request<Streaming<PublishMetricsRequest>>,
    ) -> Result<Response<Self::PublishMetricsStream>, Status> {
        Ok(Response::new(self.responses(request.into_inner()).boxed()))
    }
}

#[cfg(test)]
mod tests {
    use futures::{FutureExt, stream};

    use super::*;

    fn names(metrics: &PublishedMetrics) -> Vec<String> {
        let families = metrics.families().into_iter();
        families.map(|family| family.name).collect()
    }

    fn families(name: &str) -> Vec<MetricFamily> {
        vec![MetricFamily {
            name: name.to_owned(),
            ..MetricFamily::default()
        }]
    }

    #[test]
    fn families_last_as_long_as_the_call_that_publishes_them() {
        let metrics = PublishedMetrics::new(CancellationToken::new());
        let publication = metrics.begin();
        publication.publish(families("a")).unwrap();
        publication.publish(families("b")).unwrap();
        assert_eq!(names(&metrics), ["b"]);
        drop(publication);
        assert!(names(&metrics).is_empty());
    }

    #[test]
    fn a_new_process_takes_the_place_of_one_whose_connection_is_still_open() {
        let metrics = PublishedMetrics::new(CancellationToken::new());
        let old = metrics.begin();
        old.publish(families("old")).unwrap();
        let new = metrics.begin();
        assert!(names(&metrics).is_empty());
        new.publish(families("new")).unwrap();
        assert_eq!(
            old.publish(families("late")).unwrap_err().code(),
            tonic::Code::Aborted
        );
        drop(old);
        assert_eq!(names(&metrics), ["new"]);
    }
    #[test]
    fn calls_end_at_the_drain() {
        let drain = CancellationToken::new();
        let metrics = PublishedMetrics::new(drain.clone());
        let request = PublishMetricsRequest {
            families: families("a"),
        };
        // The caller has more to publish, some time.
        let requests = stream::iter([Ok(request)]).chain(stream::pending());
        let mut responses = metrics.responses(requests).boxed();
        assert!(matches!(responses.next().now_or_never(), Some(Some(Ok(_)))));
        assert!(responses.next().now_or_never().is_none());
        assert_eq!(names(&metrics), ["a"]);
        drain.cancel();
        assert!(matches!(responses.next().now_or_never(), Some(None)));
        // Nor does a call begin that would hold the caller.
        let mut late = metrics.responses(stream::pending()).boxed();
        assert!(matches!(late.next().now_or_never(), Some(None)));
    }
}
