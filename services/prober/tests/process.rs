//! The real process with a pleg and a pod-config made of real stores.

use std::path::Path;
use std::process::{Child, Command};
use std::time::Duration;

use futures::StreamExt;
use futures::stream::BoxStream;
use hyper_util::rt::TokioIo;
use polylet_model::PodUid;
use polylet_watch::{ProbeItemKey, Store, StreamObserver, Update, follow, serve};
use polylet_wire::common::v1::{Cause, PodRef};
use polylet_wire::pleg::v1::pleg_service_server::{PlegService, PlegServiceServer};
use polylet_wire::pleg::v1::*;
use polylet_wire::podconfig::v1::pod_config_service_server::{
    PodConfigService, PodConfigServiceServer,
};
use polylet_wire::podconfig::v1::*;
use polylet_wire::prober::v1::prober_service_client::ProberServiceClient;
use polylet_wire::prober::v1::{
    ListProbeCountsRequest, Outcome, ProbeKind, ProbeStatus, WatchProbeStatusesRequest,
};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, UnixListener, UnixStream};
use tokio::time::timeout;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::{Channel, Endpoint, Server, Uri};
use tonic::{Request, Response, Status};

/// The trace of the pods' start.
const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";

type Pods = Store<PodUid, Pod>;
type States = Store<PodUid, PodState>;
type StatusUpdate = Update<ProbeItemKey, ProbeStatus>;

struct Pleg(States);

#[tonic::async_trait]
impl PlegService for Pleg {
    type WatchPodStatesStream = BoxStream<'static, Result<WatchPodStatesResponse, Status>>;
    type WatchRuntimeStream = BoxStream<'static, Result<WatchRuntimeResponse, Status>>;

    async fn watch_pod_states(
        &self,
        request: Request<WatchPodStatesRequest>,
    ) -> Result<Response<Self::WatchPodStatesStream>, Status> {
        Ok(Response::new(serve(
            self.0.clone(),
            request.into_inner().resume_after,
        )))
    }

    async fn refresh_pod(
        &self,
        _: Request<RefreshPodRequest>,
    ) -> Result<Response<RefreshPodResponse>, Status> {
        Err(Status::unimplemented("not used by the prober"))
    }

    async fn watch_runtime(
        &self,
        _: Request<WatchRuntimeRequest>,
    ) -> Result<Response<Self::WatchRuntimeStream>, Status> {
        Err(Status::unimplemented("not used by the prober"))
    }
}

/// Pods from files; the API source never syncs.
struct PodConfig {
    files: Pods,
    api: Pods,
}

#[tonic::async_trait]
impl PodConfigService for PodConfig {
    type WatchPodsStream = BoxStream<'static, Result<WatchPodsResponse, Status>>;

    async fn watch_pods(
        &self,
        request: Request<WatchPodsRequest>,
    ) -> Result<Response<Self::WatchPodsStream>, Status> {
        let request = request.into_inner();
        let store = if request.source() == PodSource::File {
            &self.files
        } else {
            &self.api
        };
        Ok(Response::new(serve(store.clone(), request.resume_after)))
    }

    type WatchMirrorPodsStream = BoxStream<'static, Result<WatchMirrorPodsResponse, Status>>;

    async fn watch_mirror_pods(
        &self,
        _: Request<WatchMirrorPodsRequest>,
    ) -> Result<Response<Self::WatchMirrorPodsStream>, Status> {
        Err(Status::unimplemented("not used by the prober"))
    }

    type WatchNodeStream = BoxStream<'static, Result<WatchNodeResponse, Status>>;

    async fn watch_node(
        &self,
        _: Request<WatchNodeRequest>,
    ) -> Result<Response<Self::WatchNodeStream>, Status> {
        Err(Status::unimplemented("not used by the prober"))
    }

    async fn list_manifest_errors(
        &self,
        _: Request<ListManifestErrorsRequest>,
    ) -> Result<Response<ListManifestErrorsResponse>, Status> {
        Err(Status::unimplemented("not used by the prober"))
    }
}

struct NoObserver;

