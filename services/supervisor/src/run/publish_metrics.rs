//! What this process has counted, for the node API: it serves the metrics of all services, and may not call this one.

use std::path::PathBuf;
use std::time::Duration;

use futures::stream;
use polylet_kit::report;
use polylet_wire::lifecycle::v1::PublishMetricsRequest;
use polylet_wire::lifecycle::v1::metrics_service_client::MetricsServiceClient;
use tokio::sync::mpsc;
use tokio::time::sleep;
use tonic::transport::Channel;
use tonic::{Code, Status};

use super::server::service_socket;
use crate::traces::TraceStore;

/// The service that serves metrics.
const NODE_API: &str = "node-api";
/// Least time between two publications: they are scraped every few seconds at most.
const INTERVAL: Duration = Duration::from_secs(1);
/// The delay before a broken call is made again.
const RETRY_DELAY: Duration = Duration::from_secs(1);
/// The same for a node API that does not know the call, until it is upgraded.
const OLDER_RETRY_DELAY: Duration = Duration::from_secs(60);

/// Publishes the counts when they have changed, for ever. At rest nothing is sent.
pub(super) async fn run(run_directory: PathBuf, traces: TraceStore) {
    let channel = polylet_kit::channel::unix(&service_socket(&run_directory, NODE_API));
    loop {
        let ended = publish(channel.clone(), &traces).await;
        let is_older = matches!(&ended, Err(status) if status.code() == Code::Unimplemented);
        if let Err(status) = ended {
            tracing::debug!(error = report(&status), "metrics are not published");
        }
        sleep(if is_older {
            OLDER_RETRY_DELAY
        } else {
            RETRY_DELAY
        })
        .await;
    }
}

/// Publishes to one process of the node API, until its end. Each request waits for the response to the one before, so
/// that a process that hangs is sent nothing more.
async fn publish(channel: Channel, traces: &TraceStore) -> Result<(), Status> {
    let (requests, mut receiver) = mpsc::channel(1);
    let request = || PublishMetricsRequest {
        families: traces.counts(),
    };
    // There is room for one.
    let _ = requests.try_send(request());
    let mut client = MetricsServiceClient::new(channel);
    let call = client.publish_metrics(stream::poll_fn(move |cx| receiver.poll_recv(cx)));
    let mut responses = call.await?.into_inner();
    while responses.message().await?.is_some() {
        let changed = async {
            sleep(INTERVAL).await;
            traces.counts_changed().await;
        };
        tokio::select! {
            // The call has ended, as nothing was asked.
            ended = responses.message() => return ended.map(drop),
            () = changed => {}
        }
        if requests.send(request()).await.is_err() {
            break;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::{Arc, Mutex};

    use futures::StreamExt;
    use futures::stream::BoxStream;
    use polylet_kit::config::TraceRing;
    use polylet_wire::lifecycle::v1::PublishMetricsResponse;
    use polylet_wire::lifecycle::v1::metrics_service_server::{
        MetricsService, MetricsServiceServer,
    };
    use tokio::net::UnixListener;
    use tokio::sync::Notify;
    use tonic::transport::Server;
    use tonic::{Request, Response, Streaming};

    use super::*;

    /// Keeps the number of families of each request.
    #[derive(Clone, Default)]
    struct Requests {
        received: Arc<Mutex<Vec<usize>>>,
        /// Ends the present calls, as the end of the process does.
        end: Arc<Notify>,
    }

    #[tonic::async_trait]
    impl MetricsService for Requests {
        type PublishMetricsStream = BoxStream<'static, Result<PublishMetricsResponse, Status>>;

        async fn publish_metrics(
            &self,
            request: Request<Streaming<PublishMetricsRequest>>,
        ) -> Result<Response<Self::PublishMetricsStream>, Status> {
            let Requests { received, end } = self.clone();
            let responses = request.into_inner().map(move |request| {
                received.lock().unwrap().push(request?.families.len());
                Ok(PublishMetricsResponse {})
            });
            let responses = responses.take_until(async move { end.notified().await });
            Ok(Response::new(responses.boxed()))
        }
    }

    fn serve(socket: &Path, requests: &Requests) {
        let listener = UnixListener::bind(socket).unwrap();
        let incoming = stream::unfold(listener, |listener| async {
            let (accepted, _) = listener.accept().await.unwrap();
            Some((Ok::<_, std::io::Error>(accepted), listener))
        });
        let server = MetricsServiceServer::new(requests.clone());
        tokio::spawn(async move {
            let serving = Server::builder().add_service(server);
            serving.serve_with_incoming(incoming).await.unwrap();
        });
    }

    async fn until_received(requests: &Requests, count: usize) {
        let received = async {
            while requests.received.lock().unwrap().len() < count {
                sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), received)
            .await
            .unwrap();
    }

    #[tokio::test]
    async fn counts_are_published_to_each_process_of_the_node_api_and_when_they_change() {
        let directory = tempfile::tempdir().unwrap();
        let socket = service_socket(directory.path(), NODE_API);
        let traces = TraceStore::for_tests(&TraceRing::default());
        let requests = Requests::default();
        serve(&socket, &requests);
        tokio::spawn(run(directory.path().to_owned(), traces.clone()));
        until_received(&requests, 1).await;
        // Nothing has changed.
        sleep(INTERVAL + Duration::from_millis(200)).await;
        assert_eq!(requests.received.lock().unwrap().len(), 1);
        traces.note_counted();
        until_received(&requests, 2).await;
        // Without any change, another process has them, too.
        requests.end.notify_waiters();
        until_received(&requests, 3).await;
        let received = requests.received.lock().unwrap();
        assert!(received.iter().all(|families| *families > 0));
    }
}
