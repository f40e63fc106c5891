//! The service without its server, against a fake runtime.

use std::path::Path;
use std::time::Duration;

use polylet_cri::v1;
use polylet_model::PodUid;
use polylet_watch::Store;
use polylet_wire::common::v1::Cause;
use polylet_wire::pleg::v1::{ContainerPhase, PodState, WatchRuntimeResponse};
use tokio::net::UnixListener;
use tokio::sync::{oneshot, watch};
use tokio::task::LocalSet;
use tokio::time::timeout;
use tokio_stream::wrappers::UnixListenerStream;

use super::*;
use crate::core::{PodIdentity, RecordChange, RuntimeEventKind};
use crate::events;
use crate::manager::RefreshRequest;
use fake::{Fake, POD_LIST, TIMEOUT};

mod checkpoints;
mod fake;

/// The service's tasks over a fake runtime.
struct RunningService {
    fake: Fake,
    store: Store<PodUid, PodState>,
    inputs: mpsc::UnboundedSender<Input>,
    runtime_status: watch::Receiver<WatchRuntimeResponse>,
    _dir: tempfile::TempDir,
}

impl RunningService {
    fn start(fake: Fake) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("cri.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let incoming = UnixListenerStream::new(listener);
        let server =
            tonic::transport::Server::builder().serve_with_incoming(fake.clone(), incoming);
        tokio::task::spawn_local(server);
        let runtime = RuntimeClient::connect(&path.to_string_lossy(), Duration::from_millis(300));
        let store = Store::new("test");
        let (inputs, receiver) = mpsc::unbounded_channel();
        let (sender, runtime_status) = watch::channel(WatchRuntimeResponse::default());
        let wake = EventWake::default();
        tokio::task::spawn_local(events::follow(
            runtime.clone(),
            inputs.clone(),
            wake.clone(),
        ));
        let manager = Pleg::new(store.clone(), sender, Timestamp::now());
        let event_loop = EventLoop::new(
            runtime,
            manager,
            wake,
            ExitWatcher::new(None, false),
            TerminationMessageReader::new(Path::new("/nonexistent"), CancellationToken::new()),
        );
        tokio::task::spawn_local(event_loop.run(CancellationToken::new(), receiver));
        Self {
            fake,
            store,
            inputs,
            runtime_status,
            _dir: dir,
        }
    }

    async fn refresh(&self, uid: &str, traceparent: &str) -> PodState {
        self.refresh_changes(uid, traceparent, Vec::new()).await
    }

    async fn refresh_changes(
        &self,
        uid: &str,
        traceparent: &str,
        changes: Vec<RecordChange>,
    ) -> PodState {
        let (response, receiver) = oneshot::channel();
        let request = RefreshRequest {
            pod: PodIdentity {
                uid: uid.into(),
                ..Default::default()
            },
            force: false,
            changes,
            cause: Cause {
                traceparent: traceparent.to_owned(),
                ..Default::default()
            },
            response,
        };
        let _ = self.inputs.send(Input::Refresh(request));
        receiver.await.unwrap().unwrap().state.unwrap()
    }

    async fn wait_for_lists(&self, count: usize) {
        let total = self.fake.calls("ListContainers") + count;
        self.fake.wait_for_calls("ListContainers", total).await;
    }

    async fn wait_until_synced(&self) {
        while !self.store.has_synced() {
            self.wait_for_lists(1).await;
        }
    }

    fn pod(&self, uid: &str) -> Option<PodState> {
        self.store.get(uid.to_owned().as_str())
    }

    fn phase(&self, uid: &str) -> ContainerPhase {
        self.pod(uid).unwrap().containers[0].phase()
    }
}

#[tokio::test]
async fn hung_status_call_affects_only_its_pod() {
    let fake = Fake::default();
    fake.set("c1", "u1", v1::ContainerState::ContainerRunning);
    fake.set("c2", "u2", v1::ContainerState::ContainerRunning);
    let test = async {
        let mut service = RunningService::start(fake.clone());
        let ready = service.runtime_status.wait_for(|status| status.ready);
        ready.await.unwrap();
        fake.change(|world| world.hangs.extend(["c1".to_owned()]));
        fake.set("c1", "u1", v1::ContainerState::ContainerExited);
        fake.set("c2", "u2", v1::ContainerState::ContainerExited);
        let (hung, other) =
            futures::join!(service.refresh("u1", "t1"), service.refresh("u2", "t2"));
        assert!(hung.inspect_error.contains("ContainerStatus of c1"));
        assert_eq!(hung.containers[0].phase(), ContainerPhase::Running);
        assert_eq!(other.inspect_error, "");
        assert_eq!(other.containers[0].phase(), ContainerPhase::Exited);
        assert_eq!(other.cause.unwrap().traceparent, "t2");
        assert!(service.runtime_status.borrow().ready);
        // Retried without a request.
        fake.change(|world| world.hangs.clear());
        while !service.pod("u1").unwrap().inspect_error.is_empty() {
            service.wait_for_lists(1).await;
        }
        assert_eq!(service.phase("u1"), ContainerPhase::Exited);
    };
    LocalSet::new().run_until(test).await;
}