impl StreamObserver for NoObserver {
    fn received(&self, _: &'static str, _: &str, _: bool) {}
    fn lost(&self, _: &'static str, _: &str) {}
    fn value_lost(&self, _: &'static str) {}
    fn unknown(&self, _: &'static str, _: Option<&'static str>) {}
}

/// The process under test, killed on drop.
struct Prober(Child);

impl Prober {
    fn start(config: &Path) -> Self {
        let program = env!("CARGO_BIN_EXE_polylet-prober");
        Prober(
            Command::new(program)
                .arg("--config")
                .arg(config)
                .spawn()
                .unwrap(),
        )
    }
}

impl Prober {
    /// Stops the process with SIGTERM.
    fn stop(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.0);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        assert!(self.0.wait().unwrap().success());
    }
}

impl Drop for Prober {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

struct Node {
    dir: tempfile::TempDir,
    files: Pods,
    states: States,
}

impl Node {
    fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (files, api, states) = (Pods::new("1"), Pods::new("1"), States::new("1"));
        files.mark_synced();
        states.mark_synced();
        let sock = |name: &str| {
            UnixListenerStream::new(UnixListener::bind(dir.path().join(name)).unwrap())
        };
        let pod_config = Server::builder()
            .add_service(PodConfigServiceServer::new(PodConfig {
                files: files.clone(),
                api,
            }))
            .serve_with_incoming(sock("pod-config.sock"));
        let pleg = Server::builder()
            .add_service(PlegServiceServer::new(Pleg(states.clone())))
            .serve_with_incoming(sock("pleg.sock"));
        tokio::task::spawn_local(async move { pod_config.await.unwrap() });
        tokio::task::spawn_local(async move { pleg.await.unwrap() });
        let at = dir.path().display();
        let config = format!(
            "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n\
             containerRuntimeEndpoint: unix://{at}/nothing.sock\n---\n\
             apiVersion: polylet.dev/v1alpha1\nkind: PolyletConfiguration\n\
             runDirectory: {at}\nstateDirectory: {at}/state\n"
        );
        std::fs::write(dir.path().join("config.yaml"), config).unwrap();
        Node { dir, files, states }
    }

    fn prober(&self) -> Prober {
        Prober::start(&self.dir.path().join("config.yaml"))
    }

    fn channel(&self) -> Channel {
        let socket = self.dir.path().join("prober.sock");
        Endpoint::from_static("http://localhost").connect_with_connector_lazy(tower::service_fn(
            move |_: Uri| {
                let socket = socket.clone();
                async move { UnixStream::connect(socket).await.map(TokioIo::new) }
            },
        ))
    }

    fn statuses(&self) -> impl futures::Stream<Item = StatusUpdate> + Unpin + use<> {
        let channel = self.channel();
        follow(NoObserver, move |resume_after| {
            let channel = channel.clone();
            async move {
                ProberServiceClient::new(channel)
                    .watch_probe_statuses(WatchProbeStatusesRequest { resume_after })
                    .await
            }
        })
    }

    fn run_pod(&self, container: &str, probes: Value) {
        let uid = "u1";
        let mut spec = json!({"name": "main", "image": "x"});
        spec.as_object_mut()
            .unwrap()
            .extend(probes.as_object().unwrap().clone());
        let manifest = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "web", "namespace": "default", "uid": uid},
            "spec": {"containers": [spec]},
        });
        let pod = Some(PodRef {
            uid: uid.into(),
            namespace: "default".into(),
            name: "web".into(),
        });
        let manifest = manifest.to_string().into();
        self.files.upsert(
            uid.into(),
            Pod {
                r#ref: pod.clone(),
                manifest,
                ..Pod::default()
            },
        );
        let main = Container {
            id: container.to_owned(),
            name: "main".to_owned(),
            phase: ContainerPhase::Running as i32,
            started_at: Some(polylet_wire::time::now()),
            ..Container::default()
        };
        let sandbox = Sandbox {
            ips: vec!["127.0.0.1".to_owned()],
            ..Sandbox::default()
        };
        let (sandboxes, containers) = (vec![sandbox], vec![main]);
        let traceparent = format!("00-{TRACE}-b7ad6b7169203331-01");
        let cause = Some(Cause {
            traceparent,
            ..Cause::default()
        });
        let state = PodState {
            r#ref: pod,
            sandboxes,
            containers,
            cause,
            ..PodState::default()
        };
        self.states.upsert(uid.into(), state);
    }
}

