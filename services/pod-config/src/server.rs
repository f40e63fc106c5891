//! The two gRPC services: views of what [`crate::run`] publishes.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;

use futures::{Stream, StreamExt};
use polylet_watch::Store;
use polylet_wire::podconfig::v1::object_service_server::ObjectService;
use polylet_wire::podconfig::v1::pod_config_service_server::PodConfigService;
use polylet_wire::podconfig::v1::{
    Absent, GetObjectRequest, GetObjectResponse, IssueTokenRequest, IssueTokenResponse,
    ListProblemsRequest, ListProblemsResponse, Mirror, Pod, PodSource, Problem, Service,
    WatchMirrorsRequest, WatchMirrorsResponse, WatchNodeRequest, WatchNodeResponse,
    WatchObjectRequest, WatchObjectResponse, WatchPodsRequest, WatchPodsResponse,
    WatchServicesRequest, WatchServicesResponse, get_object_response, watch_node_response,
    watch_object_response,
};
use tokio::sync::watch;
use tonic::{Request, Response, Status};

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
    api: Store<String, Pod>,
    mirrors: Store<String, Mirror>,
    services: Store<(String, String), Service>,
}

impl Server {
    /// Serves what is shared. The API source is not configured: it is known to be empty.
    pub fn new(shared: Shared, incarnation: &str) -> Server {
        let (api, mirrors) = (Store::new(incarnation), Store::new(incarnation));
        let services = Store::new(incarnation);
        api.mark_whole();
        mirrors.mark_whole();
        services.mark_whole();
        Server {
            shared,
            api,
            mirrors,
            services,
        }
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
            PodSource::Api => &self.api,
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
        let mirrors = self.mirrors.clone();
        Ok(Response::new(polylet_watch::serve(mirrors, after)))
    }

    type WatchNodeStream = Streamed<WatchNodeResponse>;

    async fn watch_node(
        &self,
        _: Request<WatchNodeRequest>,
    ) -> Result<Response<Self::WatchNodeStream>, Status> {
        let absent = WatchNodeResponse {
            state: Some(watch_node_response::State::Absent(Absent {})),
            stale_since: None,
        };
        let states = futures::stream::iter([Ok(absent)]).chain(futures::stream::pending());
        Ok(Response::new(Box::pin(states)))
    }

    async fn list_problems(
        &self,
        _: Request<ListProblemsRequest>,
    ) -> Result<Response<ListProblemsResponse>, Status> {
        let problems = self.shared.public.borrow().problems.clone();
        Ok(Response::new(ListProblemsResponse { problems }))
    }
}

#[tonic::async_trait]
impl ObjectService for Server {
    type WatchObjectStream = Streamed<WatchObjectResponse>;

    async fn watch_object(
        &self,
        request: Request<WatchObjectRequest>,
    ) -> Result<Response<Self::WatchObjectStream>, Status> {
        let request = request.into_inner();
        let cluster = request.source() == PodSource::Api;
        let key = key(request.kind, request.namespace, request.name)?;
        if cluster {
            let absent = WatchObjectResponse {
                state: Some(watch_object_response::State::Absent(Absent {})),
            };
            let states = futures::stream::iter([Ok(absent)]).chain(futures::stream::pending());
            return Ok(Response::new(Box::pin(states)));
        }
        let mut public = self.shared.public.subscribe();
        // So that the first look does not wait for a change.
        public.mark_changed();
        let states =
            futures::stream::unfold((public, key, None), |(mut public, key, last)| async move {
                let now = loop {
                    if public.changed().await.is_err() {
                        return None;
                    }
                    let now = look(&public.borrow_and_update(), &key);
                    if now.is_some() && now != last {
                        break now;
                    }
                };
                let state = match now.clone().flatten() {
                    Some(manifest) => {
                        watch_object_response::State::Manifest(manifest.as_bytes().to_vec())
                    }
                    None => watch_object_response::State::Absent(Absent {}),
                };
                Some((
                    Ok(WatchObjectResponse { state: Some(state) }),
                    (public, key, now),
                ))
            });
        Ok(Response::new(Box::pin(states)))
    }

    type WatchServicesStream = Streamed<WatchServicesResponse>;

    async fn watch_services(
        &self,
        request: Request<WatchServicesRequest>,
    ) -> Result<Response<Self::WatchServicesStream>, Status> {
        let after = request.into_inner().resume_after;
        let services = self.services.clone();
        Ok(Response::new(polylet_watch::serve(services, after)))
    }

    async fn issue_token(
        &self,
        _: Request<IssueTokenRequest>,
    ) -> Result<Response<IssueTokenResponse>, Status> {
        Err(Status::failed_precondition(
            "the node belongs to no cluster: there is nobody to ask for tokens",
        ))
    }

    async fn get_object(
        &self,
        request: Request<GetObjectRequest>,
    ) -> Result<Response<GetObjectResponse>, Status> {
        let request = request.into_inner();
        let cluster = request.source() == PodSource::Api;
        let key = key(request.kind, request.namespace, request.name)?;
        if cluster {
            let state = Some(get_object_response::State::Absent(Absent {}));
            return Ok(Response::new(GetObjectResponse { state }));
        }
        let mut public = self.shared.public.subscribe();
        let heard = public.wait_for(|public| public.objects_heard).await;
        let heard = heard.map_err(|_| Status::unavailable("stopping"))?;
        let state = match look(&heard, &key).flatten() {
            Some(manifest) => get_object_response::State::Manifest(manifest.as_bytes().to_vec()),
            None => get_object_response::State::Absent(Absent {}),
        };
        Ok(Response::new(GetObjectResponse { state: Some(state) }))
    }
}

fn key(kind: String, namespace: String, name: String) -> Result<ObjectKey, Status> {
    let whole_node = kind == "RuntimeClass";
    if !whole_node && !matches!(kind.as_str(), "Secret" | "ConfigMap") {
        return Err(Status::invalid_argument(
            "kind: Secret, ConfigMap or RuntimeClass was expected",
        ));
    }
    if name.is_empty() || namespace.is_empty() != whole_node {
        return Err(Status::invalid_argument(
            "name: required; namespace: required, and none of a RuntimeClass",
        ));
    }
    Ok(ObjectKey {
        kind,
        namespace,
        name,
    })
}

/// `None` while nothing is known; then the object or its absence.
fn look(public: &Public, key: &ObjectKey) -> Option<Option<Arc<str>>> {
    public
        .objects_heard
        .then(|| public.objects.get(key).cloned())
}
