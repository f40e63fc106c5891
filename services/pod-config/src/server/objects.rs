//! Objects that pods refer to: of manifests, and of the API server.

use bytes::Bytes;
use futures::{StreamExt, stream};
use polylet_api::ApiErrorKind;
use polylet_wire::podconfig::v1::object_service_server::ObjectService;
use polylet_wire::podconfig::v1::{
    Absent, GetObjectRequest, GetObjectResponse, IssueTokenRequest, IssueTokenResponse, PodSource,
    Unknown, WatchObjectRequest, WatchObjectResponse, WatchPodCertificateRequest,
    WatchPodCertificateResponse, WatchServicesRequest, WatchServicesResponse, get_object_response,
    watch_object_response,
};
use tokio::sync::watch;
use tonic::{Request, Response, Status};

use super::{BoxStream, Server};
use crate::cluster::{PublishedObject, certificates};
use crate::core::ObjectId;
use crate::core::cluster::kinds::ApiKind;
use crate::state::Published;

#[tonic::async_trait]
impl ObjectService for Server {
    type WatchObjectStream = BoxStream<WatchObjectResponse>;

    async fn watch_object(
        &self,
        request: Request<WatchObjectRequest>,
    ) -> Result<Response<Self::WatchObjectStream>, Status> {
        let request = request.into_inner();
        if request.source() == PodSource::Api {
            let (key, kind) = cluster_key(request.kind, request.namespace, request.name)?;
            return Ok(Response::new(self.watch_cluster_object(&key, kind)));
        }
        let key = local_key(request.kind, request.namespace, request.name)?;
        let mut published = self.streams.published.subscribe();
        // The first state is sent without a change.
        published.mark_changed();
        let responses = stream::unfold(
            (published, key, None),
            |(mut published, key, sent)| async move {
                let current = loop {
                    if published.changed().await.is_err() {
                        return None;
                    }
                    let current = find(&published.borrow_and_update(), &key);
                    if current.is_some() && current != sent {
                        break current;
                    }
                };
                let state = watch_state(current.clone().flatten());
                let response = WatchObjectResponse { state: Some(state) };
                Some((Ok(response), (published, key, current)))
            },
        );
        Ok(Response::new(Box::pin(responses)))
    }

    type WatchServicesStream = BoxStream<WatchServicesResponse>;

    async fn watch_services(
        &self,
        request: Request<WatchServicesRequest>,
    ) -> Result<Response<Self::WatchServicesStream>, Status> {
        let after = request.into_inner().resume_after;
        let services = self.cluster.services.clone();
        Ok(Response::new(polylet_watch::serve(services, after)))
    }

    type WatchPodCertificateStream = BoxStream<WatchPodCertificateResponse>;

    async fn watch_pod_certificate(
        &self,
        request: Request<WatchPodCertificateRequest>,
    ) -> Result<Response<Self::WatchPodCertificateStream>, Status> {
        let request = request.into_inner();
        let Some(on_demand) = &self.cluster.on_demand else {
            return Err(Status::failed_precondition(
                "the node is standalone: certificates need an API server",
            ));
        };
        let pod = request.pod.clone().unwrap_or_default();
        let required = [
            &pod.uid,
            &pod.namespace,
            &pod.name,
            &request.service_account,
            &request.signer_name,
        ];
        if required.iter().any(|value| value.is_empty()) {
            return Err(Status::invalid_argument(
                "pod (uid, namespace, name), service_account and signer_name are required",
            ));
        }
        let state = on_demand.certificates.subscribe(pod, request);
        Ok(Response::new(Box::pin(certificates::stream(state))))
    }

    async fn issue_token(
        &self,
        request: Request<IssueTokenRequest>,
    ) -> Result<Response<IssueTokenResponse>, Status> {
        let request = request.into_inner();
        let Some(on_demand) = &self.cluster.on_demand else {
            return Err(Status::failed_precondition(
                "the node is standalone: tokens need an API server",
            ));
        };
        let pod = request.pod.clone().unwrap_or_default();
        let required = [
            &pod.uid,
            &pod.namespace,
            &pod.name,
            &request.service_account,
        ];
        if required.iter().any(|value| value.is_empty()) {
            return Err(Status::invalid_argument(
                "pod (uid, namespace, name) and service_account are required",
            ));
        }
        match on_demand.tokens.issue(&pod, &request).await {
            Ok(token) => Ok(Response::new(token)),
            Err(error) => Err(to_status(error.kind, error.message)),
        }
    }

    async fn get_object(
        &self,
        request: Request<GetObjectRequest>,
    ) -> Result<Response<GetObjectResponse>, Status> {
        let request = request.into_inner();
        if request.source() == PodSource::Api {
            let (key, kind) = cluster_key(request.kind, request.namespace, request.name)?;
            let state = Some(self.get_cluster_object(&key, kind).await?);
            return Ok(Response::new(GetObjectResponse { state }));
        }
        let key = local_key(request.kind, request.namespace, request.name)?;
        let mut published = self.streams.published.subscribe();
        let synced = published
            .wait_for(|published| published.objects_synced)
            .await;
        let synced = synced.map_err(|_| Status::unavailable("stopping"))?;
        let state = match find(&synced, &key).flatten() {
            Some(manifest) => get_object_response::State::Manifest(manifest),
            None => get_object_response::State::Absent(Absent {}),
        };
        Ok(Response::new(GetObjectResponse { state: Some(state) }))
    }
}

