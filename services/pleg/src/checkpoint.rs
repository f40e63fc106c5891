//! The gRPC methods of `CheckpointService`: the runtime writes checkpoints of containers for the node API.

use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use polylet_cri::RuntimeClient;
use polylet_wire::pleg::v1::checkpoint_service_server::CheckpointService;
use polylet_wire::pleg::v1::{CheckpointContainerRequest, CheckpointContainerResponse};
use tokio::sync::Semaphore;
use tonic::{Request, Response, Status};

use crate::pod_lookup::{PodLookup, full_name, limited, pod, runtime_error};

/// Checkpoints in progress at most: each one writes the memory of a container to the disk.
const MAX_CHECKPOINTS: usize = 4;
/// No call lasts longer than a week, whatever its caller asks for.
const MAX_TIMEOUT: Duration = Duration::from_secs(7 * 24 * 3600);

/// Looks containers up in the published state, and calls the runtime.
pub(crate) struct CheckpointServer {
    pods: PodLookup,
    runtime: RuntimeClient,
    directory: PathBuf,
    /// `runtimeRequestTimeout`
    timeout: Duration,
    permits: Semaphore,
}

impl CheckpointServer {
    /// Archives are written into `directory`, which exists.
    pub(crate) fn new(
        pods: PodLookup,
        runtime: RuntimeClient,
        directory: PathBuf,
        timeout: Duration,
    ) -> Self {
        Self {
            pods,
            runtime,
            directory,
            timeout,
            permits: Semaphore::new(MAX_CHECKPOINTS),
        }
    }
}

#[tonic::async_trait]
impl CheckpointService for CheckpointServer {
    async fn checkpoint_container(
        &self,
        request: Request<CheckpointContainerRequest>,
    ) -> Result<Response<CheckpointContainerResponse>, Status> {
        let request = request.into_inner();
        let call = limited(&self.permits, async {
            let pod = pod(request.pod)?;
            let name = &request.container;
            let id = self.pods.container(&pod, name).await?;
            let id = id.ok_or_else(|| {
                Status::failed_precondition(format!("container {name} not found"))
            })?;
            let timeout = timeout(request.timeout_seconds, self.timeout)?;
            let file = file_name(&full_name(&pod), name, Timestamp::now());
            let location = self.directory.join(file).display().to_string();
            self.runtime
                .checkpoint_container(&id, &location, Some(timeout))
                .await
                .map_err(|error| runtime_error(&error))?;
            Ok(location)
        });
        let location = call.await?;
        Ok(Response::new(CheckpointContainerResponse { location }))
    }
}

/// The timeout that a caller asks for if it is longer than the usual one, as upstream.
fn timeout(requested: i64, usual: Duration) -> Result<Duration, Status> {
    let seconds = u64::try_from(requested).map_err(|_| {
        Status::invalid_argument("CheckpointContainer requires the timeout value to be > 0")
    })?;
    Ok(Duration::from_secs(seconds).max(usual).min(MAX_TIMEOUT))
}

/// Upstream's name of an archive. The time is in UTC, whatever the time zone of the node.
fn file_name(full_name: &str, container: &str, now: Timestamp) -> String {
    let time = now.strftime("%Y-%m-%dT%H:%M:%SZ");
    format!("checkpoint-{full_name}-{container}-{time}.tar")
}

/// The directory of the archives in the root directory, as upstream.
pub(crate) fn directory(root: &Path) -> PathBuf {
    root.join("checkpoints")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn archives_have_upstreams_names() {
        let now = "2026-03-04T05:06:07.89Z".parse().unwrap();
        assert_eq!(
            file_name("web_default", "main", now),
            "checkpoint-web_default-main-2026-03-04T05:06:07Z.tar"
        );
        let root = Path::new("/var/lib/kubelet");
        assert_eq!(directory(root), Path::new("/var/lib/kubelet/checkpoints"));
    }

    #[test]
    fn timeouts_only_extend_the_usual_one() {
        let usual = Duration::from_secs(120);
        for (requested, expected) in [
            (0, usual),
            (119, usual),
            (121, Duration::from_secs(121)),
            (i64::MAX, MAX_TIMEOUT),
        ] {
            assert_eq!(timeout(requested, usual).unwrap(), expected, "{requested}");
        }
        let refused = timeout(-1, usual).unwrap_err();
        assert_eq!(refused.code(), tonic::Code::InvalidArgument);
        assert_eq!(
            refused.message(),
            "CheckpointContainer requires the timeout value to be > 0"
        );
    }
}
