use std::future::Future;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use polylet_wire::runtime::v1::image_service_client::ImageServiceClient;
use polylet_wire::runtime::v1::runtime_service_client::RuntimeServiceClient;
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint, Uri};
use tonic::{Request, Response, Status};
use tracing::{Instrument, Span};

use crate::CriError;

mod containers;
mod images;
mod node;
mod sandboxes;
mod stats;

pub use containers::{ExecOutput, ExecRequest};

/// Lists of a full node stay under this; larger ones are refused, as upstream refuses them.
const MAX_MESSAGE: usize = 16 << 20;

/// One connection to the runtime, made when first needed and again whenever it broke. Cheap to clone.
#[derive(Clone)]
pub struct Runtime {
    channel: Channel,
    timeout: Duration,
    about: About,
}

/// What calls are made for, as far as the call's own message does not say: for their spans.
#[derive(Clone, Debug, Default)]
pub struct About {
    /// The pod's uid.
    pub pod_uid: Option<String>,
    /// The pod's name.
    pub pod_name: Option<String>,
    /// The pod's namespace.
    pub namespace: Option<String>,
    /// The container's name.
    pub container: Option<String>,
    /// The sandbox's or container's number.
    pub attempt: Option<u32>,
}

impl Runtime {
    /// A client of the runtime at `endpoint` (`unix:///run/…` or a path), with `timeout` for the
    /// usual call. Nothing is connected yet; while the runtime is away each call fails at once.
    ///
    /// Has to be called inside a tokio runtime, which carries the connection.
    pub fn connect(endpoint: &str, timeout: Duration) -> Self {
        let path = socket_path(endpoint);
        let connector = tower::service_fn(move |_: Uri| {
            let path = path.clone();
            async move {
                let connected = UnixStream::connect(&path).await.map(TokioIo::new);
                // The socket is what an operator can look at.
                connected.map_err(|error| {
                    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
                })
            }
        });
        let channel = Endpoint::from_static("http://localhost")
            // Large lists should not wait for window updates.
            .initial_stream_window_size(1 << 20)
            .initial_connection_window_size(4 << 20)
            .connect_timeout(Duration::from_secs(5))
            .connect_with_connector_lazy(connector);
        Self {
            channel,
            timeout,
            about: About::default(),
        }
    }

    /// The same connection for calls whose spans tell what they are about.
    pub fn about(&self, about: About) -> Self {
        Self {
            about,
            ..self.clone()
        }
    }

    /// The deadline of the usual call.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// The same connection with another deadline for the usual call.
    pub fn with_timeout(&self, timeout: Duration) -> Self {
        Self {
            timeout,
            ..self.clone()
        }
    }

    fn runtime_service(&self) -> RuntimeServiceClient<Channel> {
        RuntimeServiceClient::new(self.channel.clone()).max_decoding_message_size(MAX_MESSAGE)
    }

    fn image_service(&self) -> ImageServiceClient<Channel> {
        ImageServiceClient::new(self.channel.clone()).max_decoding_message_size(MAX_MESSAGE)
    }
}

// Only Unix sockets: whatever else is configured fails as a path that does not exist, and says so.
fn socket_path(endpoint: &str) -> PathBuf {
    let path = endpoint
        .strip_prefix("unix://")
        .or_else(|| endpoint.strip_prefix("unix:"))
        .unwrap_or(endpoint);
    PathBuf::from(path)
}

/// What one call is: its name, what it is about, how long it may take, its span.
struct Call<'a> {
    name: &'static str,
    id: &'a str,
    limit: Option<Duration>,
    span: Span,
}

impl Call<'_> {
    async fn run<Q, R, F>(
        self,
        message: Q,
        send: impl FnOnce(Request<Q>) -> F,
    ) -> Result<R, CriError>
    where
        F: Future<Output = Result<Response<R>, Status>>,
    {
        let mut request = Request::new(message);
        if let Some(limit) = self.limit {
            // The runtime gives up as well, and does not work for nobody.
            request.set_timeout(limit);
        }
        let sending = send(request).instrument(self.span.clone());
        let answer = match self.limit {
            Some(limit) => tokio::time::timeout(limit, sending)
                .await
                .unwrap_or_else(|_| Err(Status::deadline_exceeded(late(limit)))),
            None => sending.await,
        };
        match answer {
            Ok(response) => {
                self.span.record("result", "ok");
                Ok(response.into_inner())
            }
            Err(status) => Err(self.failed(&status)),
        }
    }

    fn failed(&self, status: &Status) -> CriError {
        let error = CriError::new(self.name, self.id, status);
        self.span
            .record("result", tracing::field::debug(error.code()));
        // Lookups of what is gone are answers, not failures.
        if !error.is_not_found() && !error.is_unimplemented() {
            self.span.record("otel.status_code", "ERROR");
            self.span
                .record("otel.status_description", error.said.to_string());
        }
        error
    }
}

fn late(limit: Duration) -> String {
    format!("no answer within {limit:?}")
}

/// The span of a call: at info when it changes something, at debug when it only reads.
macro_rules! call_span {
    (changes $name:literal $(, $($field:tt)+)?) => {
        tracing::info_span!($name, $($($field)+,)? result = tracing::field::Empty,
            otel.kind = "client", otel.status_code = tracing::field::Empty,
            otel.status_description = tracing::field::Empty)
    };
    (changes $name:literal of $about:expr $(, $($field:tt)+)?) => {
        tracing::info_span!($name, k8s.pod.uid = $about.pod_uid.as_deref(),
            k8s.pod.name = $about.pod_name.as_deref(),
            k8s.namespace.name = $about.namespace.as_deref(),
            k8s.container.name = $about.container.as_deref(), attempt = $about.attempt,
            $($($field)+,)? result = tracing::field::Empty,
            otel.kind = "client", otel.status_code = tracing::field::Empty,
            otel.status_description = tracing::field::Empty)
    };
    (reads $name:literal $(, $($field:tt)+)?) => {
        tracing::debug_span!($name, $($($field)+,)? result = tracing::field::Empty,
            otel.kind = "client", otel.status_code = tracing::field::Empty,
            otel.status_description = tracing::field::Empty)
    };
}
use call_span;

/// A removal of what is not there has happened already.
fn gone_is_done(result: Result<(), CriError>) -> Result<(), CriError> {
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
    async fn an_absent_runtime_is_unavailable_and_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("none.sock");
        let runtime = Runtime::connect(&path.to_string_lossy(), Duration::from_secs(5));
        let error = runtime.version().await.unwrap_err();
        assert!(error.is_unavailable(), "{error:?}");
        assert!(
            error.said.to_string().contains("No such file"),
            "{}",
            error.said
        );
        assert!(runtime.container_events().await.is_err());
    }

    #[tokio::test]
    async fn a_silent_runtime_meets_the_deadline() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("silent.sock");
        let _listener = tokio::net::UnixListener::bind(&path).unwrap();
        let runtime = Runtime::connect(&path.to_string_lossy(), Duration::from_millis(50));
        let error = runtime.version().await.unwrap_err();
        assert!(error.is_deadline(), "{error:?}");
    }
}