impl Server {
    fn watch_cluster_object(
        &self,
        key: &ObjectId,
        kind: ApiKind,
    ) -> BoxStream<WatchObjectResponse> {
        let Some(on_demand) = &self.cluster.on_demand else {
            let absent = WatchObjectResponse {
                state: Some(watch_state(None)),
            };
            return Box::pin(stream::iter([Ok(absent)]).chain(stream::pending()));
        };
        cluster_object_stream(on_demand.objects.subscribe(key, kind))
    }

    async fn get_cluster_object(
        &self,
        key: &ObjectId,
        kind: ApiKind,
    ) -> Result<get_object_response::State, Status> {
        let Some(on_demand) = &self.cluster.on_demand else {
            return Ok(get_object_response::State::Absent(Absent {}));
        };
        let mut state = on_demand.objects.subscribe(key, kind);
        Ok(match first_state(&mut state).await? {
            PublishedObject::Manifest(manifest) => get_object_response::State::Manifest(manifest),
            PublishedObject::Absent => get_object_response::State::Absent(Absent {}),
            PublishedObject::Unknown(message) => return Err(Status::unavailable(message)),
        })
    }
}

/// The states of an object of the API server, without repetitions: an immutable object is requested
/// again for other subscribers.
fn cluster_object_stream(
    mut state: watch::Receiver<Option<PublishedObject>>,
) -> BoxStream<WatchObjectResponse> {
    // The first state is sent without a change.
    state.mark_changed();
    Box::pin(stream::unfold(
        (state, None),
        |(mut state, sent)| async move {
            let current = loop {
                if state.changed().await.is_err() {
                    return None;
                }
                let current = state.borrow_and_update().clone();
                if current.is_some() && current != sent {
                    break current;
                }
            };
            let published = match current.clone()? {
                PublishedObject::Manifest(manifest) => watch_state(Some(manifest)),
                PublishedObject::Absent => watch_state(None),
                PublishedObject::Unknown(message) => {
                    watch_object_response::State::Unknown(Unknown { message })
                }
            };
            let response = WatchObjectResponse {
                state: Some(published),
            };
            Some((Ok(response), (state, current)))
        },
    ))
}

async fn first_state(
    state: &mut watch::Receiver<Option<PublishedObject>>,
) -> Result<PublishedObject, Status> {
    let stopping = || Status::unavailable("stopping");
    let state = state.wait_for(Option::is_some).await;
    let state = state.map_err(|_| stopping())?;
    state.clone().ok_or_else(stopping)
}

fn watch_state(manifest: Option<Bytes>) -> watch_object_response::State {
    match manifest {
        Some(manifest) => watch_object_response::State::Manifest(manifest),
        None => watch_object_response::State::Absent(Absent {}),
    }
}

fn to_status(kind: ApiErrorKind, message: String) -> Status {
    match kind {
        ApiErrorKind::NotFound => Status::not_found(message),
        ApiErrorKind::Forbidden => Status::permission_denied(message),
        ApiErrorKind::Invalid => Status::invalid_argument(message),
        ApiErrorKind::Conflict | ApiErrorKind::AlreadyExists => {
            Status::failed_precondition(message)
        }
        ApiErrorKind::Unauthorized
        | ApiErrorKind::Gone
        | ApiErrorKind::TooManyRequests(_)
        | ApiErrorKind::ServerError
        | ApiErrorKind::Unreachable => Status::unavailable(message),
    }
}

fn cluster_key(
    kind: String,
    namespace: String,
    name: String,
) -> Result<(ObjectId, ApiKind), Status> {
    let Some(object_kind) = ApiKind::from_name(&kind) else {
        let names = ApiKind::names();
        return Err(Status::invalid_argument(format!(
            "kind: expected one of {names}"
        )));
    };
    if name.is_empty() || namespace.is_empty() == object_kind.namespaced {
        return Err(Status::invalid_argument(
            "name is required; namespace is required for namespaced kinds only",
        ));
    }
    let key = ObjectId {
        kind,
        namespace,
        name,
    };
    Ok((key, object_kind))
}

fn local_key(kind: String, namespace: String, name: String) -> Result<ObjectId, Status> {
    let cluster_scoped = kind == "RuntimeClass";
    if !cluster_scoped && !matches!(kind.as_str(), "Secret" | "ConfigMap") {
        return Err(Status::invalid_argument(
            "kind: expected Secret, ConfigMap or RuntimeClass",
        ));
    }
    if name.is_empty() || namespace.is_empty() != cluster_scoped {
        return Err(Status::invalid_argument(
            "name is required; namespace is required except for a RuntimeClass",
        ));
    }
    Ok(ObjectId {
        kind,
        namespace,
        name,
    })
}

/// The object or its absence; `None` while neither is known.
fn find(published: &Published, key: &ObjectId) -> Option<Option<Bytes>> {
    published
        .objects_synced
        .then(|| published.objects.get(key).cloned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn repeated_states_are_not_sent() {
        let manifest = |text: &'static str| Some(PublishedObject::Manifest(text.into()));
        let (sender, receiver) = watch::channel(manifest("1"));
        let mut stream = cluster_object_stream(receiver);
        let mut next = async || stream.next().await.unwrap().unwrap().state.unwrap();
        assert_eq!(next().await, watch_state(Some("1".into())));
        for repeated in [None, manifest("1"), None] {
            sender.send_replace(repeated);
            assert!(futures::FutureExt::now_or_never(next()).is_none());
        }
        sender.send_replace(manifest("2"));
        assert_eq!(next().await, watch_state(Some("2".into())));
    }
}
