use std::path::Path;
use std::time::Duration;

use polylet_wire::runtime::v1::image_service_client::ImageServiceClient;
use polylet_wire::runtime::v1::runtime_service_client::RuntimeServiceClient;
use polylet_wire::runtime::v1::{
    Container, Image, ListContainersRequest, ListImagesRequest, ListPodSandboxRequest, PodSandbox,
    RemovePodSandboxRequest, RuntimeHandler, StatusRequest, StopPodSandboxRequest, VersionRequest,
};
use tokio::task::JoinSet;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Response, Status};

use crate::error::HarnessError;

/// A channel to a Unix socket, connected when first used.
///
/// # Errors
/// When the path is not one of a socket.
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

/// The runtime as tests see it: they look and clean up, and never act for the node.
#[derive(Debug, Clone)]
pub struct Cri {
    runtime: RuntimeServiceClient<Channel>,
    images: ImageServiceClient<Channel>,
}

impl Cri {
    /// A client of the runtime behind `socket`.
    ///
    /// # Errors
    /// As [`channel`].
    pub fn new(socket: &Path) -> Result<Self, HarnessError> {
        let channel = channel(socket)?;
        Ok(Self {
            runtime: RuntimeServiceClient::new(channel.clone()).max_decoding_message_size(64 << 20),
            images: ImageServiceClient::new(channel),
        })
    }

    /// The runtime's name and version.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn version(&self) -> Result<String, HarnessError> {
        let request = within(2, VersionRequest::default());
        let answer = told("Version", self.runtime.clone().version(request).await)?;
        Ok(format!(
            "{} {}",
            answer.runtime_name, answer.runtime_version
        ))
    }

    /// Whether its default handler can give a pod users of its own: runc can from 1.2 on.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn user_namespaces(&self) -> Result<bool, HarnessError> {
        let request = within(10, StatusRequest::default());
        let answer = told("Status", self.runtime.clone().status(request).await)?;
        let can = |handler: &RuntimeHandler| {
            let features = handler.features.unwrap_or_default();
            handler.name.is_empty() && features.user_namespaces
        };
        Ok(answer.runtime_handlers.iter().any(can))
    }

    /// All sandboxes.
    ///
    /// # Errors
    /// When the runtime does not answer.
    pub async fn sandboxes(&self) -> Result<Vec<PodSandbox>, HarnessError> {
        let request = within(10, ListPodSandboxRequest::default());
        let answer = self.runtime.clone().list_pod_sandbox(request).await;
        Ok(told("ListPodSandbox", answer)?.items)
    }

    /// All containers.
    ///
    /// # Errors
    /// When the runtime does not answer.
    pub async fn containers(&self) -> Result<Vec<Container>, HarnessError> {
        let request = within(10, ListContainersRequest::default());
        let answer = self.runtime.clone().list_containers(request).await;
        Ok(told("ListContainers", answer)?.containers)
    }

    /// All images.
    ///
    /// # Errors
    /// When the runtime does not answer.
    pub async fn images(&self) -> Result<Vec<Image>, HarnessError> {
        let request = within(10, ListImagesRequest::default());
        Ok(told("ListImages", self.images.clone().list_images(request).await)?.images)
    }

    /// Stops and removes every sandbox with all that is in it.
    ///
    /// # Errors
    /// The first failure; the others are tried all the same.
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

/// The answer, or an error that names the call.
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
