//! The gRPC methods of `StreamingService`: streams of the runtime for the node API.

use std::sync::Arc;
use std::time::Duration;

use polylet_cri::{ExecRequest as RuntimeExec, RuntimeClient, v1};
use polylet_wire::pleg::v1::streaming_service_server::StreamingService;
use polylet_wire::pleg::v1::{
    AttachRequest, AttachResponse, ExecRequest, ExecResponse, PodState, PortForwardRequest,
    PortForwardResponse, RunCommandRequest, RunCommandResponse,
};
use tokio::sync::Semaphore;
use tonic::{Request, Response, Status};

use crate::pod_lookup::{PodLookup, full_name, limited, pod, runtime_error};

/// Calls that prepare a stream at most: the runtime answers them from memory.
const MAX_PREPARATIONS: usize = 64;
/// Commands that run to their end at most; each may have 16 MiB of output.
const MAX_COMMANDS: usize = 8;

/// Looks containers up in the published state, and calls the runtime.
pub(crate) struct StreamingServer {
    pods: PodLookup,
    runtime: RuntimeClient,
    preparations: Arc<Semaphore>,
    commands: Arc<Semaphore>,
    command_timeout: Duration,
}

impl StreamingServer {
    /// A command ends after `command_timeout`.
    pub(crate) fn new(pods: PodLookup, runtime: RuntimeClient, command_timeout: Duration) -> Self {
        Self {
            pods,
            runtime,
            preparations: Arc::new(Semaphore::new(MAX_PREPARATIONS)),
            commands: Arc::new(Semaphore::new(MAX_COMMANDS)),
            command_timeout,
        }
    }
}

#[tonic::async_trait]
impl StreamingService for StreamingServer {
    async fn exec(&self, request: Request<ExecRequest>) -> Result<Response<ExecResponse>, Status> {
        let request = request.into_inner();
        let url = limited(&self.preparations, async {
            let pod = pod(request.pod)?;
            let id = self.pods.container(&pod, &request.container).await?;
            let call = self.runtime.exec(RuntimeExec {
                container_id: id.ok_or_else(|| no_container(&request.container))?,
                cmd: request.command,
                tty: request.tty,
                stdin: request.stdin,
                stdout: request.stdout,
                stderr: request.stderr,
            });
            call.await.map_err(|error| runtime_error(&error))
        });
        let url = url.await?;
        Ok(Response::new(ExecResponse { url }))
    }

    async fn attach(
        &self,
        request: Request<AttachRequest>,
    ) -> Result<Response<AttachResponse>, Status> {
        let request = request.into_inner();
        let url = limited(&self.preparations, async {
            let pod = pod(request.pod)?;
            let id = self.pods.container(&pod, &request.container).await?;
            let container_id = id.ok_or_else(|| {
                let (container, pod) = (&request.container, full_name(&pod));
                Status::failed_precondition(format!("container {container} not found in pod {pod}"))
            })?;
            let call = self.runtime.attach(v1::AttachRequest {
                container_id,
                stdin: request.stdin,
                tty: request.tty,
                stdout: request.stdout,
                stderr: request.stderr,
            });
            call.await.map_err(|error| runtime_error(&error))
        });
        let url = url.await?;
        Ok(Response::new(AttachResponse { url }))
    }

    async fn port_forward(
        &self,
        request: Request<PortForwardRequest>,
    ) -> Result<Response<PortForwardResponse>, Status> {
        let request = request.into_inner();
        let url = limited(&self.preparations, async {
            let pod = pod(request.pod)?;
            let newest = |state: &PodState| state.sandboxes.first().map(|one| one.id.clone());
            let id = self.pods.find(&pod, newest).await?.ok_or_else(|| {
                let name = full_name(&pod);
                Status::failed_precondition(format!("pod not found ({name:?})"))
            })?;
            let call = self.runtime.port_forward(&id, request.ports);
            call.await.map_err(|error| runtime_error(&error))
        });
        let url = url.await?;
        Ok(Response::new(PortForwardResponse { url }))
    }

    async fn run_command(
        &self,
        request: Request<RunCommandRequest>,
    ) -> Result<Response<RunCommandResponse>, Status> {
        let request = request.into_inner();
        let output = limited(&self.commands, async {
            let pod = pod(request.pod)?;
            let id = self.pods.container(&pod, &request.container).await?;
            let id = id.ok_or_else(|| no_container(&request.container))?;
            // Zero is no timeout.
            let timeout = Some(self.command_timeout).filter(|timeout| !timeout.is_zero());
            let call = self.runtime.exec_sync(&id, request.command, timeout);
            call.await.map_err(|error| runtime_error(&error))
        });
        let output = output.await?;
        Ok(Response::new(RunCommandResponse {
            stdout: output.stdout.into(),
            stderr: output.stderr.into(),
            exit_code: output.exit_code,
        }))
    }
}

fn no_container(name: &str) -> Status {
    Status::failed_precondition(format!("container not found ({name:?})"))
}
