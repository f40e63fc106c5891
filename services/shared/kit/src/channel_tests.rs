use std::sync::{Arc, Mutex};

use futures::FutureExt;
use polylet_wire::lifecycle::v1::lifecycle_service_server::{
    LifecycleService, LifecycleServiceServer,
};
use polylet_wire::lifecycle::v1::{
    Api, DrainRequest, DrainResponse, GetInfoRequest, GetInfoResponse, ListMetricsRequest,
    ListMetricsResponse, SetLogVerbosityRequest, SetLogVerbosityResponse,
};
use polylet_wire::status::v1::status_service_client::StatusServiceClient;
use polylet_wire::status::v1::status_service_server::{StatusService, StatusServiceServer};
use polylet_wire::status::v1::*;
use tonic::Status;

use super::*;
use crate::serve::{Routes, serve};

#[test]
fn timeouts() {
    assert_eq!(parse_timeout("10S"), Some(Duration::from_secs(10)));
    assert_eq!(
        parse_timeout("99999999H"),
        Some(Duration::from_secs(99_999_999 * 3600))
    );
    assert_eq!(parse_timeout("5m"), Some(Duration::from_millis(5)));
    for bad in ["", "S", "é", "1", "999999999S", "-1S", "1x"] {
        assert_eq!(parse_timeout(bad), None, "{bad}");
    }
}

#[test]
fn calls_have_a_deadline_and_streams_none() {
    let request = |path: &str| Request::builder().uri(path).body(Body::empty()).unwrap();
    assert_eq!(
        set_deadline(&mut request("/polylet.pleg.v1.PlegService/WatchRuntime")),
        None
    );
    let mut call = request("/polylet.pleg.v1.PlegService/RefreshPod");
    assert_eq!(set_deadline(&mut call), Some(DEFAULT_DEADLINE));
    assert_eq!(call.headers()["grpc-timeout"], "10000m");
    let mut named = request("/a/B");
    named
        .headers_mut()
        .try_insert("grpc-timeout", HeaderValue::from_static("3S"))
        .unwrap();
    assert_eq!(set_deadline(&mut named), Some(Duration::from_secs(3)));
}

/// Records the metadata of calls.
#[derive(Clone, Default)]
struct Server {
    seen: Arc<Mutex<Vec<tonic::metadata::MetadataMap>>>,
}

#[tonic::async_trait]
impl StatusService for Server {
    type WatchPodStatusesStream =
        futures::stream::Pending<Result<WatchPodStatusesResponse, tonic::Status>>;

    async fn watch_pod_statuses(
        &self,
        _: tonic::Request<WatchPodStatusesRequest>,
    ) -> Result<tonic::Response<Self::WatchPodStatusesStream>, Status> {
        Ok(tonic::Response::new(futures::stream::pending()))
    }

    async fn list_pod_statuses(
        &self,
        request: tonic::Request<ListPodStatusesRequest>,
    ) -> Result<tonic::Response<ListPodStatusesResponse>, Status> {
        self.seen.lock().unwrap().push(request.metadata().clone());
        if request.get_ref().pod_uid == "slow" {
            std::future::pending::<()>().await;
        }
        Ok(tonic::Response::new(ListPodStatusesResponse::default()))
    }
}

fn started(socket: &Path, server: Server) -> tokio::task::JoinHandle<()> {
    let listener = crate::listener::bind(socket).unwrap();
    let mut routes = Routes::default();
    routes.add(StatusServiceServer::new(server));
    tokio::spawn(async move {
        let _ = serve(listener, routes, std::future::pending()).await;
    })
}

#[tokio::test]
async fn calls_succeed_again_after_the_peer_restarted() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("x.sock");
    let mut client = StatusServiceClient::new(Channel::new("x", &socket, &[], Arc::default()));
    let server = Server::default();
    let first = started(&socket, server.clone());
    client
        .list_pod_statuses(ListPodStatusesRequest::default())
        .await
        .unwrap();
    let metadata = server.seen.lock().unwrap().pop().unwrap();
    assert_eq!(metadata.get("grpc-timeout").unwrap(), "10000m");
    assert!(metadata.get("traceparent").is_none(), "no span, no trace");
    first.abort();
    assert!(first.await.is_err());
    let _second = started(&socket, server);
    // The first call may still use the old connection.
    let again = async |client: &mut StatusServiceClient<Channel>| {
        client
            .list_pod_statuses(ListPodStatusesRequest::default())
            .await
            .is_ok()
    };
    assert!(again(&mut client).await || again(&mut client).await);
}

