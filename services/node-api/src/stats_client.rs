//! Client of eviction's statistics. The calls wait for measurements, of which one at a time serves everybody.

use std::time::{Duration, SystemTime};

use axum::body::HttpBody;
use bytes::Bytes;
use polylet_kit::{BoxError, Channel, MAX_MESSAGE_SIZE};
use polylet_wire::stats::v1::stats_service_client::StatsServiceClient;
use polylet_wire::stats::v1::{ExpositionKind, GetExpositionRequest, GetSummaryRequest};
use tokio::time::timeout;
use tonic::body::Body;
use tonic::client::GrpcService;
use tonic::{Request, Status};

use crate::peer_calls::repeated;

/// Longer than eviction measures, which is 40 s at most: callers get its result, or its error.
const MEASURE_TIMEOUT: Duration = Duration::from_secs(45);
/// How long metrics wait for a new summary: Prometheus gives up after 10 s.
const RECENT_TIMEOUT: Duration = Duration::from_secs(3);
/// How long they then wait for the last one, which eviction has at hand.
const LAST_TIMEOUT: Duration = Duration::from_secs(1);

/// The client. Clones share their connection.
#[derive(Clone)]
pub(crate) struct StatsClient<C = Channel>(C);

impl<C> StatsClient<C>
where
    C: GrpcService<Body, Error: Into<BoxError>> + Clone,
    C::ResponseBody: HttpBody<Data = Bytes, Error: Into<BoxError> + Send> + Send + 'static,
{
    pub(crate) fn new(channel: C) -> Self {
        Self(channel)
    }

    /// Metrics of usage as text: of a new sample.
    pub(crate) async fn exposition(&self, kind: ExpositionKind) -> Result<Bytes, Status> {
        let message = GetExpositionRequest {
            kind: kind.into(),
            not_older_than: None,
        };
        repeated(|| {
            let (mut client, request) = (self.client(), request(message));
            async move { Ok(client.get_exposition(request).await?.into_inner().text) }
        })
        .await
    }

    /// The stats summary as JSON: of a new sample.
    pub(crate) async fn summary(&self, only_cpu_and_memory: bool) -> Result<Bytes, Status> {
        let message = GetSummaryRequest {
            not_older_than: None,
            only_cpu_and_memory,
        };
        self.get_summary(message).await
    }

    /// The stats summary for metrics: one that is not older than `oldest` if there is one soon, otherwise the last one
    /// of all. Measuring the files of a node may take longer than a scrape; eviction continues it for the next one.
    pub(crate) async fn last_summary(&self, oldest: SystemTime) -> Option<Bytes> {
        let since = |oldest: SystemTime| {
            self.get_summary(GetSummaryRequest {
                not_older_than: Some(oldest.into()),
                only_cpu_and_memory: false,
            })
        };
        if let Ok(Ok(recent)) = timeout(RECENT_TIMEOUT, since(oldest)).await {
            return Some(recent);
        }
        let last = timeout(LAST_TIMEOUT, since(SystemTime::UNIX_EPOCH)).await;
        last.ok()?.ok()
    }

    async fn get_summary(&self, message: GetSummaryRequest) -> Result<Bytes, Status> {
        repeated(|| {
            let (mut client, request) = (self.client(), request(message));
            async move { Ok(client.get_summary(request).await?.into_inner().summary) }
        })
        .await
    }

    fn client(&self) -> StatsServiceClient<C> {
        StatsServiceClient::new(self.0.clone()).max_decoding_message_size(MAX_MESSAGE_SIZE)
    }
}

fn request<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(MEASURE_TIMEOUT);
    request
}

#[cfg(test)]
#[path = "stats_client_tests.rs"]
mod tests;
