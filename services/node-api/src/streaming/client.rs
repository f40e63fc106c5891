//! Calls to pleg, which has streams prepared by the runtime.

use std::time::Duration;

use polylet_kit::{Channel, Ctx, MAX_MESSAGE_SIZE};
use polylet_wire::common::v1::PodRef;
use polylet_wire::pleg::v1::streaming_service_client::StreamingServiceClient;
use polylet_wire::pleg::v1::{
    AttachRequest, ExecRequest, PortForwardRequest, RunCommandRequest, RunCommandResponse,
};
use tonic::{Request, Status};

use crate::core::streaming::request::StreamOptions;
use crate::peer_calls::repeated;

/// Time for the call between the two services, beyond that of the call to the runtime.
const CALL_MARGIN: Duration = Duration::from_secs(10);
/// A timeout of zero is none: a week is close to it.
const NO_TIMEOUT: Duration = Duration::from_secs(7 * 24 * 3600);

/// The client. Clones share its connection.
#[derive(Clone)]
pub(crate) struct StreamingClient {
    pleg: Channel,
    timeout: Duration,
    command_timeout: Duration,
}

impl StreamingClient {
    pub(crate) fn new(ctx: &Ctx) -> Self {
        let kubelet = &ctx.config().kubelet;
        let idle = kubelet.streaming_connection_idle_timeout;
        let command_timeout = if idle.is_zero() { NO_TIMEOUT } else { idle };
        Self {
            pleg: ctx.peer("pleg").unwatched_channel(),
            timeout: kubelet.runtime_request_timeout.saturating_add(CALL_MARGIN),
            command_timeout,
        }
    }

    fn service(&self) -> StreamingServiceClient<Channel> {
        StreamingServiceClient::new(self.pleg.clone()).max_decoding_message_size(MAX_MESSAGE_SIZE)
    }

    fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        request.set_timeout(self.timeout);
        request
    }

    /// The URL at which a command is run. Nothing runs before somebody connects to it.
    pub(crate) async fn exec(
        &self,
        pod: PodRef,
        container: String,
        command: Vec<String>,
        options: StreamOptions,
    ) -> Result<String, Status> {
        let message = ExecRequest {
            pod: Some(pod),
            container,
            command,
            stdin: options.stdin,
            stdout: options.stdout,
            stderr: options.stderr,
            tty: options.tty,
        };
        repeated(|| {
            let (mut service, request) = (self.service(), self.request(message.clone()));
            async move { Ok(service.exec(request).await?.into_inner().url) }
        })
        .await
    }

    /// The URL at which a container's own streams are.
    pub(crate) async fn attach(
        &self,
        pod: PodRef,
        container: String,
        options: StreamOptions,
    ) -> Result<String, Status> {
        let message = AttachRequest {
            pod: Some(pod),
            container,
            stdin: options.stdin,
            stdout: options.stdout,
            stderr: options.stderr,
            tty: options.tty,
        };
        repeated(|| {
            let (mut service, request) = (self.service(), self.request(message.clone()));
            async move { Ok(service.attach(request).await?.into_inner().url) }
        })
        .await
    }

    /// The URL at which ports of a pod are forwarded.
    pub(crate) async fn port_forward(
        &self,
        pod: PodRef,
        ports: Vec<i32>,
    ) -> Result<String, Status> {
        let message = PortForwardRequest {
            pod: Some(pod),
            ports,
        };
        repeated(|| {
            let (mut service, request) = (self.service(), self.request(message.clone()));
            async move { Ok(service.port_forward(request).await?.into_inner().url) }
        })
        .await
    }

    /// Runs a command to its end. Not repeated: it may have run.
    pub(crate) async fn run_command(
        &self,
        pod: PodRef,
        container: String,
        command: Vec<String>,
    ) -> Result<RunCommandResponse, Status> {
        let mut request = self.request(RunCommandRequest {
            pod: Some(pod),
            container,
            command,
        });
        request.set_timeout(self.command_timeout.saturating_add(CALL_MARGIN));
        let mut service = self.service();
        Ok(service.run_command(request).await?.into_inner())
    }
}
