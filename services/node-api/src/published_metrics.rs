//! What processes above this one have counted: they may call it, and it may not ask them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::StreamExt;
use futures::stream::{self, BoxStream};
use polylet_wire::lifecycle::v1::metrics_service_server::{MetricsService, MetricsServiceServer};
use polylet_wire::lifecycle::v1::{MetricFamily, PublishMetricsRequest, PublishMetricsResponse};
use tonic::{Request, Response, Status, Streaming};

/// Largest request: many times what a process counts.
const MAX_REQUEST_BYTES: usize = 1 << 20;

/// The families of the supervisor, the only process above. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct PublishedMetrics(Arc<Mutex<LatestPublication>>);

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

    fn lock(&self) -> MutexGuard<'_, LatestPublication> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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
        let state = (request.into_inner(), self.begin());
        let responses = stream::try_unfold(state, |(mut requests, publication)| async move {
            let Some(request) = requests.message().await? else {
                return Ok(None);
            };
            publication.publish(request.families)?;
            Ok(Some((PublishMetricsResponse {}, (requests, publication))))
        });
        Ok(Response::new(responses.boxed()))
    }
}

#[cfg(test)]
mod tests {
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
        let metrics = PublishedMetrics::default();
        let publication = metrics.begin();
        publication.publish(families("a")).unwrap();
        publication.publish(families("b")).unwrap();
        assert_eq!(names(&metrics), ["b"]);
        drop(publication);
        assert!(names(&metrics).is_empty());
    }

    #[test]
    fn a_new_process_takes_the_place_of_one_whose_connection_is_still_open() {
        let metrics = PublishedMetrics::default();
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
}
