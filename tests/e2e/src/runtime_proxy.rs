//! A proxy before the runtime that delays some calls.

use std::convert::Infallible;
use std::future::Future;
use std::marker::PhantomData;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use polylet_harness::{Node, NodeOptions, guard};
use serde_json::Value;
use tokio::net::UnixListener;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::body::Body;
use tonic::codegen::Service;
use tonic::codegen::http::{Request, Response};
use tonic::server::NamedService;
use tonic::transport::Channel;

use crate::ok;

/// How long a call is delayed, by its path and its message.
pub type CallDelay = Arc<dyn Fn(&str, &[u8]) -> Duration + Send + Sync>;

/// The proxy; stopped on drop.
pub struct RuntimeProxy {
    serve: JoinHandle<()>,
    over: Arc<Notify>,
}

impl Drop for RuntimeProxy {
    fn drop(&mut self) {
        self.serve.abort();
    }
}

impl RuntimeProxy {
    /// Listens on `socket` and forwards to `endpoint`.
    ///
    /// # Panics
    /// When it cannot listen.
    pub fn start(socket: &Path, endpoint: &str, delay: &CallDelay) -> Self {
        let runtime = Path::new(endpoint.trim_start_matches("unix://"));
        let channel = ok(polylet_harness::cri::channel(runtime));
        let over = Arc::new(Notify::new());
        let listener = UnixListenerStream::new(ok(UnixListener::bind(socket)));
        let forwarding = Forwarding {
            channel,
            delay: Arc::clone(delay),
            over: Arc::clone(&over),
        };
        let serve = tonic::transport::Server::builder()
            .add_service(ForwardedService {
                forwarding: forwarding.clone(),
                service: PhantomData::<RuntimeService>,
            })
            .add_service(ForwardedService {
                forwarding,
                service: PhantomData::<ImageService>,
            })
            .serve_with_incoming(listener);
        let serve = tokio::spawn(async move { ok(serve.await) });
        Self { serve, over }
    }

    /// What ends the delay of calls in progress when it is notified.
    pub fn over(&self) -> Arc<Notify> {
        Arc::clone(&self.over)
    }
}

/// A node whose runtime is behind a proxy.
pub struct ProxiedNode {
    /// The node.
    pub node: Node,
    _proxy: RuntimeProxy,
    _sockets: tempfile::TempDir,
}

impl ProxiedNode {
    /// Starts a node with options.
    ///
    /// # Panics
    /// When it does not start.
    pub async fn start(mut options: NodeOptions, delay: &CallDelay) -> ProxiedNode {
        guard::on_signals();
        let sockets = ok(tempfile::tempdir());
        let socket = sockets.path().join("runtime.sock");
        options.kubelet = match options.kubelet {
            Value::Null => Value::Object(serde_json::Map::new()),
            fields => fields,
        };
        options.kubelet["containerRuntimeEndpoint"] = format!("unix://{}", socket.display()).into();
        let mut node = ok(Node::prepare(options, &|line| eprintln!("{line}")).await);
        let proxy = RuntimeProxy::start(&socket, &node.containerd.endpoint(), delay);
        ok(node.up().await);
        ok(node.wait_in_step().await);
        ProxiedNode {
            node,
            _proxy: proxy,
            _sockets: sockets,
        }
    }
}

/// What calls are forwarded with.
#[derive(Clone)]
struct Forwarding {
    channel: Channel,
    delay: CallDelay,
    over: Arc<Notify>,
}

/// Forwards the calls of one of CRI's services.
#[derive(Clone)]
struct ForwardedService<S> {
    forwarding: Forwarding,
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
        Box::pin(forward(self.forwarding.clone(), request))
    }
}

/// Each call has one request message; responses are streamed.
async fn forward(
    forwarding: Forwarding,
    request: Request<Body>,
) -> Result<Response<Body>, Infallible> {
    let (head, body) = request.into_parts();
    let bytes = match body.collect().await {
        Ok(body) => body.to_bytes(),
        Err(status) => return Ok(status.into_http()),
    };
    let Forwarding {
        mut channel,
        delay,
        over,
    } = forwarding;
    let delay = delay(head.uri.path(), &bytes);
    if !delay.is_zero() {
        tokio::select! {
            () = tokio::time::sleep(delay) => {}
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
