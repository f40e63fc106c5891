use std::path::Path;
use std::time::Duration;

use polylet_wire::runtime::v1::image_service_client::ImageServiceClient;
use polylet_wire::runtime::v1::runtime_service_client::RuntimeServiceClient;
use polylet_wire::runtime::v1::{
    Container, ExecSyncRequest, Image, ImageSpec, ListContainersRequest, ListImagesRequest,
    ListPodSandboxRequest, PodSandbox, RemoveImageRequest, RemovePodSandboxRequest, RuntimeHandler,
    StatusRequest, StopPodSandboxRequest, VersionRequest,
};
use tokio::task::JoinSet;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Response, Status};

use crate::error::HarnessError;

/// A lazily connected channel to a Unix socket.
///
/// # Errors
/// Fails if the path is not valid for a socket.
pub fn channel(socket: &Path) -> Result<Channel, HarnessError> {
    let name = socket.display().to_string();
    let endpoint = Endpoint::from_shared(format!("unix://{name}")).map_err(|source| {
        HarnessError::Connect {
            socket: name,
            source,
        }
    })?;
    Ok(endpoint.connect_lazy())
}

/// A CRI client for tests, for observation and cleanup.
#[derive(Debug, Clone)]
pub struct Cri {
    runtime: RuntimeServiceClient<Channel>,
    images: ImageServiceClient<Channel>,
}

impl Cri {
    /// A client of the runtime at `socket`.
    ///
    /// # Errors
    /// See [`channel`].
    pub fn new(socket: &Path) -> Result<Self, HarnessError> {
        let channel = channel(socket)?;
        Ok(Self {
            runtime: RuntimeServiceClient::new(channel.clone()).max_decoding_message_size(64 << 20),
            images: ImageServiceClient::new(channel),
        })
    }

    /// Name and version of the runtime.
    ///
    /// # Errors
    /// Fails if the runtime does not respond.
    pub async fn version(&self) -> Result<String, HarnessError> {
        let request = within(2, VersionRequest::default());
        let answer = told("Version", self.runtime.clone().version(request).await)?;
        Ok(format!(
            "{} {}",
            answer.runtime_name, answer.runtime_version
        ))
    }

    /// Runs a command in a running container and returns its standard output.
    ///
    /// # Errors
    /// Fails if it cannot be run, takes longer than 30 s, or exits with a non-zero code.
    pub async fn exec(&self, container: &str, command: &[&str]) -> Result<String, HarnessError> {
        let request = ExecSyncRequest {
            container_id: container.to_owned(),
            cmd: command.iter().map(|word| (*word).to_owned()).collect(),
            timeout: 30,
        };
        let request = within(40, request);
        let response = told("ExecSync", self.runtime.clone().exec_sync(request).await)?;
        if response.exit_code == 0 {
            return Ok(String::from_utf8_lossy(&response.stdout).into_owned());
        }
        Err(HarnessError::Failed {
            program: command.join(" "),
            status: format!("exit code {}", response.exit_code),
            output: String::from_utf8_lossy(&response.stderr).into_owned(),
        })
    }

    /// Whether the default runtime handler supports user namespaces (runc 1.2 and later).
    ///
    /// # Errors
    /// Fails if the runtime does not respond.
    pub async fn user_namespaces(&self) -> Result<bool, HarnessError> {
        let request = within(10, StatusRequest::default());
        let answer = told("Status", self.runtime.clone().status(request).await)?;
        let can = |handler: &RuntimeHandler| {
            let features = handler.features.unwrap_or_default();
            handler.name.is_empty() && features.user_namespaces
        };
        Ok(answer.runtime_handlers.iter().any(can))
    }

    /// Lists all sandboxes.
    ///
    /// # Errors
    /// Fails if the runtime does not respond.
    pub async fn sandboxes(&self) -> Result<Vec<PodSandbox>, HarnessError> {
        let request = within(10, ListPodSandboxRequest::default());
        let answer = self.runtime.clone().list_pod_sandbox(request).await;
        Ok(told("ListPodSandbox", answer)?.items)
    }

    /// Lists all containers.
    ///
    /// # Errors
    /// Fails if the runtime does not respond.
    pub async fn containers(&self) -> Result<Vec<Container>, HarnessError> {
        let request = within(10, ListContainersRequest::default());
        let answer = self.runtime.clone().list_containers(request).await;
        Ok(told("ListContainers", answer)?.containers)
    }

    /// Lists all images.
    ///
    /// # Errors
    /// Fails if the runtime does not respond.
    pub async fn images(&self) -> Result<Vec<Image>, HarnessError> {
        let request = within(10, ListImagesRequest::default());
        Ok(told("ListImages", self.images.clone().list_images(request).await)?.images)
    }

    /// Removes an image under all of its names.
    ///
    /// # Errors
    /// Fails if the runtime does not respond or refuses it.
    pub async fn remove_image(&self, reference: &str) -> Result<(), HarnessError> {
        let image = ImageSpec {
            image: reference.to_owned(),
            ..ImageSpec::default()
        };
        let request = within(10, RemoveImageRequest { image: Some(image) });
        told(
            "RemoveImage",
            self.images.clone().remove_image(request).await,
        )?;
        Ok(())
    }

    /// Stops and removes every sandbox with its containers.
    ///
    /// # Errors
    /// Returns the first failure, after trying all sandboxes.
    pub async fn remove_all(&self) -> Result<(), HarnessError> {
        let mut work = JoinSet::new();
        let mut first = Ok(());
        for sandbox in self.sandboxes().await? {
            if work.len() >= 8
                && let Some(Ok(done)) = work.join_next().await
            {
                first = first.and(done);
            }
            work.spawn(self.clone().remove_sandbox(sandbox.id));
        }
        while let Some(done) = work.join_next().await {
            first = first.and(done.unwrap_or(Ok(())));
        }
        first
    }

    async fn remove_sandbox(mut self, id: String) -> Result<(), HarnessError> {
        let stop = StopPodSandboxRequest {
            pod_sandbox_id: id.clone(),
        };
        told(
            "StopPodSandbox",
            self.runtime.stop_pod_sandbox(within(20, stop)).await,
        )?;
        let remove = RemovePodSandboxRequest { pod_sandbox_id: id };
        told(
            "RemovePodSandbox",
            self.runtime.remove_pod_sandbox(within(20, remove)).await,
        )?;
        Ok(())
    }
}

/// A request with a deadline.
pub(crate) fn within<T>(seconds: u64, message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(Duration::from_secs(seconds));
    request
}

/// The response, or an error with the call's name.
pub(crate) fn told<T>(
    call: &'static str,
    answer: Result<Response<T>, Status>,
) -> Result<T, HarnessError> {
    let source = match answer {
        Ok(answer) => return Ok(answer.into_inner()),
        Err(source) => source,
    };
    Err(HarnessError::Call {
        call,
        source: Box::new(source),
    })
}
