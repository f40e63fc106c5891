//! The whole service but its server, against a runtime that can be told to misbehave.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use polylet_cri::labels::PodLabels;
use polylet_cri::v1;
use polylet_wire::common::v1::Cause;
use polylet_wire::pleg::v1::ContainerPhase;
use tokio::net::UnixListener;
use tokio::sync::oneshot;
use tokio::task::LocalSet;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::body::Body;
use tonic::server::{Grpc, UnaryService};
use tonic::{Response, Status};
use tonic_prost::ProstCodec;

use super::*;
use crate::events;

/// What the runtime holds, by container id; one sandbox a pod.
#[derive(Default)]
struct World {
    containers: BTreeMap<String, (String, v1::ContainerState)>,
    hangs: HashSet<String>,
    pids: HashMap<String, u32>,
    /// Refuses to tell more than the status.
    terse: bool,
    calls: HashMap<String, usize>,
}

#[derive(Clone, Default)]
struct Fake(Arc<Mutex<World>>);

type Answer<T> = Pin<Box<dyn Future<Output = Result<Response<T>, Status>> + Send>>;

/// One unary method out of a function.
struct Method<Q, R>(Fake, fn(Fake, Q) -> Answer<R>);

impl<Q, R> UnaryService<Q> for Method<Q, R> {
    type Response = R;
    type Future = Answer<R>;
    fn call(&mut self, request: tonic::Request<Q>) -> Self::Future {
        (self.1)(self.0.clone(), request.into_inner())
    }
}

fn now<T: Send + 'static>(value: T) -> Answer<T> {
    Box::pin(std::future::ready(Ok(Response::new(value))))
}

fn labels(uid: &str) -> HashMap<String, String> {
    let mut labels = HashMap::new();
    let pod = PodLabels {
        uid: uid.to_owned(),
        namespace: "ns".to_owned(),
        name: format!("name-{uid}"),
    };
    pod.write(&mut labels);
    labels
}

impl Fake {
    fn set(&self, id: &str, uid: &str, state: v1::ContainerState) {
        let mut world = self.0.lock().unwrap();
        world
            .containers
            .insert(id.to_owned(), (uid.to_owned(), state));
    }

    fn calls(&self, name: &str) -> usize {
        let world = self.0.lock().unwrap();
        world.calls.get(name).copied().unwrap_or(0)
    }

    fn pods(&self) -> Vec<String> {
        let world = self.0.lock().unwrap();
        let mut pods: Vec<_> = world.containers.values().map(|(u, _)| u.clone()).collect();
        pods.dedup();
        pods
    }

    fn list_sandboxes(&self, q: v1::ListPodSandboxRequest) -> Vec<v1::PodSandbox> {
        let wanted = q.filter.unwrap_or_default().label_selector;
        let all = self.pods().into_iter().map(|uid| v1::PodSandbox {
            id: format!("s-{uid}"),
            labels: labels(&uid),
            ..Default::default()
        });
        all.filter(|s| wanted.iter().all(|(k, v)| s.labels.get(k) == Some(v)))
            .collect()
    }

    fn list_containers(&self, q: v1::ListContainersRequest) -> Vec<v1::Container> {
        let wanted = q.filter.unwrap_or_default().label_selector;
        let mut world = self.0.lock().unwrap();
        if !wanted.is_empty() {
            *world.calls.entry("a pod's list".to_owned()).or_default() += 1;
        }
        let all = world
            .containers
            .iter()
            .map(|(id, (uid, state))| v1::Container {
                id: id.clone(),
                state: (*state).into(),
                labels: labels(uid),
                ..Default::default()
            });
        all.filter(|c| wanted.iter().all(|(k, v)| c.labels.get(k) == Some(v)))
            .collect()
    }

    fn sandbox(id: String) -> v1::PodSandboxStatusResponse {
        let network = Some(v1::PodSandboxNetworkStatus {
            ip: "10.0.0.1".to_owned(),
            ..Default::default()
        });
        let status = Some(v1::PodSandboxStatus {
            id,
            network,
            ..Default::default()
        });
        v1::PodSandboxStatusResponse {
            status,
            ..Default::default()
        }
    }

