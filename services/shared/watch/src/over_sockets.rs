//! The contract over real gRPC streams.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use futures::stream::{BoxStream, StreamExt};
use polylet_wire::common::v1::PodRef;
use polylet_wire::pleg::v1::pleg_service_client::PlegServiceClient;
use polylet_wire::pleg::v1::pleg_service_server::{PlegService, PlegServiceServer};
use polylet_wire::pleg::v1::*;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::time::timeout;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::{Channel, Endpoint, Server};
use tonic::{Request, Response, Status};

use crate::{Change, Heard, Store, Update, WatchWire, follow, serve};

type Pods = Store<String, PodState>;

struct Pleg(Pods);

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
        Err(Status::unimplemented("not of this test"))
    }

    async fn watch_runtime(
        &self,
        _: Request<WatchRuntimeRequest>,
    ) -> Result<Response<Self::WatchRuntimeStream>, Status> {
        Err(Status::unimplemented("not of this test"))
    }
}

#[derive(Clone, Default)]
struct Ear(Arc<Mutex<Vec<String>>>);

impl Heard for Ear {
    fn heard(&self, _: &'static str, incarnation: &str, synced: bool) {
        self.0
            .lock()
            .unwrap()
            .push(format!("{incarnation} {synced}"));
    }
    fn lost(&self, stream: &'static str, _: &str) {
        self.0.lock().unwrap().push(format!("lost {stream}"));
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

/// A server with a runtime of its own, so that its end is that of a process: connections too.
struct Process {
    address: SocketAddr,
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Process {
    fn start(pods: &Pods, at: Option<SocketAddr>) -> Process {
        let listener =
            std::net::TcpListener::bind(at.unwrap_or(([127, 0, 0, 1], 0).into())).unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let (end, ended) = oneshot::channel();
        let service = PlegServiceServer::new(Pleg(pods.clone()));
        let serve = async move {
            let incoming = TcpListenerStream::new(TcpListener::from_std(listener).unwrap());
            let server = Server::builder()
                .add_service(service)
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
        Process {
            address,
            end: Some(end),
            thread: Some(thread),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn channel(address: SocketAddr) -> Channel {
    Endpoint::from_shared(format!("http://{address}"))
        .unwrap()
        .connect_lazy()
}

type Told = Update<String, PodState>;

async fn next(updates: &mut (impl futures::Stream<Item = Told> + Unpin)) -> Told {
    timeout(Duration::from_secs(20), updates.next())
        .await
        .expect("an update in time")
        .unwrap()
}

#[tokio::test]
async fn a_restarted_server_shows_as_differences_alone() {
    let first = Pods::new("first");
    first.upsert("a".into(), pod("a", ""));
    let server = Process::start(&first, None);
    let address = server.address;
    let ear = Ear::default();
    let mut updates = follow(ear.clone(), |resume_after| async move {
        PlegServiceClient::new(channel(address))
            .watch_pod_states(WatchPodStatesRequest { resume_after })
            .await
    });

    let silent = timeout(Duration::from_millis(100), updates.next()).await;
    assert!(silent.is_err(), "a server that is not whole says nothing");
    first.upsert("b".into(), pod("b", ""));
    first.mark_whole();
    assert_eq!(
        next(&mut updates).await,
        Update::Upsert("a".into(), pod("a", ""))
    );
    assert_eq!(
        next(&mut updates).await,
        Update::Upsert("b".into(), pod("b", ""))
    );
    assert_eq!(next(&mut updates).await, Update::Synced);
    first.remove(&"a".into());
    assert_eq!(next(&mut updates).await, Update::Remove("a".into()));

    drop(server);
    let second = Pods::new("second");
    second.upsert("b".into(), pod("b", "changed"));
    second.upsert("c".into(), pod("c", ""));
    second.mark_whole();
    assert!(matches!(next(&mut updates).await, Update::Stale(_)));
    let _server = Process::start(&second, Some(address));
    assert_eq!(
        next(&mut updates).await,
        Update::Upsert("b".into(), pod("b", "changed"))
    );
    assert_eq!(
        next(&mut updates).await,
        Update::Upsert("c".into(), pod("c", ""))
    );
    assert_eq!(next(&mut updates).await, Update::Synced);
    let heard = ear.0.lock().unwrap().clone();
    assert!(heard.contains(&"first true".to_owned()), "{heard:?}");
    assert!(
        heard.contains(&"lost WatchPodStates".to_owned()),
        "{heard:?}"
    );
    assert_eq!(heard.last().map(String::as_str), Some("second true"));
}

#[tokio::test(start_paused = true)]
async fn an_idle_stream_repeats_synced() {
    let pods = Pods::new("first");
    pods.mark_whole();
    let mut stream = serve::<WatchPodStatesResponse>(pods.clone(), None);
    let mut read = async || stream.next().await.unwrap().unwrap().unwrap().unwrap();
    assert_eq!(read().await, Change::Reset);
    assert_eq!(read().await, Change::Synced(pods.position()));
    let begun = tokio::time::Instant::now();
    assert_eq!(read().await, Change::Synced(pods.position()));
    assert_eq!(begun.elapsed(), crate::IDLE);
}

#[tokio::test(start_paused = true)]
async fn a_watcher_that_resumes_hears_only_what_changed() {
    let pods = Pods::new("first");
    pods.mark_whole();
    pods.upsert("a".into(), pod("a", ""));
    let position = pods.position();
    pods.upsert("b".into(), pod("b", ""));
    pods.upsert("b".into(), pod("b", "again"));
    let mut stream = serve::<WatchPodStatesResponse>(pods.clone(), Some(position));
    let mut read = async || stream.next().await.unwrap().unwrap().unwrap().unwrap();
    assert_eq!(read().await, Change::Upsert(pod("b", "again")));
    assert_eq!(read().await, Change::Synced(pods.position()));
}

#[test]
fn messages_come_out_as_they_went_in() {
    use crate::PressureKeyOwned;
    use polylet_wire::eviction::v1::WatchPressureResponse;
    use polylet_wire::prober::v1::WatchVerdictsResponse;

    let verdict = ("pod".to_owned(), "container".to_owned(), 2);
    let wrapped = WatchVerdictsResponse::wrap(Change::Remove(verdict.clone()));
    assert_eq!(wrapped.unwrap(), Some(Change::Remove(verdict)));
    for key in [
        PressureKeyOwned::Resource(2),
        PressureKeyOwned::Pod("pod".into()),
    ] {
        let wrapped = WatchPressureResponse::wrap(Change::Remove(key.clone()));
        assert_eq!(wrapped.unwrap(), Some(Change::Remove(key)));
    }
    let nameless = WatchPodStatesResponse::wrap(Change::Upsert(PodState::default()));
    assert_eq!(nameless.unwrap(), None);
    assert_eq!(WatchPodStatesResponse::default().unwrap(), None);
}
