//! The gRPC services: views of [`crate::state`] and [`crate::cluster`].

mod masked;
mod objects;

use std::pin::Pin;

use futures::{Stream, stream};
use polylet_wire::podconfig::v1::pod_config_service_server::PodConfigService;
use polylet_wire::podconfig::v1::{
    Absent, ListManifestErrorsRequest, ListManifestErrorsResponse, PodSource,
    WatchMirrorPodsRequest, WatchMirrorPodsResponse, WatchNodeRequest, WatchNodeResponse,
    WatchPodsRequest, WatchPodsResponse, watch_node_response,
};
use polylet_wire::time::to_wire;
use tokio::sync::watch;
use tonic::{Request, Response, Status};

use crate::cluster::{ApiServerSource, Outage};
use crate::core::mask::ManifestMask;
use crate::state::PodStreams;

type BoxStream<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send + 'static>>;

/// Both services of pod-config.
#[derive(Clone)]
pub struct Server {
    streams: PodStreams,
    cluster: ApiServerSource,
}

impl Server {
    /// A server of the static sources and the API server's objects.
    pub fn new(streams: PodStreams, cluster: ApiServerSource) -> Server {
        Server { streams, cluster }
    }
}

#[tonic::async_trait]
impl PodConfigService for Server {
    type WatchPodsStream = BoxStream<WatchPodsResponse>;

    async fn watch_pods(
        &self,
        request: Request<WatchPodsRequest>,
    ) -> Result<Response<Self::WatchPodsStream>, Status> {
        let request = request.into_inner();
        let store = match request.source() {
            PodSource::Api if request.include_status => &self.cluster.pods.pods_with_status,
            PodSource::Api => &self.cluster.pods.pods,
            PodSource::File => &self.streams.file,
            PodSource::Http => &self.streams.http,
            PodSource::Unspecified => {
                return Err(Status::invalid_argument(
                    "source: expected API, FILE or HTTP",
                ));
            }
        };
        let mask = request.manifest_mask.unwrap_or_default();
        let mask = ManifestMask::new(mask.paths.iter().map(String::as_str));
        let mask = mask.map_err(|error| Status::invalid_argument(error.to_string()))?;
        let pods = polylet_watch::serve(store.clone(), request.resume_after);
        Ok(Response::new(match mask {
            Some(mask) => Box::pin(masked::pods(pods, mask)),
            None => pods,
        }))
    }

    type WatchMirrorPodsStream = BoxStream<WatchMirrorPodsResponse>;

    async fn watch_mirror_pods(
        &self,
        request: Request<WatchMirrorPodsRequest>,
    ) -> Result<Response<Self::WatchMirrorPodsStream>, Status> {
        let after = request.into_inner().resume_after;
        let mirror_pods = self.cluster.pods.mirror_pods.clone();
        Ok(Response::new(polylet_watch::serve(mirror_pods, after)))
    }

    type WatchNodeStream = BoxStream<WatchNodeResponse>;

    async fn watch_node(
        &self,
        _: Request<WatchNodeRequest>,
    ) -> Result<Response<Self::WatchNodeStream>, Status> {
        let mut node = self.cluster.node.subscribe();
        // The first state is sent without a change.
        node.mark_changed();
        let on_demand = self.cluster.on_demand.as_ref();
        let outages = on_demand.map(|on_demand| on_demand.outages());
        let responses = stream::unfold(
            (node, outages, None),
            |(mut node, mut outages, sent)| async move {
                let current = loop {
                    let open = tokio::select! {
                        changed = node.changed() => changed.is_ok(),
                        changed = outage_changed(&mut outages) => changed,
                    };
                    if !open {
                        return None;
                    }
                    let node = node.borrow_and_update().clone();
                    let Some(node) = node else { continue };
                    let outage = outages
                        .as_mut()
                        .and_then(|outages| outages.borrow_and_update().clone());
                    let current = (node, outage.map(|outage| outage.since));
                    if sent.as_ref() != Some(&current) {
                        break current;
                    }
                };
                let state = match &current.0 {
                    Some(node) => watch_node_response::State::Manifest(node.clone()),
                    None => watch_node_response::State::Absent(Absent {}),
                };
                let response = WatchNodeResponse {
                    state: Some(state),
                    stale_since: current.1.map(to_wire),
                };
                Some((Ok(response), (node, outages, Some(current))))
            },
        );
        Ok(Response::new(Box::pin(responses)))
    }

    async fn list_manifest_errors(
        &self,
        _: Request<ListManifestErrorsRequest>,
    ) -> Result<Response<ListManifestErrorsResponse>, Status> {
        let mut errors = self.streams.published.borrow().errors.clone();
        errors.extend(self.cluster.errors.borrow().iter().cloned());
        Ok(Response::new(ListManifestErrorsResponse { errors }))
    }
}

/// Waits until an outage starts, changes or ends; for ever on a standalone node.
async fn outage_changed(outages: &mut Option<watch::Receiver<Option<Outage>>>) -> bool {
    match outages {
        Some(outages) => outages.changed().await.is_ok(),
        None => std::future::pending().await,
    }
}
