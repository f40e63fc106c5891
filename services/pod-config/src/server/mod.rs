//! The two gRPC services: views of what [`crate::run`] and [`crate::cluster`] publish.

mod objects;

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;

use futures::{Stream, stream};
use polylet_watch::Store;
use polylet_wire::podconfig::v1::pod_config_service_server::PodConfigService;
use polylet_wire::podconfig::v1::{
    Absent, ListProblemsRequest, ListProblemsResponse, Pod, PodSource, Problem,
    WatchMirrorsRequest, WatchMirrorsResponse, WatchNodeRequest, WatchNodeResponse,
    WatchPodsRequest, WatchPodsResponse, watch_node_response,
};
use polylet_wire::time::to_wire;
use tokio::sync::watch;
use tonic::{Request, Response, Status};

use crate::cluster::{Away, Cluster};
use crate::core::ObjectKey;

type Streamed<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send + 'static>>;

/// What is published beside the pods.
#[derive(Clone, Default)]
pub struct Public {
    /// All problems of all sources.
    pub problems: Vec<Problem>,
    /// All local objects as JSON.
    pub objects: Arc<BTreeMap<ObjectKey, Arc<str>>>,
    /// Whether the source of objects has been heard.
    pub objects_heard: bool,
}

/// Everything that is served.
#[derive(Clone)]
pub struct Shared {
    /// Pods from files, by uid.
    pub file: Store<String, Pod>,
    /// Pods from the URL, by uid.
    pub http: Store<String, Pod>,
    /// The rest.
    pub public: watch::Sender<Public>,
}

/// Both services.
#[derive(Clone)]
pub struct Server {
    shared: Shared,
    cluster: Cluster,
}

impl Server {
    /// Serves what is shared, and what the cluster says.
    pub fn new(shared: Shared, cluster: Cluster) -> Server {
        Server { shared, cluster }
    }
}

#[tonic::async_trait]
impl PodConfigService for Server {
    type WatchPodsStream = Streamed<WatchPodsResponse>;

    async fn watch_pods(
        &self,
        request: Request<WatchPodsRequest>,
    ) -> Result<Response<Self::WatchPodsStream>, Status> {
        let request = request.into_inner();
        let store = match request.source() {
            PodSource::Api if request.include_status => &self.cluster.pods.reported,
            PodSource::Api => &self.cluster.pods.plain,
            PodSource::File => &self.shared.file,
            PodSource::Http => &self.shared.http,
            PodSource::Unspecified => {
                return Err(Status::invalid_argument(
                    "source: API, FILE or HTTP was expected",
                ));
            }
        };
        Ok(Response::new(polylet_watch::serve(
            store.clone(),
            request.resume_after,
        )))
    }

    type WatchMirrorsStream = Streamed<WatchMirrorsResponse>;

    async fn watch_mirrors(
        &self,
        request: Request<WatchMirrorsRequest>,
    ) -> Result<Response<Self::WatchMirrorsStream>, Status> {
        let after = request.into_inner().resume_after;
        let mirrors = self.cluster.pods.mirrors.clone();
        Ok(Response::new(polylet_watch::serve(mirrors, after)))
    }

    type WatchNodeStream = Streamed<WatchNodeResponse>;

    async fn watch_node(
        &self,
        _: Request<WatchNodeRequest>,
    ) -> Result<Response<Self::WatchNodeStream>, Status> {
        let mut known = self.cluster.node.subscribe();
        // So that the first look does not wait for a change.
        known.mark_changed();
        let away = self.cluster.asked.as_ref().map(|asked| asked.away());
        let states = stream::unfold(
            (known, away, None),
            |(mut known, mut away, last)| async move {
                let now = loop {
                    let stirred = tokio::select! {
                        stirred = known.changed() => stirred.is_ok(),
                        stirred = changed(&mut away) => stirred,
                    };
                    if !stirred {
                        return None;
                    }
                    let node = known.borrow_and_update().clone();
                    let Some(node) = node else { continue };
                    let away = away
                        .as_mut()
                        .and_then(|away| away.borrow_and_update().clone());
                    let now = (node, away.map(|away| away.since));
                    if last.as_ref() != Some(&now) {
                        break now;
                    }
                };
                let state = match &now.0 {
                    Some(node) => {
                        watch_node_response::State::Manifest(node.as_bytes().to_vec().into())
                    }
                    None => watch_node_response::State::Absent(Absent {}),
                };
                let told = WatchNodeResponse {
                    state: Some(state),
                    stale_since: now.1.map(to_wire),
                };
                Some((Ok(told), (known, away, Some(now))))
            },
        );
        Ok(Response::new(Box::pin(states)))
    }

    async fn list_problems(
        &self,
        _: Request<ListProblemsRequest>,
    ) -> Result<Response<ListProblemsResponse>, Status> {
        let mut problems = self.shared.public.borrow().problems.clone();
        problems.extend(self.cluster.problems.borrow().iter().cloned());
        Ok(Response::new(ListProblemsResponse { problems }))
    }
}

/// Waits until the server has gone away or come back; for ever on a node that stands alone.
async fn changed(away: &mut Option<watch::Receiver<Option<Away>>>) -> bool {
    match away {
        Some(away) => away.changed().await.is_ok(),
        None => std::future::pending().await,
    }
}