/// The connection to a peer that drains stays open for the sake of a stream, and takes calls that it does
/// not send.
#[tokio::test]
async fn a_call_that_was_not_sent_goes_to_the_next_process() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("x.sock");
    let listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let process = |server, stop| {
        let mut routes = Routes::default();
        routes.add(StatusServiceServer::new(server));
        // The socket outlives the process.
        serve(listener.try_clone().unwrap(), routes, stop)
    };
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let stopped = async { drop(stopped.await) }.boxed();
    let first = tokio::spawn(process(Server::default(), stopped));
    let channel = Channel::new("x", &socket, &[], Arc::default());
    let mut client = StatusServiceClient::new(channel);
    let request = WatchPodStatusesRequest::default();
    let _stream = client.watch_pod_statuses(request).await.unwrap();
    drop(stop);
    let next = Server::default();
    let _second = tokio::spawn(process(next.clone(), std::future::pending().boxed()));
    // The first one answers until the client knows that it drains.
    while next.seen.lock().unwrap().is_empty() {
        let request = ListPodStatusesRequest::default();
        client.list_pod_statuses(request).await.unwrap();
    }
    assert!(!first.is_finished());
}

/// Serves `GetInfo` of a build that serves the status package at a level.
struct Info(u32);

#[tonic::async_trait]
impl LifecycleService for Info {
    async fn get_info(
        &self,
        _: tonic::Request<GetInfoRequest>,
    ) -> Result<tonic::Response<GetInfoResponse>, Status> {
        let api = Api {
            package: "polylet.status.v1".to_owned(),
            level: self.0,
        };
        Ok(tonic::Response::new(GetInfoResponse {
            serves: vec![api],
            ..GetInfoResponse::default()
        }))
    }

    async fn drain(
        &self,
        _: tonic::Request<DrainRequest>,
    ) -> Result<tonic::Response<DrainResponse>, Status> {
        Err(Status::unimplemented("not needed"))
    }

    async fn list_metrics(
        &self,
        _: tonic::Request<ListMetricsRequest>,
    ) -> Result<tonic::Response<ListMetricsResponse>, Status> {
        Err(Status::unimplemented("not needed"))
    }

    async fn set_log_verbosity(
        &self,
        _: tonic::Request<SetLogVerbosityRequest>,
    ) -> Result<tonic::Response<SetLogVerbosityResponse>, Status> {
        Err(Status::unimplemented("not needed"))
    }
}

/// A server with a runtime of its own, with which its connections end, as with a process.
struct Build {
    stop: tokio::sync::oneshot::Sender<()>,
    thread: std::thread::JoinHandle<()>,
}

impl Build {
    fn started(socket: &Path, server: &Server, level: u32) -> Build {
        let listener = crate::listener::bind(socket).unwrap();
        let mut routes = Routes::default();
        routes.add(StatusServiceServer::new(server.clone()));
        routes.add(LifecycleServiceServer::new(Info(level)));
        let (stop, stopped) = tokio::sync::oneshot::channel();
        let thread = std::thread::spawn(move || {
            let mut runtime = tokio::runtime::Builder::new_current_thread();
            let runtime = runtime.enable_all().build().unwrap();
            runtime.block_on(async {
                tokio::select! {
                    _ = serve(listener, routes, std::future::pending()) => {}
                    _ = stopped => {}
                }
            });
        });
        Build { stop, thread }
    }

    fn stop(self) {
        self.stop.send(()).unwrap();
        self.thread.join().unwrap();
    }
}

#[tokio::test]
async fn an_older_peer_is_not_used_until_it_is_upgraded() {
    const CALLS: &[Dependency] = &[Dependency {
        service: "old-status",
        package: "polylet.status.v1",
        level: 3,
    }];
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("x.sock");
    let server = Server::default();
    let channel = Channel::new("old-status", &socket, CALLS, Arc::default());
    let mut client = StatusServiceClient::new(channel);
    let mut call = async || {
        let request = ListPodStatusesRequest::default();
        client.list_pod_statuses(request).await.map(drop)
    };
    let condition = || {
        let all = crate::HealthConditions::of_process().to_wire();
        let mut of_peer = all.into_iter().filter(|one| one.object == "old-status");
        of_peer.next().map(|one| (one.reason, one.message))
    };
    let old = Build::started(&socket, &server, 2);
    for _ in 0..2 {
        let refused = call().await.unwrap_err();
        assert_eq!(refused.code(), tonic::Code::FailedPrecondition);
    }
    assert!(server.seen.lock().unwrap().is_empty(), "nothing was called");
    let (reason, message) = condition().unwrap();
    assert_eq!(reason, "PeerIncompatible");
    let expected = "serves polylet.status.v1 at level 2, needed is 3";
    assert!(message.contains(expected), "{message}");

    old.stop();
    let new = Build::started(&socket, &server, 4);
    // Calls may still meet the end of the old connection.
    let mut attempts = 0..100;
    while call().await.is_err() {
        assert!(attempts.next().is_some(), "never used");
    }
    assert_eq!((condition(), server.seen.lock().unwrap().len()), (None, 1));

    new.stop();
    let old = Build::started(&socket, &server, 2);
    let mut attempts = 0..100;
    while call().await.unwrap_err().code() != tonic::Code::FailedPrecondition {
        assert!(attempts.next().is_some(), "never refused");
    }
    assert!(condition().is_some());
    old.stop();
}

