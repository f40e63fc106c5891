//! Pods and containers that calls of the node API name, and what such calls have in common.

use std::future::Future;

use polylet_cri::CriError;
use polylet_model::PodUid;
use polylet_watch::Store;
use polylet_wire::common::v1::PodRef;
use polylet_wire::pleg::v1::{ContainerPhase, PodState};
use tokio::sync::Semaphore;
use tonic::Status;

use crate::convert;
use crate::server::Refresher;

/// Looks pods up in the published state, or has them inspected.
#[derive(Clone)]
pub(crate) struct PodLookup {
    store: Store<PodUid, PodState>,
    refresher: Refresher,
}

impl PodLookup {
    pub(crate) fn new(store: Store<PodUid, PodState>, refresher: Refresher) -> Self {
        Self { store, refresher }
    }

    /// Finds something in the state of a pod: in the published one, or in a new one if it is not there.
    pub(crate) async fn find<T>(
        &self,
        pod: &PodRef,
        find: impl Fn(&PodState) -> Option<T>,
    ) -> Result<Option<T>, Status> {
        if let Some(found) = self.store.get(pod.uid.as_str()).as_ref().and_then(&find) {
            return Ok(Some(found));
        }
        let identity = convert::pod_identity(pod.clone());
        let refreshed = self.refresher.refresh(identity, false, Vec::new()).await?;
        Ok(refreshed.state.as_ref().and_then(find))
    }

    /// The id of the running container of a name.
    pub(crate) async fn container(
        &self,
        pod: &PodRef,
        name: &str,
    ) -> Result<Option<String>, Status> {
        self.find(pod, |state| running_container(state, name)).await
    }
}

/// Refuses a call beyond the limit instead of queueing it: its caller may try again.
pub(crate) async fn limited<T>(
    permits: &Semaphore,
    call: impl Future<Output = Result<T, Status>>,
) -> Result<T, Status> {
    let Ok(_permit) = permits.try_acquire() else {
        return Err(Status::resource_exhausted(
            "maximum number of in-flight requests exceeded",
        ));
    };
    call.await
}

pub(crate) fn pod(pod: Option<PodRef>) -> Result<PodRef, Status> {
    pod.filter(|pod| !pod.uid.is_empty())
        .ok_or_else(|| Status::invalid_argument("the pod's uid is empty"))
}

/// The newest one: the containers of one name are listed newest first.
fn running_container(state: &PodState, name: &str) -> Option<String> {
    let mut containers = state.containers.iter();
    let found = containers.find(|one| {
        one.name == name && one.phase() == ContainerPhase::Running && !one.id.is_empty()
    });
    found.map(|one| one.id.clone())
}

/// Upstream's full name of a pod.
pub(crate) fn full_name(pod: &PodRef) -> String {
    format!("{}_{}", pod.name, pod.namespace)
}

pub(crate) fn runtime_error(error: &CriError) -> Status {
    Status::new(error.code(), error.rpc_error())
}

#[cfg(test)]
mod tests {
    use polylet_wire::pleg::v1::Container;

    use super::*;

    #[test]
    fn running_container_of_the_name_is_found() {
        let container = |id: &str, name: &str, phase: ContainerPhase| Container {
            id: id.to_owned(),
            name: name.to_owned(),
            phase: phase.into(),
            ..Container::default()
        };
        let state = PodState {
            containers: vec![
                container("a2", "a", ContainerPhase::Running),
                container("a1", "a", ContainerPhase::Exited),
                container("b1", "b", ContainerPhase::Exited),
                container("c1", "c", ContainerPhase::Created),
            ],
            ..PodState::default()
        };
        assert_eq!(running_container(&state, "a").as_deref(), Some("a2"));
        for name in ["b", "c", "d", ""] {
            assert_eq!(running_container(&state, name), None, "{name}");
        }
    }

    #[tokio::test]
    async fn calls_beyond_the_limit_are_refused() {
        let permits = Semaphore::new(1);
        let inner = async {
            let second = limited(&permits, async { Ok(2) }).await;
            assert_eq!(second.unwrap_err().code(), tonic::Code::ResourceExhausted);
            Ok(1)
        };
        assert_eq!(limited(&permits, inner).await.unwrap(), 1);
        assert_eq!(limited(&permits, async { Ok(3) }).await.unwrap(), 3);
    }
}
