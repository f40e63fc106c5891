//! A proxy before the runtime that delays all calls for some pods by 30 seconds.

use std::convert::Infallible;
use std::future::Future;
use std::marker::PhantomData;
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use polylet_e2e::ok;
use tokio::net::UnixListener;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::body::Body;
use tonic::codegen::Service;
use tonic::codegen::http::{Request, Response};
use tonic::server::NamedService;
use tonic::transport::Channel;

/// Calls whose message contains this name are delayed.
const SLOW: &[u8] = b"slow-runtime";
/// The delay.
const DELAY: Duration = Duration::from_secs(30);

/// The proxy; stopped on drop.
pub(crate) struct RuntimeProxy(JoinHandle<()>);

impl Drop for RuntimeProxy {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl RuntimeProxy {
    /// Listens on `socket` and forwards to `endpoint`.
    pub(crate) fn start(socket: &Path, endpoint: &str) -> Self {
        let runtime = Path::new(endpoint.trim_start_matches("unix://"));
        let channel = ok(polylet_harness::cri::channel(runtime));
        let listener = UnixListenerStream::new(ok(UnixListener::bind(socket)));
        let serve = tonic::transport::Server::builder()
            .add_service(ForwardedService(
                channel.clone(),
                PhantomData::<RuntimeService>,
            ))
            .add_service(ForwardedService(channel, PhantomData::<ImageService>))
            .serve_with_incoming(listener);
        Self(tokio::spawn(async move { ok(serve.await) }))
    }
}

/// Forwards the calls of one of CRI's services.
#[derive(Clone)]
struct ForwardedService<S>(Channel, PhantomData<S>);

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
        Box::pin(forward(self.0.clone(), request))
    }
}

/// Each call has one request message; responses are streamed.
async fn forward(
    mut channel: Channel,
    request: Request<Body>,
) -> Result<Response<Body>, Infallible> {
    let (head, body) = request.into_parts();
    let bytes = match body.collect().await {
        Ok(body) => body.to_bytes(),
        Err(status) => return Ok(status.into_http()),
    };
    if bytes.windows(SLOW.len()).any(|part| part == SLOW) {
        tokio::time::sleep(DELAY).await;
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
