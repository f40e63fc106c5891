//! Calls to the container runtime, and the usage of the image file system.

use std::collections::BTreeSet;
use std::path::Path;

use polylet_cri::{CriError, RuntimeClient};
use polylet_model::image;
use polylet_wire::runtime::v1::ImageSpec;
use serde_json::Value;

use crate::convert;
use crate::core::plan::ImageFsUsage;
use crate::core::records::ListedImage;

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
    let images = runtime
        .list_images(None)
        .await
        .map_err(InspectError::ListImages)?;
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
    let images = images.into_iter().map(convert::listed_image).collect();
    Ok((images, references))
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

/// The usage of the image file system.
pub(crate) async fn image_fs_usage(runtime: &RuntimeClient) -> Result<ImageFsUsage, InspectError> {
    let info = runtime
        .image_fs_info()
        .await
        .map_err(InspectError::ImageFsInfo)?;
    let first = info.image_filesystems.into_iter().next();
    let path = first
        .and_then(|fs| fs.fs_id)
        .map(|id| id.mountpoint)
        .ok_or(InspectError::NoImageFs)?;
    let stat = rustix::fs::statvfs(Path::new(&path)).map_err(|error| InspectError::Statvfs {
        path: path.clone(),
        source: error.into(),
    })?;
    Ok(ImageFsUsage {
        capacity: stat.f_blocks.saturating_mul(stat.f_frsize),
        available: stat.f_bavail.saturating_mul(stat.f_frsize),
    })
}

/// Removes an image with all its names.
pub(crate) async fn remove(runtime: &RuntimeClient, id: &str) -> Result<(), CriError> {
    let image = ImageSpec {
        image: id.to_owned(),
        ..ImageSpec::default()
    };
    runtime.remove_image(image).await
}
