//! The contract over real gRPC streams.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use futures::stream::{BoxStream, StreamExt};
use polylet_model::PodUid;
use polylet_wire::common::v1::PodRef;
use polylet_wire::pleg::v1::pleg_service_client::PlegServiceClient;
use polylet_wire::pleg::v1::pleg_service_server::{PlegService, PlegServiceServer};
use polylet_wire::pleg::v1::*;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::time::timeout;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::service::Routes;
use tonic::transport::{Channel, Endpoint, Server};
use tonic::{Request, Response, Status};

use crate::{Change, Store, StreamObserver, Update, WatchWire, follow, serve, serve_key};

type Pods = Store<PodUid, PodState>;

struct TestServer(Pods);

#[tonic::async_trait]
impl PlegService for TestServer {
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
        Err(Status::unimplemented("not used by this test"))
    }

    async fn watch_runtime(
        &self,
        _: Request<WatchRuntimeRequest>,
    ) -> Result<Response<Self::WatchRuntimeStream>, Status> {
        Err(Status::unimplemented("not used by this test"))
    }
}

#[derive(Clone, Default)]
pub(crate) struct RecordingObserver(pub(crate) Arc<Mutex<Vec<String>>>);

impl StreamObserver for RecordingObserver {
    fn received(&self, _: &'static str, incarnation: &str, synced: bool) {
        self.0
            .lock()
            .unwrap()
            .push(format!("{incarnation} {synced}"));
    }
    fn lost(&self, stream: &'static str, _: &str) {
        self.0.lock().unwrap().push(format!("lost {stream}"));
    }
    fn value_lost(&self, stream: &'static str) {
        self.0.lock().unwrap().push(format!("lost {stream}"));
    }
    fn unknown(&self, _: &'static str, field: Option<&'static str>) {
        self.0.lock().unwrap().push(format!("unknown {field:?}"));
    }
}

fn pod(uid: &str, error: &str) -> PodState {
    let pod = PodRef {
        uid: uid.to_owned(),
        ..PodRef::default()
    };
    PodState {
        r#ref: Some(pod),
        inspect_error: error.to_owned(),
        ..PodState::default()
    }
}

