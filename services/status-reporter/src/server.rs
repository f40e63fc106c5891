//! The gRPC service: statuses as a state stream and as a list.

use std::time::Duration;

use futures::stream::BoxStream;
use polylet_watch::{serve, serve_key};
use polylet_wire::status::v1::status_service_server::StatusService;
use polylet_wire::status::v1::{
    ListPodStatusesRequest, ListPodStatusesResponse, WatchPodStatusesRequest,
    WatchPodStatusesResponse,
};
use tokio::sync::watch;
use tonic::{Request, Response, Status};

use crate::status_store::StatusStore;

/// How long a list waits for the initial sync.
const SYNC_TIMEOUT: Duration = Duration::from_secs(5);

pub(crate) struct Server {
    pub(crate) statuses: StatusStore,
    /// Streams that have not synced; empty after the initial sync.
    pub(crate) unsynced: watch::Receiver<Vec<String>>,
}

#[tonic::async_trait]
impl StatusService for Server {
    type WatchPodStatusesStream = BoxStream<'static, Result<WatchPodStatusesResponse, Status>>;

    async fn watch_pod_statuses(
        &self,
        request: Request<WatchPodStatusesRequest>,
    ) -> Result<Response<Self::WatchPodStatusesStream>, Status> {
        let store = self.statuses.watched();
        let WatchPodStatusesRequest {
            resume_after,
            pod_uid,
        } = request.into_inner();
        Ok(Response::new(if pod_uid.is_empty() {
            serve(store, resume_after)
        } else {
            serve_key(store, pod_uid.into(), resume_after)
        }))
    }

    /// Lists what is known even if some streams do not sync in time: the list is for display. It
    /// fails only while no status is known at all.
    async fn list_pod_statuses(
        &self,
        request: Request<ListPodStatusesRequest>,
    ) -> Result<Response<ListPodStatusesResponse>, Status> {
        let mut unsynced = self.unsynced.clone();
        let synced = tokio::time::timeout(SYNC_TIMEOUT, unsynced.wait_for(Vec::is_empty))
            .await
            .is_ok();
        if !synced && self.statuses.is_empty() {
            let missing = self.unsynced.borrow().join("; ");
            return Err(Status::unavailable(format!(
                "initial sync in progress, waiting for: {missing}"
            )));
        }
        let pods = self.statuses.list(&request.into_inner());
        Ok(Response::new(ListPodStatusesResponse { pods }))
    }
}

#[cfg(test)]
mod tests {
    use futures::{FutureExt, StreamExt};
    use polylet_watch::{Change, Store, WatchWire};
    use polylet_wire::common::v1::PodRef;
    use polylet_wire::status::v1::PodStatus;

    use super::*;
    use crate::core::published::NamePrecedence;

    fn status(uid: &str, content: &'static str) -> PodStatus {
        PodStatus {
            r#ref: Some(PodRef {
                uid: uid.to_owned(),
                ..PodRef::default()
            }),
            status: content.into(),
            ..PodStatus::default()
        }
    }

    #[tokio::test]
    async fn a_follower_of_one_pod_receives_only_its_statuses() {
        let statuses = StatusStore::new(Store::new("1"));
        let upsert = |uid: &str, content| {
            let precedence = NamePrecedence::default();
            statuses.upsert(uid.into(), status(uid, content), precedence);
        };
        upsert("u1", "{}");
        (0..200).for_each(|n| upsert(&format!("other {n}"), "{}"));
        statuses.mark_synced();
        let (_, unsynced) = watch::channel(Vec::new());
        let server = Server {
            statuses: statuses.clone(),
            unsynced,
        };
        let request = WatchPodStatusesRequest {
            resume_after: None,
            pod_uid: "u1".to_owned(),
        };
        let response = server.watch_pod_statuses(Request::new(request)).await;
        let mut stream = response.unwrap().into_inner();
        let mut read = async || stream.next().await.unwrap().unwrap().into_change().unwrap();
        assert_eq!(read().await, Change::Reset);
        assert_eq!(read().await, Change::Upsert(status("u1", "{}")));
        assert!(matches!(read().await, Change::Synced(_)));
        upsert("other 7", "changed");
        statuses.remove(&"other 8".into());
        assert_eq!(read().now_or_never(), None);
        upsert("u1", "changed");
        assert_eq!(read().await, Change::Upsert(status("u1", "changed")));
    }
}
