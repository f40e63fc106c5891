//! The gRPC methods of `StreamingService`: streams of the runtime for the node API.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use polylet_cri::{CriError, ExecRequest as RuntimeExec, RuntimeClient, v1};
use polylet_watch::Store;
use polylet_wire::common::v1::PodRef;
use polylet_wire::pleg::v1::streaming_service_server::StreamingService;
use polylet_wire::pleg::v1::{
    AttachRequest, AttachResponse, ContainerPhase, ExecRequest, ExecResponse, PodState,
    PortForwardRequest, PortForwardResponse, RunCommandRequest, RunCommandResponse,
};
use tokio::sync::Semaphore;
use tonic::{Request, Response, Status};

use crate::convert;
use crate::server::Refresher;

/// Calls that prepare a stream at most: the runtime answers them from memory.
const MAX_PREPARATIONS: usize = 64;
/// Commands that run to their end at most; each may have 16 MiB of output.
const MAX_COMMANDS: usize = 8;

/// Looks containers up in the published state, and calls the runtime.
pub(crate) struct StreamingServer {
    store: Store<String, PodState>,
    refresher: Refresher,
    runtime: RuntimeClient,
    preparations: Arc<Semaphore>,
    commands: Arc<Semaphore>,
    command_timeout: Duration,
}

impl StreamingServer {
    /// A command ends after `command_timeout`.
    pub(crate) fn new(
        store: Store<String, PodState>,
        refresher: Refresher,
        runtime: RuntimeClient,
        command_timeout: Duration,
    ) -> Self {
        Self {
            store,
            refresher,
            runtime,
            preparations: Arc::new(Semaphore::new(MAX_PREPARATIONS)),
            commands: Arc::new(Semaphore::new(MAX_COMMANDS)),
            command_timeout,
        }
    }

    /// Finds something in the state of a pod: in the published one, or in a new one if it is not there.
    async fn find<T>(
        &self,
        pod: &PodRef,
        find: impl Fn(&PodState) -> Option<T>,
    ) -> Result<Option<T>, Status> {
        if let Some(found) = self.store.get(&pod.uid).as_ref().and_then(&find) {
            return Ok(Some(found));
        }
        let identity = convert::pod_identity(pod.clone());
        let refreshed = self.refresher.refresh(identity, false, Vec::new()).await?;
        Ok(refreshed.state.as_ref().and_then(find))
    }

    /// The id of the running container of a name.
    async fn container(&self, pod: &PodRef, name: &str) -> Result<Option<String>, Status> {
        self.find(pod, |state| running_container(state, name)).await
    }
}

#[tonic::async_trait]
impl StreamingService for StreamingServer {
    async fn exec(&self, request: Request<ExecRequest>) -> Result<Response<ExecResponse>, Status> {
        let request = request.into_inner();
        let url = limited(&self.preparations, async {
            let pod = pod(request.pod)?;
            let id = self.container(&pod, &request.container).await?;
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
            let id = self.container(&pod, &request.container).await?;
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
            let id = self.find(&pod, newest).await?.ok_or_else(|| {
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
            let id = self.container(&pod, &request.container).await?;
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

/// Refuses a call beyond the limit instead of queueing it: its caller may try again.
async fn limited<T>(
    permits: &Semaphore,
    call: impl Future<Output = Result<T, Status>>,
) -> Result<T, Status> {
    let Ok(_permit) = permits.try_acquire() else {
        return Err(Status::resource_exhausted(
            "maximum number of in-flight requests exceeded",
        ));
    };
    call.await
}

fn pod(pod: Option<PodRef>) -> Result<PodRef, Status> {
    pod.filter(|pod| !pod.uid.is_empty())
        .ok_or_else(|| Status::invalid_argument("the pod's uid is empty"))
}

/// The newest one: the containers of one name are listed newest first.
fn running_container(state: &PodState, name: &str) -> Option<String> {
    let mut containers = state.containers.iter();
    let found = containers.find(|one| {
        one.name == name && one.phase() == ContainerPhase::Running && !one.id.is_empty()
    });
    found.map(|one| one.id.clone())
}

/// Upstream's full name of a pod.
fn full_name(pod: &PodRef) -> String {
    format!("{}_{}", pod.name, pod.namespace)
}

fn no_container(name: &str) -> Status {
    Status::failed_precondition(format!("container not found ({name:?})"))
}

fn runtime_error(error: &CriError) -> Status {
    Status::new(error.code(), error.rpc_error())
}

#[cfg(test)]
mod tests {
    use polylet_wire::pleg::v1::Container;

    use super::*;

    #[test]
    fn running_container_of_the_name_is_found() {
        let container = |id: &str, name: &str, phase: ContainerPhase| Container {
            id: id.to_owned(),
            name: name.to_owned(),
            phase: phase.into(),
            ..Container::default()
        };
        let state = PodState {
            containers: vec![
                container("a2", "a", ContainerPhase::Running),
                container("a1", "a", ContainerPhase::Exited),
                container("b1", "b", ContainerPhase::Exited),
                container("c1", "c", ContainerPhase::Created),
            ],
            ..PodState::default()
        };
        assert_eq!(running_container(&state, "a").as_deref(), Some("a2"));
        for name in ["b", "c", "d", ""] {
            assert_eq!(running_container(&state, name), None, "{name}");
        }
    }

    #[tokio::test]
    async fn calls_beyond_the_limit_are_refused() {
        let permits = Semaphore::new(1);
        let inner = async {
            let second = limited(&permits, async { Ok(2) }).await;
            assert_eq!(second.unwrap_err().code(), tonic::Code::ResourceExhausted);
            Ok(1)
        };
        assert_eq!(limited(&permits, inner).await.unwrap(), 1);
        assert_eq!(limited(&permits, async { Ok(3) }).await.unwrap(), 3);
    }
}
