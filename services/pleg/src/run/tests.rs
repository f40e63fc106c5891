//! The whole service but its server, against a runtime that can be told to misbehave.

use std::time::Duration;

use polylet_cri::v1;
use polylet_wire::common::v1::Cause;
use polylet_wire::pleg::v1::ContainerPhase;
use tokio::net::UnixListener;
use tokio::sync::oneshot;
use tokio::task::LocalSet;
use tokio::time::timeout;
use tokio_stream::wrappers::UnixListenerStream;

use super::*;
use crate::events;
use fake::{Fake, PATIENCE};

mod fake;

/// The service's tasks over a fake runtime.
struct Running {
    fake: Fake,
    store: Store<String, PodState>,
    inputs: mpsc::UnboundedSender<Input>,
    reports: watch::Receiver<WatchRuntimeResponse>,
    _dir: tempfile::TempDir,
}

impl Running {
    fn start(fake: Fake) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("cri.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let incoming = UnixListenerStream::new(listener);
        let server =
            tonic::transport::Server::builder().serve_with_incoming(fake.clone(), incoming);
        tokio::task::spawn_local(server);
        let runtime = Runtime::connect(&path.to_string_lossy(), Duration::from_millis(300));
        let store = Store::new("test");
        let (inputs, inbox) = mpsc::unbounded_channel();
        let (reports, reported) = watch::channel(WatchRuntimeResponse::default());
        let wake = Wake::default();
        tokio::task::spawn_local(events::follow(
            runtime.clone(),
            inputs.clone(),
            wake.clone(),
        ));
        let run = Run::new(
            runtime,
            store.clone(),
            reports,
            wake,
            Exits::new(None, false),
        );
        tokio::task::spawn_local(run.until(CancellationToken::new(), inbox));
        Self {
            fake,
            store,
            inputs,
            reports: reported,
            _dir: dir,
        }
    }

    async fn refresh(&self, uid: &str, traceparent: &str) -> PodState {
        let (answer, answered) = oneshot::channel();
        let cause = Cause {
            traceparent: traceparent.to_owned(),
            ..Default::default()
        };
        let refresh = Refresh {
            uid: uid.to_owned(),
            anew: false,
            cause,
            answer,
        };
        let _ = self.inputs.send(Input::Refresh(refresh));
        answered.await.unwrap().unwrap().state.unwrap()
    }

    async fn until_lists(&self, more: usize) {
        let wanted = self.fake.calls("ListContainers") + more;
        self.fake.until_calls("ListContainers", wanted).await;
    }
}

#[tokio::test]
async fn a_hung_status_marks_that_pod_alone() {
    let fake = Fake::default();
    fake.set("c1", "u1", v1::ContainerState::ContainerRunning);
    fake.set("c2", "u2", v1::ContainerState::ContainerRunning);
    let test = async {
        let mut running = Running::start(fake.clone());
        let ready = running.reports.wait_for(|report| report.ready);
        ready.await.unwrap();
        fake.change(|world| world.hangs.extend(["c1".to_owned()]));
        fake.set("c1", "u1", v1::ContainerState::ContainerExited);
        fake.set("c2", "u2", v1::ContainerState::ContainerExited);
        let (hung, well) = futures::join!(running.refresh("u1", "t1"), running.refresh("u2", "t2"));
        assert!(hung.inspect_error.contains("ContainerStatus of c1"));
        assert_eq!(hung.containers[0].phase(), ContainerPhase::Running);
        assert_eq!(well.inspect_error, "");
        assert_eq!(well.containers[0].phase(), ContainerPhase::Exited);
        assert_eq!(well.cause.unwrap().traceparent, "t2");
        assert!(running.reports.borrow().ready, "the runtime itself is well");
        // It comes back by itself.
        fake.change(|world| world.hangs.clear());
        let known = || running.store.get(&"u1".to_owned()).unwrap();
        while !known().inspect_error.is_empty() {
            running.until_lists(1).await;
        }
        assert_eq!(known().containers[0].phase(), ContainerPhase::Exited);
    };
    LocalSet::new().run_until(test).await;
}

#[tokio::test]
async fn lists_carry_everything_and_ask_about_changes_only() {
    let fake = Fake::default();
    fake.set("c1", "u1", v1::ContainerState::ContainerRunning);
    let test = async {
        let running = Running::start(fake.clone());
        while !running.store.is_whole() {
            running.until_lists(1).await;
        }
        let held = running.store.get(&"u1".to_owned()).unwrap();
        assert_eq!(held.cause, None, "what was there before is no news");
        assert_eq!(held.sandboxes[0].ips, ["10.0.0.1"]);
        let asked = fake.calls("ContainerStatus");
        running.until_lists(2).await;
        assert_eq!(fake.calls("ContainerStatus"), asked, "nothing changed");
        fake.set("c1", "u1", v1::ContainerState::ContainerExited);
        running.until_lists(2).await;
        let held = running.store.get(&"u1".to_owned()).unwrap();
        assert_eq!(held.containers[0].phase(), ContainerPhase::Exited);
        assert_eq!(fake.calls("ContainerStatus"), asked + 1);
        fake.change(|world| world.containers.clear());
        let nothing = running.refresh("u1", "t").await;
        assert!(nothing.sandboxes.is_empty() && nothing.containers.is_empty());
        assert_eq!(running.store.get(&"u1".to_owned()), None);
    };
    LocalSet::new().run_until(test).await;
}

#[tokio::test]
async fn the_end_of_a_process_is_looked_after_until_the_runtime_knows() {
    // Passes for a container's id, being in every process's cgroup file.
    let id = "/";
    let mut process = std::process::Command::new("sleep")
        .arg("1000")
        .spawn()
        .unwrap();
    let fake = Fake::default();
    fake.set(id, "u", v1::ContainerState::ContainerRunning);
    fake.change(|world| world.pids.extend([(id.to_owned(), process.id())]));
    let test = async {
        let running = Running::start(fake.clone());
        while !running.store.is_whole() {
            running.until_lists(1).await;
        }
        let looks = || fake.calls("a pod's list");
        assert_eq!(looks(), 0, "nobody asked");
        process.kill().unwrap();
        fake.until_calls("a pod's list", 5).await;
        let held = || running.store.get(&"u".to_owned()).unwrap();
        assert_eq!(held().containers[0].phase(), ContainerPhase::Running);
        fake.set(id, "u", v1::ContainerState::ContainerExited);
        let ended = async {
            while held().containers[0].phase() != ContainerPhase::Exited {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        timeout(PATIENCE, ended).await.expect("the end is told");
        let after = looks();
        running.until_lists(2).await;
        assert_eq!(looks(), after, "at rest again");
    };
    LocalSet::new().run_until(test).await;
    process.wait().unwrap();
}

#[tokio::test]
async fn a_runtime_that_tells_the_status_only_will_do() {
    let fake = Fake::default();
    fake.set("c", "u", v1::ContainerState::ContainerRunning);
    fake.change(|world| world.terse = true);
    let test = async {
        let running = Running::start(fake.clone());
        let state = running.refresh("u", "t").await;
        assert_eq!(state.inspect_error, "");
        assert_eq!(state.containers[0].phase(), ContainerPhase::Running);
    };
    LocalSet::new().run_until(test).await;
}