/// A server that responds with 503 this many times, and then with 200.
async fn server(mut refusals: u32) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::task::spawn_local(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.read(&mut [0; 1024]).await;
            let status = if refusals > 0 { 503 } else { 200 };
            refusals = refusals.saturating_sub(1);
            let response =
                format!("HTTP/1.1 {status} X\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
            let _ = stream.write_all(response.as_bytes()).await;
        }
    });
    port
}

async fn next(statuses: &mut (impl futures::Stream<Item = StatusUpdate> + Unpin)) -> StatusUpdate {
    timeout(Duration::from_secs(20), statuses.next())
        .await
        .expect("an update in time")
        .unwrap()
}

fn upsert(update: StatusUpdate) -> ProbeStatus {
    match update {
        Update::Upsert(_, status) => status,
        other => panic!("{other:?} is not an upsert"),
    }
}

#[tokio::test(flavor = "local")]
async fn results_survive_a_restart_of_the_process() {
    let node = Node::start();
    let mut statuses = node.statuses();
    let prober = node.prober();
    assert_eq!(next(&mut statuses).await, Update::Synced);
    let port = server(3).await;
    node.run_pod(
        "c1",
        json!({
            "startupProbe": {"tcpSocket": {"port": port}},
            "readinessProbe": {"httpGet": {"port": port}, "periodSeconds": 300},
        }),
    );
    let started = upsert(next(&mut statuses).await);
    assert_eq!(started.key.unwrap().kind(), ProbeKind::Startup);
    let ready = upsert(next(&mut statuses).await);
    assert_eq!((ready.outcome(), ready.run_length), (Outcome::Success, 1));
    assert_eq!(ready.key.unwrap().container_id, "c1");

    let cause = ready.cause.unwrap().traceparent;
    assert!(
        cause.contains(TRACE),
        "{cause} is not in the trace of the pod's start"
    );

    drop(prober);
    assert!(matches!(next(&mut statuses).await, Update::Stale(_)));
    let mut prober = node.prober();
    // The results are unchanged.
    assert_eq!(next(&mut statuses).await, Update::Synced);

    prober.stop();
    assert!(matches!(next(&mut statuses).await, Update::Stale(_)));
    // The container is removed while the prober is down.
    node.states.remove("u1".to_owned().as_str());
    let _prober = node.prober();
    for _ in 0..2 {
        assert!(matches!(next(&mut statuses).await, Update::Remove(_)));
    }
    assert_eq!(next(&mut statuses).await, Update::Synced);
}

#[tokio::test(flavor = "local")]
async fn restarted_container_has_its_own_result() {
    let node = Node::start();
    let mut statuses = node.statuses();
    let _prober = node.prober();
    assert_eq!(next(&mut statuses).await, Update::Synced);
    let port = server(0).await;
    let probes = json!({"readinessProbe": {"httpGet": {"port": port}}});
    node.run_pod("c1", probes.clone());
    assert_eq!(
        upsert(next(&mut statuses).await).key.unwrap().container_id,
        "c1"
    );
    node.run_pod("c2", probes);
    let mut updates = [next(&mut statuses).await, next(&mut statuses).await];
    updates.sort_by_key(|update| matches!(update, Update::Upsert(..)));
    let [gone, new] = updates;
    assert!(matches!(gone, Update::Remove((_, container, _)) if container == "c1"));
    assert_eq!(upsert(new).key.unwrap().container_id, "c2");
}

#[tokio::test(flavor = "local")]
async fn liveness_fails_after_its_threshold() {
    let node = Node::start();
    let mut statuses = node.statuses();
    let _prober = node.prober();
    assert_eq!(next(&mut statuses).await, Update::Synced);
    let port = server(u32::MAX).await;
    let probe = json!({"httpGet": {"port": port}, "periodSeconds": 1, "failureThreshold": 2});
    node.run_pod("c1", json!({"livenessProbe": probe}));
    let failed = upsert(next(&mut statuses).await);
    assert_eq!((failed.outcome(), failed.run_length), (Outcome::Failure, 2));
    assert_eq!(failed.message, "HTTP probe failed with statuscode: 503");
    let mut client = ProberServiceClient::new(node.channel());
    let counts = client.list_probe_counts(ListProbeCountsRequest {}).await;
    let counts = counts.unwrap().into_inner().probes;
    let [liveness] = counts.as_slice() else {
        panic!("{counts:?}");
    };
    assert_eq!(
        (liveness.kind(), liveness.successful, liveness.failed),
        (ProbeKind::Liveness, 0, 2)
    );
}
