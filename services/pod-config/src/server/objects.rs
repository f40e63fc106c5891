//! Objects that pods refer to: those of local manifests, and those of the cluster.

use std::sync::Arc;

use futures::stream;
use polylet_api::Refusal;
use polylet_wire::podconfig::v1::object_service_server::ObjectService;
use polylet_wire::podconfig::v1::{
    Absent, GetObjectRequest, GetObjectResponse, IssueTokenRequest, IssueTokenResponse, PodSource,
    Unknown, WatchObjectRequest, WatchObjectResponse, WatchPodCertificateRequest,
    WatchPodCertificateResponse, WatchServicesRequest, WatchServicesResponse, get_object_response,
    watch_object_response,
};
use tokio::sync::watch;
use tonic::{Request, Response, Status};

use super::{Public, Server, Streamed};
use crate::cluster::{State, certificates};
use crate::core::ObjectKey;
use crate::core::cluster::kinds::Kind;

#[tonic::async_trait]
impl ObjectService for Server {
    type WatchObjectStream = Streamed<WatchObjectResponse>;

    async fn watch_object(
        &self,
        request: Request<WatchObjectRequest>,
    ) -> Result<Response<Self::WatchObjectStream>, Status> {
        let request = request.into_inner();
        if request.source() == PodSource::Api {
            let (key, kind) = cluster_key(request.kind, request.namespace, request.name)?;
            return Ok(Response::new(self.watch_cluster_object(&key, kind)));
        }
        let key = key(request.kind, request.namespace, request.name)?;
        let mut public = self.shared.public.subscribe();
        // So that the first look does not wait for a change.
        public.mark_changed();
        let states = stream::unfold((public, key, None), |(mut public, key, last)| async move {
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
                    watch_object_response::State::Manifest(manifest.as_bytes().to_vec().into())
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
        let services = self.cluster.services.clone();
        Ok(Response::new(polylet_watch::serve(services, after)))
    }

    type WatchPodCertificateStream = Streamed<WatchPodCertificateResponse>;

    async fn watch_pod_certificate(
        &self,
        request: Request<WatchPodCertificateRequest>,
    ) -> Result<Response<Self::WatchPodCertificateStream>, Status> {
        let request = request.into_inner();
        let Some(asked) = &self.cluster.asked else {
            return Err(Status::failed_precondition(
                "the node belongs to no cluster: there is nobody to ask for certificates",
            ));
        };
        let pod = request.pod.clone().unwrap_or_default();
        let parts = [
            &pod.uid,
            &pod.namespace,
            &pod.name,
            &request.service_account,
            &request.signer_name,
        ];
        if parts.iter().any(|part| part.is_empty()) {
            return Err(Status::invalid_argument(
                "pod, service_account and signer_name: the pod's uid, namespace and name, an account and a signer were expected",
            ));
        }
        let known = asked.certificates.want(pod, request);
        Ok(Response::new(Box::pin(certificates::told(known))))
    }

    async fn issue_token(
        &self,
        request: Request<IssueTokenRequest>,
    ) -> Result<Response<IssueTokenResponse>, Status> {
        let request = request.into_inner();
        let Some(asked) = &self.cluster.asked else {
            return Err(Status::failed_precondition(
                "the node belongs to no cluster: there is nobody to ask for tokens",
            ));
        };
        let pod = request.pod.clone().unwrap_or_default();
        let parts = [
            &pod.uid,
            &pod.namespace,
            &pod.name,
            &request.service_account,
        ];
        if parts.iter().any(|part| part.is_empty()) {
            return Err(Status::invalid_argument(
                "pod and service_account: the pod's uid, namespace and name, and an account were expected",
            ));
        }
        match asked.tokens.issue(&pod, &request).await {
            Ok(issued) => Ok(Response::new(issued)),
            Err(failure) => Err(refused(failure.refusal, failure.message)),
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
        let key = key(request.kind, request.namespace, request.name)?;
        let mut public = self.shared.public.subscribe();
        let heard = public.wait_for(|public| public.objects_heard).await;
        let heard = heard.map_err(|_| Status::unavailable("stopping"))?;
        let state = match look(&heard, &key).flatten() {
            Some(manifest) => {
                get_object_response::State::Manifest(manifest.as_bytes().to_vec().into())
            }
            None => get_object_response::State::Absent(Absent {}),
        };
        Ok(Response::new(GetObjectResponse { state: Some(state) }))
    }
}

impl Server {
    fn watch_cluster_object(&self, key: &ObjectKey, kind: Kind) -> Streamed<WatchObjectResponse> {
        let Some(asked) = &self.cluster.asked else {
            let absent = WatchObjectResponse {
                state: Some(watch_object_response::State::Absent(Absent {})),
            };
            let told = stream::iter([Ok(absent)]);
            return Box::pin(futures::StreamExt::chain(told, stream::pending()));
        };
        let mut known = asked.objects.want(key, kind);
        known.mark_changed();
        Box::pin(stream::unfold(known, |mut known| async move {
            let state = loop {
                if known.changed().await.is_err() {
                    return None;
                }
                let state = known.borrow_and_update().clone();
                if let Some(state) = state {
                    break state;
                }
            };
            let state = match state {
                State::Manifest(manifest) => {
                    watch_object_response::State::Manifest(manifest.as_bytes().to_vec().into())
                }
                State::Absent => watch_object_response::State::Absent(Absent {}),
                State::Unknown(message) => {
                    watch_object_response::State::Unknown(Unknown { message })
                }
            };
            Some((Ok(WatchObjectResponse { state: Some(state) }), known))
        }))
    }

    async fn get_cluster_object(
        &self,
        key: &ObjectKey,
        kind: Kind,
    ) -> Result<get_object_response::State, Status> {
        let Some(asked) = &self.cluster.asked else {
            return Ok(get_object_response::State::Absent(Absent {}));
        };
        let mut known = asked.objects.want(key, kind);
        let state = known_state(&mut known).await?;
        Ok(match state {
            State::Manifest(manifest) => {
                get_object_response::State::Manifest(manifest.as_bytes().to_vec().into())
            }
            State::Absent => get_object_response::State::Absent(Absent {}),
            State::Unknown(message) => return Err(Status::unavailable(message)),
        })
    }
}

async fn known_state(known: &mut watch::Receiver<Option<State>>) -> Result<State, Status> {
    let stopping = || Status::unavailable("stopping");
    let state = known.wait_for(Option::is_some).await;
    let state = state.map_err(|_| stopping())?;
    state.clone().ok_or_else(stopping)
}

fn refused(refusal: Refusal, message: String) -> Status {
    match refusal {
        Refusal::NotFound => Status::not_found(message),
        Refusal::Forbidden => Status::permission_denied(message),
        Refusal::Invalid => Status::invalid_argument(message),
        Refusal::Conflict | Refusal::AlreadyExists => Status::failed_precondition(message),
        Refusal::Unauthorized
        | Refusal::Gone
        | Refusal::Busy(_)
        | Refusal::Broken
        | Refusal::Unreachable => Status::unavailable(message),
    }
}

fn cluster_key(kind: String, namespace: String, name: String) -> Result<(ObjectKey, Kind), Status> {
    let Some(of) = Kind::of(&kind) else {
        let names = Kind::names();
        return Err(Status::invalid_argument(format!(
            "kind: one of {names} was expected"
        )));
    };
    if name.is_empty() || namespace.is_empty() == of.namespaced {
        return Err(Status::invalid_argument(
            "name: required; namespace: required of what lives in one, and none of all else",
        ));
    }
    let key = ObjectKey {
        kind,
        namespace,
        name,
    };
    Ok((key, of))
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
