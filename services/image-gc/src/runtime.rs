//! What image-gc asks of the container runtime and of the image file system.

use std::collections::BTreeSet;
use std::path::Path;

use polylet_cri::{CriError, Runtime};
use polylet_model::image;
use polylet_wire::runtime::v1::ImageSpec;
use serde_json::Value;

use crate::convert;
use crate::core::plan::Disk;
use crate::core::records::Listed;

/// What could not be found out.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LookError {
    #[error("cannot list images")]
    Images(#[source] CriError),
    #[error("cannot list containers")]
    Containers(#[source] CriError),
    #[error("cannot find the image file system")]
    FileSystem(#[source] CriError),
    #[error("the runtime names no image file system")]
    NoFileSystem,
    #[error("cannot ask the file system of {path}")]
    Statvfs {
        path: String,
        #[source]
        source: std::io::Error,
    },
}

/// Images, and the references that containers (running or dead) were made from.
pub(crate) async fn look(runtime: &Runtime) -> Result<(Vec<Listed>, BTreeSet<String>), LookError> {
    // Containers second: one made from an image between the two lists must be seen.
    let images = runtime.list_images(None).await.map_err(LookError::Images)?;
    let containers = runtime
        .list_containers(None)
        .await
        .map_err(LookError::Containers)?;
    let mut used = BTreeSet::new();
    for container in containers {
        used.insert(container.image_ref);
        used.extend(container.image.map(|spec| spec.image));
    }
    used.remove("");
    used.extend(sandbox_image(runtime).await);
    Ok((images.into_iter().map(convert::listed).collect(), used))
}

/// The image that every sandbox is made from. Older runtimes do not pin it, and no container list
/// shows its use. It stands in the runtime's configuration, which not every runtime tells.
async fn sandbox_image(runtime: &Runtime) -> Option<String> {
    let status = runtime.verbose_status().await.ok()?;
    let config: Value = serde_json::from_str(status.info.get("config")?).ok()?;
    let places = ["/sandboxImage", "/pinnedImages/sandbox"];
    let found = places
        .iter()
        .find_map(|place| config.pointer(place)?.as_str());
    found.map(|name| image::normalize(name).unwrap_or_else(|_| name.to_owned()))
}

/// The image file system.
pub(crate) async fn disk(runtime: &Runtime) -> Result<Disk, LookError> {
    let info = runtime
        .image_fs_info()
        .await
        .map_err(LookError::FileSystem)?;
    let first = info.image_filesystems.into_iter().next();
    let path = first
        .and_then(|fs| fs.fs_id)
        .map(|id| id.mountpoint)
        .ok_or(LookError::NoFileSystem)?;
    let stat = rustix::fs::statvfs(Path::new(&path)).map_err(|error| LookError::Statvfs {
        path: path.clone(),
        source: error.into(),
    })?;
    Ok(Disk {
        capacity: stat.f_blocks.saturating_mul(stat.f_frsize),
        available: stat.f_bavail.saturating_mul(stat.f_frsize),
    })
}

/// Removes one image with all its names.
pub(crate) async fn remove(runtime: &Runtime, id: &str) -> Result<(), CriError> {
    let image = ImageSpec {
        image: id.to_owned(),
        ..ImageSpec::default()
    };
    runtime.remove_image(image).await
}
