//! Calls to the container runtime, and the usage of the image file system.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use polylet_cri::{CriError, RuntimeClient};
use polylet_kit::{BlockingCall, BlockingCallError};
use polylet_model::image;
use polylet_wire::runtime::v1::ImageSpec;
use rustix::fs::StatVfs;
use serde_json::Value;

use crate::convert;
use crate::core::plan::ImageFsUsage;
use crate::core::records::ListedImage;

const STATVFS_DEADLINE: Duration = Duration::from_secs(10);

/// A failed inspection of the runtime or the image file system.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InspectError {
    #[error("failed to list images")]
    ListImages(#[source] CriError),
    #[error("failed to list containers")]
    ListContainers(#[source] CriError),
    #[error("failed to get the image file system")]
    ImageFsInfo(#[source] CriError),
    #[error("the runtime reports no image file system")]
    NoImageFs,
    #[error("the image file system at {path} does not respond")]
    NotResponding {
        path: String,
        #[source]
        source: BlockingCallError,
    },
    #[error("failed to stat the file system of {path}")]
    Statvfs {
        path: String,
        #[source]
        source: std::io::Error,
    },
}

/// Lists images, and the image references of all containers, running or exited.
pub(crate) async fn list(
    runtime: &RuntimeClient,
) -> Result<(Vec<ListedImage>, BTreeSet<String>), InspectError> {
    // Containers second: one created between the two calls must be seen.
    let images = list_images(runtime).await?;
    let containers = runtime
        .list_containers(None)
        .await
        .map_err(InspectError::ListContainers)?;
    let mut references = BTreeSet::new();
    for container in containers {
        references.insert(container.image_ref);
        references.extend(container.image.map(|spec| spec.image));
    }
    references.remove("");
    references.extend(sandbox_image(runtime).await);
    Ok((images, references))
}

/// Lists images.
pub(crate) async fn list_images(runtime: &RuntimeClient) -> Result<Vec<ListedImage>, InspectError> {
    let images = runtime.list_images(None).await;
    let images = images.map_err(InspectError::ListImages)?;
    Ok(images.into_iter().map(convert::listed_image).collect())
}

/// The image of all sandboxes, from the runtime's configuration where it is reported. Older runtimes
/// do not pin it, and no list shows its use.
async fn sandbox_image(runtime: &RuntimeClient) -> Option<String> {
    let status = runtime.verbose_status().await.ok()?;
    let config: Value = serde_json::from_str(status.info.get("config")?).ok()?;
    let pointers = ["/sandboxImage", "/pinnedImages/sandbox"];
    let name = pointers
        .iter()
        .find_map(|pointer| config.pointer(pointer)?.as_str());
    name.map(|name| image::normalize(name).unwrap_or_else(|_| name.to_owned()))
}

/// Measures the image file system, which may not answer: never on the thread of the event loop.
#[derive(Default)]
pub(crate) struct ImageFsProbe {
    statvfs: BlockingCall<rustix::io::Result<StatVfs>>,
}

impl ImageFsProbe {
    /// The usage of the image file system.
    pub(crate) async fn usage(
        &mut self,
        runtime: &RuntimeClient,
    ) -> Result<ImageFsUsage, InspectError> {
        let info = runtime
            .image_fs_info()
            .await
            .map_err(InspectError::ImageFsInfo)?;
        let first = info.image_filesystems.into_iter().next();
        let path = first
            .and_then(|fs| fs.fs_id)
            .map(|id| id.mountpoint)
            .ok_or(InspectError::NoImageFs)?;
        let measured = path.clone();
        let call = move || rustix::fs::statvfs(Path::new(&measured));
        let stat = self.statvfs.run(STATVFS_DEADLINE, call).await;
        let stat = stat.map_err(|source| InspectError::NotResponding {
            path: path.clone(),
            source,
        })?;
        let stat = stat.map_err(|error| InspectError::Statvfs {
            path,
            source: error.into(),
        })?;
        Ok(ImageFsUsage {
            capacity: stat.f_blocks.saturating_mul(stat.f_frsize),
            available: stat.f_bavail.saturating_mul(stat.f_frsize),
        })
    }
}

/// Removes an image with all its names.
pub(crate) async fn remove(runtime: &RuntimeClient, id: &str) -> Result<(), CriError> {
    let image = ImageSpec {
        image: id.to_owned(),
        ..ImageSpec::default()
    };
    runtime.remove_image(image).await
}
