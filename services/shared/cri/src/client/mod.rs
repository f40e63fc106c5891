use std::future::Future;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hyper_util::rt::TokioIo;
use polylet_kit::rpc_status::status_name;
use polylet_kit::{EndWithMessage, trace_context};
use polylet_wire::runtime::v1::image_service_client::ImageServiceClient;
use polylet_wire::runtime::v1::runtime_service_client::RuntimeServiceClient;
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint, Uri};
use tonic::{Request, Response, Status};
use tracing::{Instrument, Span};

use crate::CriError;

mod containers;
#[cfg(feature = "crash-points")]
mod crash_points;
mod images;
mod leftover_task;
mod metrics;
mod node;
mod sandboxes;
mod stats;

pub use containers::{ExecOutput, ExecRequest};

/// The largest message that is accepted, as upstream.
const MAX_MESSAGE_BYTES: usize = 16 << 20;

/// A socket that is listened at takes connections at once.
const LISTENER_TIMEOUT: Duration = Duration::from_millis(100);

/// A client of the container runtime. It connects for the first call and again when the connection has
/// broken. Cheap to clone.
#[derive(Clone)]
pub struct RuntimeClient {
    channel: Channel,
    /// The socket, for spans.
    address: Arc<str>,
    timeout: Duration,
    context: CallContext,
}

/// The subject of calls, for the attributes of their spans that are not in the requests.
#[derive(Clone, Debug, Default)]
pub struct CallContext {
    /// The pod's uid.
    pub pod_uid: Option<String>,
    /// The pod's name.
    pub pod_name: Option<String>,
    /// The pod's namespace.
    pub namespace: Option<String>,
    /// The container's name.
    pub container: Option<String>,
    /// The attempt of the sandbox or container.
    pub attempt: Option<u32>,
}

impl RuntimeClient {
    /// A client of the runtime at `endpoint` (`unix:///run/…` or a path), with `timeout` for most calls.
    /// It does not connect yet. While the runtime is unavailable, calls fail at once.
    ///
    /// Has to be called inside a tokio runtime.
    pub fn connect(endpoint: &str, timeout: Duration) -> Self {
        metrics::register_counts();
        let path = socket_path(endpoint);
        let address = path.to_string_lossy().into();
        let connector = tower::service_fn(move |_: Uri| {
            let path = path.clone();
            async move {
                let connected = UnixStream::connect(&path).await.map(TokioIo::new);
                // The error names the socket for the operator.
                connected.map_err(|error| {
                    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
                })
            }
        });
        let channel = Endpoint::from_static("http://localhost")
            // Large lists do not have to wait for window updates.
            .initial_stream_window_size(1 << 20)
            .initial_connection_window_size(4 << 20)
            .connect_timeout(Duration::from_secs(5))
            .connect_with_connector_lazy(connector);
        Self {
            channel,
            address,
            timeout,
            context: CallContext::default(),
        }
    }

    /// The same client with a context for the spans of its calls.
    pub fn with_context(&self, context: CallContext) -> Self {
        Self {
            context,
            ..self.clone()
        }
    }

    /// The timeout of most calls.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// The same client with another timeout for most calls.
    pub fn with_timeout(&self, timeout: Duration) -> Self {
        Self {
            timeout,
            ..self.clone()
        }
    }

    fn runtime_service(&self) -> RuntimeServiceClient<EndWithMessage<Channel>> {
        RuntimeServiceClient::new(EndWithMessage(self.channel.clone()))
            .max_decoding_message_size(MAX_MESSAGE_BYTES)
    }

    fn image_service(&self) -> ImageServiceClient<EndWithMessage<Channel>> {
        ImageServiceClient::new(EndWithMessage(self.channel.clone()))
            .max_decoding_message_size(MAX_MESSAGE_BYTES)
    }
}

/// The process that listens at the runtime's socket, by its id in this process's pid namespace. `None`
/// while nothing listens, or where it has no id here.
pub async fn listener_pid(endpoint: &str) -> Option<i32> {
    let connected = UnixStream::connect(socket_path(endpoint));
    let connected = tokio::time::timeout(LISTENER_TIMEOUT, connected).await;
    let credentials = connected.ok()?.ok()?.peer_cred().ok()?;
    credentials.pid().filter(|pid| *pid > 0)
}

/// The path of the socket. Only Unix sockets are supported: with another endpoint, connecting fails and
/// names it.
fn socket_path(endpoint: &str) -> PathBuf {
    let path = endpoint
        .strip_prefix("unix://")
        .or_else(|| endpoint.strip_prefix("unix:"))
        .unwrap_or(endpoint);
    PathBuf::from(path)
}

/// The parameters of a call.
struct CriCall<'a> {
    /// The runtime's socket.
    server: &'a str,
    /// The method's name in the CRI.
    name: &'static str,
    /// The sandbox, container or image; empty if there is none.
    id: &'a str,
    timeout: Option<Duration>,
    span: Span,
}