/// A server with a runtime of its own, so that dropping it closes its connections, too.
pub(crate) struct ServerProcess {
    pub(crate) address: SocketAddr,
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl ServerProcess {
    fn start(pods: &Pods, at: Option<SocketAddr>) -> ServerProcess {
        let service = PlegServiceServer::new(TestServer(pods.clone()));
        ServerProcess::of(Routes::new(service), at)
    }

    pub(crate) fn of(services: Routes, at: Option<SocketAddr>) -> ServerProcess {
        let listener =
            std::net::TcpListener::bind(at.unwrap_or(([127, 0, 0, 1], 0).into())).unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let (end, ended) = oneshot::channel();
        let serve = async move {
            let incoming = TcpListenerStream::new(TcpListener::from_std(listener).unwrap());
            let server = Server::builder()
                .add_routes(services)
                .serve_with_incoming(incoming);
            tokio::select! {
                result = server => result.unwrap(),
                _ = ended => {}
            }
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let thread = std::thread::spawn(move || runtime.block_on(serve));
        ServerProcess {
            address,
            end: Some(end),
            thread: Some(thread),
        }
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

pub(crate) fn channel(address: SocketAddr) -> Channel {
    Endpoint::from_shared(format!("http://{address}"))
        .unwrap()
        .connect_lazy()
}

type PodUpdate = Update<PodUid, PodState>;

async fn next(updates: &mut (impl futures::Stream<Item = PodUpdate> + Unpin)) -> PodUpdate {
    timeout(Duration::from_secs(20), updates.next())
        .await
        .expect("an update in time")
        .unwrap()
}

#[tokio::test]
async fn a_restart_of_the_server_yields_only_differences() {
    let first = Pods::new("first");
    first.upsert("a".into(), pod("a", ""));
    let server = ServerProcess::start(&first, None);
    let address = server.address;
    let observer = RecordingObserver::default();
    let mut updates = follow(observer.clone(), |resume_after| async move {
        PlegServiceClient::new(channel(address))
            .watch_pod_states(WatchPodStatesRequest { resume_after })
            .await
    });

    let silent = timeout(Duration::from_millis(100), updates.next()).await;
    assert!(
        silent.is_err(),
        "a server that has not synced sends nothing"
    );
    first.upsert("b".into(), pod("b", ""));
    first.mark_synced();
    assert_eq!(
        next(&mut updates).await,
        Update::Upsert("a".into(), pod("a", ""))
    );
    assert_eq!(
        next(&mut updates).await,
        Update::Upsert("b".into(), pod("b", ""))
    );
    assert_eq!(next(&mut updates).await, Update::Synced);
    first.remove("a");
    assert_eq!(next(&mut updates).await, Update::Remove("a".into()));

    drop(server);
    let second = Pods::new("second");
    second.upsert("b".into(), pod("b", "changed"));
    second.upsert("c".into(), pod("c", ""));
    second.mark_synced();
    assert!(matches!(next(&mut updates).await, Update::Stale(_)));
    let _server = ServerProcess::start(&second, Some(address));
    assert_eq!(
        next(&mut updates).await,
        Update::Upsert("b".into(), pod("b", "changed"))
    );
    assert_eq!(
        next(&mut updates).await,
        Update::Upsert("c".into(), pod("c", ""))
    );
    assert_eq!(next(&mut updates).await, Update::Synced);
    let received = observer.0.lock().unwrap().clone();
    assert!(received.contains(&"first true".to_owned()), "{received:?}");
    assert!(
        received.contains(&"lost WatchPodStates".to_owned()),
        "{received:?}"
    );
    assert_eq!(received.last().map(String::as_str), Some("second true"));
}

#[tokio::test]
async fn a_value_of_a_newer_server_is_unknown_and_not_absent() {
    const PHASE: &str = "polylet.pleg.v1.Container.phase";
    let newer = |uid: &str| PodState {
        containers: vec![Container {
            phase: 77,
            ..Container::default()
        }],
        ..pod(uid, "")
    };
    let first = Pods::new("first");
    first.upsert("a".into(), pod("a", ""));
    first.upsert("b".into(), pod("b", ""));
    first.mark_synced();
    let server = ServerProcess::start(&first, None);
    let address = server.address;
    let observer = RecordingObserver::default();
    let mut updates = follow(observer.clone(), |resume_after| async move {
        PlegServiceClient::new(channel(address))
            .watch_pod_states(WatchPodStatesRequest { resume_after })
            .await
    });
    while next(&mut updates).await != Update::Synced {}
    first.upsert("a".into(), newer("a"));
    let Update::Stale(reason) = next(&mut updates).await else {
        panic!("handed on");
    };
    assert!(reason.starts_with(PHASE), "{reason}");
    // The others are followed on.
    first.upsert("b".into(), pod("b", "changed"));
    let changed = Update::Upsert("b".into(), pod("b", "changed"));
    assert_eq!(next(&mut updates).await, changed);

    drop(server);
    let second = Pods::new("second");
    second.upsert("a".into(), newer("a"));
    second.mark_synced();
    let _server = ServerProcess::start(&second, Some(address));
    assert_eq!(next(&mut updates).await, Update::Remove("b".into()));
    second.upsert("a".into(), pod("a", "known"));
    let known = Update::Upsert("a".into(), pod("a", "known"));
    assert_eq!(next(&mut updates).await, known);
    assert_eq!(next(&mut updates).await, Update::Synced);
    let received = observer.0.lock().unwrap().clone();
    assert!(received.contains(&format!("unknown {:?}", Some(PHASE))));
    assert!(
        received.contains(&"unknown None".to_owned()),
        "{received:?}"
    );
}

/// Whether an idle stream has waited for this long: its clock is not the paused one.
fn is_heartbeat(waited: Duration) -> bool {
    (Duration::from_secs(1)..=crate::pulse::HEARTBEAT + Duration::from_secs(1)).contains(&waited)
}

#[tokio::test(start_paused = true)]
async fn an_idle_stream_repeats_synced() {
    let pods = Pods::new("first");
    pods.mark_synced();
    let mut stream = serve::<WatchPodStatesResponse>(pods.clone(), None);
    let mut read = async || stream.next().await.unwrap().unwrap().into_change().unwrap();
    assert_eq!(read().await, Change::Reset);
    assert_eq!(read().await, Change::Synced(pods.position()));
    let begun = tokio::time::Instant::now();
    assert_eq!(read().await, Change::Synced(pods.position()));
    assert!(is_heartbeat(begun.elapsed()));
}

#[tokio::test(start_paused = true)]
async fn a_watch_of_one_key_receives_nothing_of_the_others() {
    let pods = Pods::new("first");
    pods.upsert("a".into(), pod("a", ""));
    pods.upsert("b".into(), pod("b", ""));
    pods.mark_synced();
    let mut stream = serve_key::<WatchPodStatesResponse>(pods.clone(), "a".into(), None);
    let mut read = async || stream.next().await.unwrap().unwrap().into_change().unwrap();
    assert_eq!(read().await, Change::Reset);
    assert_eq!(read().await, Change::Upsert(pod("a", "")));
    assert_eq!(read().await, Change::Synced(pods.position()));

    // Others change all the time, with more removals than the server remembers.
    let others = pods.clone();
    let churn = tokio::spawn(async move {
        for n in 0..3 * crate::log::REMOVALS {
            let uid = format!("other {n}");
            others.upsert(uid.as_str().into(), pod(&uid, ""));
            others.remove(uid.as_str());
            tokio::time::sleep(crate::pulse::HEARTBEAT / 1024).await;
        }
    });
    // Read all the while: of a stream that waits to be read, the position may become too old.
    while !churn.is_finished() {
        let begun = tokio::time::Instant::now();
        let Change::Synced(_) = read().await else {
            panic!("a change of another key was sent");
        };
        let waited = begun.elapsed();
        assert!(
            is_heartbeat(waited),
            "only the idle stream's message, after {waited:?}"
        );
    }
    churn.await.unwrap();
    pods.upsert("a".into(), pod("a", "changed"));
    assert_eq!(read().await, Change::Upsert(pod("a", "changed")));
    assert_eq!(read().await, Change::Synced(pods.position()));
    pods.remove("a");
    assert_eq!(read().await, Change::Remove("a".into()));
}

#[tokio::test(start_paused = true)]
async fn a_resumed_watch_yields_only_changes() {
    let pods = Pods::new("first");
    pods.mark_synced();
    pods.upsert("a".into(), pod("a", ""));
    let position = pods.position();
    pods.upsert("b".into(), pod("b", ""));
    pods.upsert("b".into(), pod("b", "again"));
    let mut stream = serve::<WatchPodStatesResponse>(pods.clone(), Some(position));
    let mut read = async || stream.next().await.unwrap().unwrap().into_change().unwrap();
    assert_eq!(read().await, Change::Upsert(pod("b", "again")));
    assert_eq!(read().await, Change::Synced(pods.position()));
}

#[test]
fn messages_are_converted_both_ways() {
    use crate::PressureItemKey;
    use polylet_wire::eviction::v1::WatchPressureResponse;
    use polylet_wire::prober::v1::WatchProbeStatusesResponse;

    let status = ("pod".into(), "container".to_owned(), 2);
    let wrapped = WatchProbeStatusesResponse::from_change(Change::Remove(status.clone()));
    assert_eq!(wrapped.into_change(), Some(Change::Remove(status)));
    for key in [
        PressureItemKey::Resource(2),
        PressureItemKey::Pod("pod".into()),
    ] {
        let wrapped = WatchPressureResponse::from_change(Change::Remove(key.clone()));
        assert_eq!(wrapped.into_change(), Some(Change::Remove(key)));
    }
    let nameless = WatchPodStatesResponse::from_change(Change::Upsert(PodState::default()));
    assert_eq!(nameless.into_change(), None);
    assert_eq!(WatchPodStatesResponse::default().into_change(), None);
}