#[tokio::test]
async fn without_events_lists_find_changes_and_only_those_are_inspected() {
    let fake = Fake::default();
    fake.set("c1", "u1", v1::ContainerState::ContainerRunning);
    let test = async {
        let service = RunningService::start(fake.clone());
        service.wait_until_synced().await;
        let pod = service.pod("u1").unwrap();
        assert_eq!(pod.cause, None, "the initial sync is not a change");
        assert_eq!(pod.sandboxes[0].ips, ["10.0.0.1"]);
        let calls = fake.calls("ContainerStatus");
        service.wait_for_lists(2).await;
        assert_eq!(fake.calls("ContainerStatus"), calls, "nothing changed");
        fake.set("c1", "u1", v1::ContainerState::ContainerExited);
        service.wait_for_lists(2).await;
        assert_eq!(service.phase("u1"), ContainerPhase::Exited);
        assert_eq!(fake.calls("ContainerStatus"), calls + 1);
        fake.change(|world| world.containers.clear());
        let gone = service.refresh("u1", "t").await;
        assert!(gone.sandboxes.is_empty() && gone.containers.is_empty());
        assert_eq!(service.pod("u1"), None);
    };
    LocalSet::new().run_until(test).await;
}

#[tokio::test]
async fn refresh_after_changes_makes_one_status_call() {
    let fake = Fake::default();
    fake.set("c1", "u", v1::ContainerState::ContainerExited);
    let test = async {
        let service = RunningService::start(fake.clone());
        service.wait_until_synced().await;
        let status_calls = fake.calls("ContainerStatus");
        fake.set("c2", "u", v1::ContainerState::ContainerRunning);
        let started = RecordChange {
            id: "c2".to_owned(),
            sandbox_id: "s-u".to_owned(),
            kind: RuntimeEventKind::Started,
        };
        let state = service.refresh_changes("u", "t", vec![started]).await;
        assert_eq!(state.containers.len(), 2);
        let started = state.containers.iter().find(|c| c.id == "c2").unwrap();
        assert_eq!(started.sandbox_id, "s-u");
        assert_eq!(started.phase(), ContainerPhase::Running);
        assert_eq!(state.cause.unwrap().traceparent, "t");
        assert_eq!(fake.calls("ContainerStatus"), status_calls + 1);
        assert_eq!(fake.calls(POD_LIST), 0);
    };
    LocalSet::new().run_until(test).await;
}

#[tokio::test]
async fn exited_process_is_polled_until_the_runtime_reports_the_exit() {
    // Contained in every process's cgroup file, so it serves as a container id.
    let id = "/";
    let mut process = std::process::Command::new("sleep")
        .arg("1000")
        .spawn()
        .unwrap();
    let fake = Fake::default();
    fake.set(id, "u", v1::ContainerState::ContainerRunning);
    fake.change(|world| world.pids.extend([(id.to_owned(), process.id())]));
    let test = async {
        let service = RunningService::start(fake.clone());
        service.wait_until_synced().await;
        let inspections = || fake.calls("ContainerStatus");
        let before = inspections();
        process.kill().unwrap();
        fake.wait_for_calls("ContainerStatus", before + 5).await;
        assert_eq!(fake.calls(POD_LIST), 0, "nothing else can have changed");
        assert_eq!(service.phase("u"), ContainerPhase::Running);
        fake.set(id, "u", v1::ContainerState::ContainerExited);
        let exited = async {
            while service.phase("u") != ContainerPhase::Exited {
                service.wait_for_lists(1).await;
            }
        };
        timeout(TIMEOUT, exited).await.expect("the exit in time");
        let after = inspections();
        service.wait_for_lists(2).await;
        assert_eq!(inspections(), after, "polling has ended");
    };
    LocalSet::new().run_until(test).await;
    process.wait().unwrap();
}

#[tokio::test]
async fn status_is_requested_again_without_verbose_information_when_that_fails() {
    let fake = Fake::default();
    fake.set("c", "u", v1::ContainerState::ContainerRunning);
    fake.change(|world| world.refuses_verbose = true);
    let test = async {
        let service = RunningService::start(fake.clone());
        let state = service.refresh("u", "t").await;
        assert_eq!(state.inspect_error, "");
        assert_eq!(state.containers[0].phase(), ContainerPhase::Running);
    };
    LocalSet::new().run_until(test).await;
}