impl CriCall<'_> {
    async fn run<Q, R, F>(
        self,
        message: Q,
        send: impl FnOnce(Request<Q>) -> F,
    ) -> Result<R, CriError>
    where
        F: Future<Output = Result<Response<R>, Status>>,
    {
        self.span.record("rpc.method", rpc_method(self.name));
        self.span.record("server.address", self.server);
        let mut request = Request::new(message);
        if let Some(timeout) = self.timeout {
            // The runtime then cancels the call as well.
            request.set_timeout(timeout);
        }
        // Reads have no span of their own, and belong to that of their caller.
        let caller = Span::current();
        let span = if self.span.is_disabled() {
            &caller
        } else {
            &self.span
        };
        trace_context::add_to(&mut request, trace_context::runtime_header(span));
        let started = Instant::now();
        let call = send(request).instrument(self.span.clone());
        #[cfg(feature = "crash-points")]
        let call = crash_points::around(self.name, call);
        let result = match self.timeout {
            Some(timeout) => tokio::time::timeout(timeout, call)
                .await
                .unwrap_or_else(|_| Err(Status::deadline_exceeded(timeout_message(timeout)))),
            None => call.await,
        };
        metrics::count(self.name, started.elapsed(), result.is_err());
        match result {
            Ok(response) => {
                self.span.record("rpc.response.status_code", "OK");
                Ok(response.into_inner())
            }
            Err(status) => Err(self.record_failure(&status)),
        }
    }

    fn record_failure(&self, status: &Status) -> CriError {
        let error = CriError::new(self.name, self.id, status);
        let code = status_name(error.code());
        self.span.record("rpc.response.status_code", code);
        // A missing object or method is a regular result, not an error of the span.
        if !error.is_not_found() && !error.is_unimplemented() {
            self.span.record("error.type", code);
            self.span.record("otel.status_code", "ERROR");
            self.span
                .record("otel.status_description", error.source.to_string());
        }
        error
    }
}

/// The method with its service, as OpenTelemetry names it.
fn rpc_method(name: &str) -> String {
    let is_of_images = name.contains("Image");
    let service = if is_of_images {
        "ImageService"
    } else {
        "RuntimeService"
    };
    format!("runtime.v1.{service}/{name}")
}

fn timeout_message(timeout: Duration) -> String {
    format!("no response within {timeout:?}")
}

/// The span of a call: at info level if it changes something, at debug level if it only reads.
macro_rules! call_span {
    (changes $name:literal $(, $($field:tt)+)?) => {
        call_span!(@ info_span, $name, $($($field)+,)?)
    };
    (changes $name:literal of $context:expr $(, $($field:tt)+)?) => {
        call_span!(@ info_span, $name, k8s.pod.uid = $context.pod_uid.as_deref(),
            k8s.pod.name = $context.pod_name.as_deref(),
            k8s.namespace.name = $context.namespace.as_deref(),
            k8s.container.name = $context.container.as_deref(),
            polylet.attempt = $context.attempt, $($($field)+,)?)
    };
    (reads $name:literal $(, $($field:tt)+)?) => {
        call_span!(@ debug_span, $name, $($($field)+,)?)
    };
    (@ $span:ident, $name:literal, $($field:tt)*) => {
        tracing::$span!($name, $($field)* otel.kind = "client", rpc.system.name = "grpc",
            server.address = tracing::field::Empty, network.transport = "unix",
            rpc.method = tracing::field::Empty, rpc.response.status_code = tracing::field::Empty,
            error.type = tracing::field::Empty, otel.status_code = tracing::field::Empty,
            otel.status_description = tracing::field::Empty)
    };
}
use call_span;

/// Removing an object that does not exist is a success.
fn ignore_not_found(result: Result<(), CriError>) -> Result<(), CriError> {
    match result {
        Err(error) if error.is_not_found() => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints() {
        for (endpoint, path) in [
            ("unix:///run/c.sock", "/run/c.sock"),
            ("unix:/run/c.sock", "/run/c.sock"),
            ("/run/c.sock", "/run/c.sock"),
            ("tcp://1.2.3.4:5", "tcp://1.2.3.4:5"),
        ] {
            assert_eq!(socket_path(endpoint), PathBuf::from(path), "{endpoint}");
        }
    }

    #[tokio::test]
    async fn a_missing_runtime_is_unavailable_and_the_error_names_its_socket() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("none.sock");
        let runtime = RuntimeClient::connect(&path.to_string_lossy(), Duration::from_secs(5));
        let error = runtime.version().await.unwrap_err();
        assert!(error.is_unavailable(), "{error:?}");
        assert!(
            error.source.to_string().contains("No such file"),
            "{}",
            error.source
        );
        assert!(runtime.container_events().await.is_err());
    }

    #[tokio::test]
    async fn calls_to_a_silent_runtime_time_out() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("silent.sock");
        let _listener = tokio::net::UnixListener::bind(&path).unwrap();
        let runtime = RuntimeClient::connect(&path.to_string_lossy(), Duration::from_millis(50));
        let error = runtime.version().await.unwrap_err();
        assert!(error.is_deadline(), "{error:?}");
    }
}
