//! A proxy before the runtime that delays all calls for some pods by 30 seconds.

use std::convert::Infallible;
use std::future::Future;
use std::marker::PhantomData;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use polylet_e2e::{RUNS, ok};
use serde_json::json;
use tokio::net::UnixListener;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::body::Body;
use tonic::codegen::Service;
use tonic::codegen::http::{Request, Response};
use tonic::server::NamedService;
use tonic::transport::Channel;

use crate::faulty_node::{FaultyNode, bound};

/// Calls whose message contains this name are delayed.
const SLOW: &[u8] = b"slow-runtime";
/// The delay.
const DELAY: Duration = Duration::from_secs(30);

/// The proxy; stopped on drop.
pub(crate) struct RuntimeProxy {
    serve: JoinHandle<()>,
    over: Arc<Notify>,
}

impl Drop for RuntimeProxy {
    fn drop(&mut self) {
        self.serve.abort();
    }
}

/// Ends the delay of calls in progress on drop.
pub(crate) struct SlowCalls(Arc<Notify>);

impl Drop for SlowCalls {
    fn drop(&mut self) {
        self.0.notify_waiters();
    }
}

/// A pod whose start and whose probe are calls that take half a minute.
pub(crate) async fn slow_calls(node: &FaultyNode) -> SlowCalls {
    let probe = json!({ "exec": { "command": ["echo", "slow-runtime"] },
        "periodSeconds": 1, "timeoutSeconds": 2 });
    let more = json!({ "container": { "readinessProbe": probe } });
    node.create(&bound("slow-runtime", RUNS, &more)).await;
    SlowCalls(Arc::clone(&node.proxy.over))
}

impl RuntimeProxy {
    /// Listens on `socket` and forwards to `endpoint`.
    pub(crate) fn start(socket: &Path, endpoint: &str) -> Self {
        let runtime = Path::new(endpoint.trim_start_matches("unix://"));
        let channel = ok(polylet_harness::cri::channel(runtime));
        let over = Arc::new(Notify::new());
        let listener = UnixListenerStream::new(ok(UnixListener::bind(socket)));
        let serve = tonic::transport::Server::builder()
            .add_service(ForwardedService {
                channel: channel.clone(),
                over: Arc::clone(&over),
                service: PhantomData::<RuntimeService>,
            })
            .add_service(ForwardedService {
                channel,
                over: Arc::clone(&over),
                service: PhantomData::<ImageService>,
            })
            .serve_with_incoming(listener);
        let serve = tokio::spawn(async move { ok(serve.await) });
        Self { serve, over }
    }
}

/// Forwards the calls of one of CRI's services.
#[derive(Clone)]
struct ForwardedService<S> {
    channel: Channel,
    over: Arc<Notify>,
    service: PhantomData<S>,
}

#[derive(Clone)]
struct RuntimeService;

#[derive(Clone)]
struct ImageService;

impl NamedService for ForwardedService<RuntimeService> {
    const NAME: &'static str = "runtime.v1.RuntimeService";
}

impl NamedService for ForwardedService<ImageService> {
    const NAME: &'static str = "runtime.v1.ImageService";
}

type Forwarded = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

impl<S> Service<Request<Body>> for ForwardedService<S> {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Forwarded;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Forwarded {
        Box::pin(forward(
            self.channel.clone(),
            Arc::clone(&self.over),
            request,
        ))
    }
}

/// Each call has one request message; responses are streamed.
async fn forward(
    mut channel: Channel,
    over: Arc<Notify>,
    request: Request<Body>,
) -> Result<Response<Body>, Infallible> {
    let (head, body) = request.into_parts();
    let bytes = match body.collect().await {
        Ok(body) => body.to_bytes(),
        Err(status) => return Ok(status.into_http()),
    };
    if bytes.windows(SLOW.len()).any(|part| part == SLOW) {
        tokio::select! {
            () = tokio::time::sleep(DELAY) => {}
            () = over.notified() => {}
        }
    }
    let body = Body::new(Full::new(bytes));
    let ready = std::future::poll_fn(|cx| channel.poll_ready(cx)).await;
    let response = match ready {
        Ok(()) => channel.call(Request::from_parts(head, body)).await,
        Err(error) => Err(error),
    };
    let unavailable =
        |error: tonic::transport::Error| tonic::Status::unavailable(error.to_string()).into_http();
    Ok(response.unwrap_or_else(unavailable))
}