    async fn container(
        self,
        q: v1::ContainerStatusRequest,
    ) -> Result<Response<v1::ContainerStatusResponse>, Status> {
        let id = q.container_id;
        let (hangs, held, info, refuses) = {
            let world = self.0.lock().unwrap();
            let held = world.containers.get(&id).cloned();
            let pid = world.pids.get(&id).filter(|_| q.verbose);
            let info = pid.map(|pid| ("info".to_owned(), format!(r#"{{"pid":{pid}}}"#)));
            (
                world.hangs.contains(&id),
                held,
                info,
                q.verbose && world.terse,
            )
        };
        if refuses {
            return Err(Status::unknown("failed to get container spec"));
        }
        if hangs {
            return std::future::pending().await;
        }
        let (uid, state) = held.ok_or_else(|| Status::not_found("gone"))?;
        let status = Some(v1::ContainerStatus {
            id,
            state: state.into(),
            labels: labels(&uid),
            ..Default::default()
        });
        Ok(Response::new(v1::ContainerStatusResponse {
            status,
            info: info.into_iter().collect(),
        }))
    }
}

impl tower_service::Service<http::Request<Body>> for Fake {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Reply;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let fake = self.clone();
        let path = request.uri().path().to_owned();
        let name = path.rsplit('/').next().unwrap_or_default().to_owned();
        *fake
            .0
            .lock()
            .unwrap()
            .calls
            .entry(name.clone())
            .or_default() += 1;
        match name.as_str() {
            "Version" => unary(fake, request, |_, _: v1::VersionRequest| {
                now(v1::VersionResponse::default())
            }),
            "Status" => unary(fake, request, |_, _: v1::StatusRequest| now(well())),
            "ListPodSandbox" => unary(fake, request, |fake, q| {
                let items = fake.list_sandboxes(q);
                now(v1::ListPodSandboxResponse { items })
            }),
            "ListContainers" => unary(fake, request, |fake, q| {
                let containers = fake.list_containers(q);
                now(v1::ListContainersResponse { containers })
            }),
            "PodSandboxStatus" => unary(fake, request, |_, q: v1::PodSandboxStatusRequest| {
                now(Fake::sandbox(q.pod_sandbox_id))
            }),
            "ContainerStatus" => unary(fake, request, |fake, q: v1::ContainerStatusRequest| {
                Box::pin(fake.container(q))
            }),
            _ => Box::pin(async { Ok(Status::unimplemented("no such call").into_http()) }),
        }
    }
}

type Reply = Pin<Box<dyn Future<Output = Result<http::Response<Body>, Infallible>> + Send>>;

fn unary<Q, R>(fake: Fake, request: http::Request<Body>, f: fn(Fake, Q) -> Answer<R>) -> Reply
where
    Q: prost::Message + Default + 'static,
    R: prost::Message + Default + 'static,
{
    Box::pin(async move {
        let mut grpc = Grpc::new(ProstCodec::<R, Q>::default());
        Ok(grpc.unary(Method(fake, f), request).await)
    })
}

fn well() -> v1::StatusResponse {
    let condition = |kind: &str| v1::RuntimeCondition {
        r#type: kind.to_owned(),
        status: true,
        ..Default::default()
    };
    let conditions = vec![condition("RuntimeReady"), condition("NetworkReady")];
    v1::StatusResponse {
        status: Some(v1::RuntimeStatus { conditions }),
        ..Default::default()
    }
}

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
        while self.fake.calls("ListContainers") < wanted {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
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
        fake.0.lock().unwrap().hangs.insert("c1".to_owned());
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
        fake.0.lock().unwrap().hangs.clear();
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
        fake.0.lock().unwrap().containers.clear();
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
    fake.0
        .lock()
        .unwrap()
        .pids
        .insert(id.to_owned(), process.id());
    let test = async {
        let running = Running::start(fake.clone());
        while !running.store.is_whole() {
            running.until_lists(1).await;
        }
        let looks = || fake.calls("a pod's list");
        assert_eq!(looks(), 0, "nobody asked");
        process.kill().unwrap();
        while looks() < 5 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        let held = || running.store.get(&"u".to_owned()).unwrap();
        assert_eq!(held().containers[0].phase(), ContainerPhase::Running);
        fake.set(id, "u", v1::ContainerState::ContainerExited);
        while held().containers[0].phase() != ContainerPhase::Exited {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
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
    fake.0.lock().unwrap().terse = true;
    let test = async {
        let running = Running::start(fake.clone());
        let state = running.refresh("u", "t").await;
        assert_eq!(state.inspect_error, "");
        assert_eq!(state.containers[0].phase(), ContainerPhase::Running);
    };
    LocalSet::new().run_until(test).await;
}
