//! Checkpoints of containers, by a fake runtime.

use polylet_wire::common::v1::PodRef;
use polylet_wire::pleg::v1::CheckpointContainerRequest;
use polylet_wire::pleg::v1::checkpoint_service_server::CheckpointService;
use tonic::{Code, Request, Status};

use super::fake::CONTAINER;
use super::*;
use crate::checkpoint::CheckpointServer;
use crate::pod_lookup::PodLookup;
use crate::server::Refresher;

impl RunningService {
    fn checkpoints(&self) -> CheckpointServer {
        let socket = self._dir.path().join("cri.sock");
        let timeout = Duration::from_secs(120);
        CheckpointServer::new(
            PodLookup::new(self.store.clone(), Refresher(self.inputs.clone())),
            RuntimeClient::connect(&socket.to_string_lossy(), timeout),
            "/var/lib/kubelet/checkpoints".into(),
            timeout,
        )
    }
}

async fn checkpoint(
    server: &CheckpointServer,
    uid: &str,
    container: &str,
    timeout_seconds: i64,
) -> Result<String, Status> {
    let pod = PodRef {
        uid: uid.to_owned(),
        namespace: "ns".to_owned(),
        name: "web".to_owned(),
    };
    let request = CheckpointContainerRequest {
        pod: Some(pod),
        container: container.to_owned(),
        timeout_seconds,
    };
    let response = server.checkpoint_container(Request::new(request)).await?;
    Ok(response.into_inner().location)
}

#[tokio::test]
async fn running_containers_are_checkpointed_by_the_runtime() {
    let fake = Fake::default();
    fake.set("c1", "u1", v1::ContainerState::ContainerRunning);
    fake.set("c2", "u2", v1::ContainerState::ContainerExited);
    let test = async {
        let service = RunningService::start(fake.clone());
        let server = service.checkpoints();
        for (requested, observed) in [(0, 120), (30, 120), (300, 300)] {
            let location = checkpoint(&server, "u1", CONTAINER, requested)
                .await
                .unwrap();
            let prefix = "/var/lib/kubelet/checkpoints/checkpoint-web_ns-main-20";
            assert!(location.starts_with(prefix), "{location}");
            assert!(location.ends_with("Z.tar"), "{location}");
            let made = fake.checkpoints().pop().unwrap();
            assert_eq!(
                (made.container_id, made.location, made.timeout),
                ("c1".to_owned(), location, observed)
            );
        }
        for (uid, container, timeout, code, message) in [
            (
                "u2",
                CONTAINER,
                0,
                Code::FailedPrecondition,
                "container main not found",
            ),
            (
                "u1",
                "other",
                0,
                Code::FailedPrecondition,
                "container other not found",
            ),
            (
                "u1",
                CONTAINER,
                -1,
                Code::InvalidArgument,
                "CheckpointContainer requires the timeout value to be > 0",
            ),
        ] {
            let refused = checkpoint(&server, uid, container, timeout).await;
            let refused = refused.unwrap_err();
            assert_eq!((refused.code(), refused.message()), (code, message));
        }
        assert_eq!(fake.checkpoints().len(), 3);
        fake.change(|world| world.refuses_checkpoints = true);
        let refused = checkpoint(&server, "u1", CONTAINER, 0).await.unwrap_err();
        assert_eq!(
            refused.message(),
            "rpc error: code = Unimplemented desc = no checkpoints"
        );
    };
    LocalSet::new().run_until(test).await;
}