#[tokio::test]
async fn deadlines_apply_before_a_connection_is_accepted() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("x.sock");
    // Listens without accepting, like a peer that restarts.
    let _listener = crate::listener::bind(&socket).unwrap();
    let mut client = StatusServiceClient::new(Channel::new("x", &socket, &[], Arc::default()));
    let mut request = tonic::Request::new(ListPodStatusesRequest::default());
    request.set_timeout(Duration::from_millis(50));
    let status = client.list_pod_statuses(request).await.unwrap_err();
    assert_eq!(status.code(), tonic::Code::DeadlineExceeded);
    assert_eq!(status.message(), "no response from x within 50ms");
}

#[tokio::test]
async fn a_slow_response_is_cut_off_at_the_deadline() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("x.sock");
    let _server = started(&socket, Server::default());
    let mut client = StatusServiceClient::new(Channel::new("x", &socket, &[], Arc::default()));
    let mut request = tonic::Request::new(ListPodStatusesRequest {
        pod_uid: "slow".to_owned(),
        ..ListPodStatusesRequest::default()
    });
    request.set_timeout(Duration::from_millis(50));
    let status = client.list_pod_statuses(request).await.unwrap_err();
    assert_eq!(status.code(), tonic::Code::DeadlineExceeded);
}

#[tokio::test]
async fn the_error_names_a_missing_socket() {
    let mut client = StatusServiceClient::new(Channel::new(
        "x",
        Path::new("/nonexistent/x.sock"),
        &[],
        Arc::default(),
    ));
    let status = client
        .list_pod_statuses(ListPodStatusesRequest::default())
        .await
        .unwrap_err();
    assert_eq!(status.code(), tonic::Code::Unavailable);
    assert!(
        crate::report(&status).contains("/nonexistent/x.sock"),
        "{status:?}"
    );
}

#[tokio::test]
async fn the_callers_trace_context_is_sent() {
    use opentelemetry::trace::TracerProvider;
    use tracing::Instrument;
    use tracing_subscriber::layer::SubscriberExt;

    let provider = opentelemetry_sdk::trace::SdkTracerProvider::builder().build();
    let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("test"));
    let _set = tracing::subscriber::set_default(tracing_subscriber::registry().with(layer));
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("x.sock");
    let server = Server::default();
    let _serving = started(&socket, server.clone());
    let mut client = StatusServiceClient::new(Channel::new("x", &socket, &[], Arc::default()));
    let span = tracing::info_span!("caller");
    client
        .list_pod_statuses(ListPodStatusesRequest::default())
        .instrument(span.clone())
        .await
        .unwrap();
    let metadata = server.seen.lock().unwrap().pop().unwrap();
    let sent = metadata.get("traceparent").unwrap().to_str().unwrap();
    assert_eq!(sent, crate::cause::from_span(&span).traceparent);
    // And from data to the parent of a span in another process.
    let worker = tracing::info_span!(parent: None, "worker");
    crate::cause::follow(&worker, Some(&crate::cause::from_span(&span)));
    let trace = |traceparent: &str| traceparent[3..35].to_owned();
    assert_eq!(
        trace(&crate::cause::from_span(&worker).traceparent),
        trace(sent)
    );
    crate::cause::start_trace(&tracing::info_span!("too late is no fault"));
}

/// Each follower of a log holds a stream.
#[tokio::test]
async fn many_streams_of_one_connection_hold_up_no_call() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("status.sock");
    let server = started(&socket, Server::default());
    let watched = Arc::new(AtomicBool::new(false));
    let channel = Channel::new("status-reporter", &socket, &[], watched.clone());
    let mut held = Vec::new();
    for _ in 0..600 {
        let mut client = StatusServiceClient::new(channel.clone().unwatched());
        let stream = client.watch_pod_statuses(WatchPodStatusesRequest::default());
        held.push(stream.await.unwrap());
    }
    assert!(!watched.load(Ordering::Relaxed));
    let mut client = StatusServiceClient::new(channel.clone());
    let listed = client.list_pod_statuses(ListPodStatusesRequest::default());
    listed.await.unwrap();
    let connections = channel.handshake.connections();
    assert_eq!(connections.load(Ordering::Relaxed), 1);
    let followed = client.watch_pod_statuses(WatchPodStatusesRequest::default());
    followed.await.unwrap();
    assert!(watched.load(Ordering::Relaxed));
    server.abort();
}
