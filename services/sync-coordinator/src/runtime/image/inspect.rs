//! Images in the runtime: their specs and whether they are present.

use polylet_cri::v1;
use polylet_model::constants::reason;
use polylet_model::{Manifest, image};

use super::super::{RuntimeManager, events, failure, runtime_class};
use super::messages::invalid_image;
use crate::core::step::StepFailure;

/// The image spec of a reference, with the default tag if it has none.
pub(super) async fn image_spec(
    manager: &RuntimeManager,
    manifest: &Manifest,
    reference: &str,
) -> Result<v1::ImageSpec, StepFailure> {
    let name = image::with_default_tag(reference).map_err(|error| {
        invalid_image(format!(
            "Failed to apply default image tag \"{reference}\": {error}"
        ))
    })?;
    let annotations = manifest.metadata().annotations.clone();
    Ok(v1::ImageSpec {
        image: name,
        annotations: annotations.unwrap_or_default().into_iter().collect(),
        runtime_handler: handler(manager, manifest).await?,
        ..Default::default()
    })
}

/// The runtime handler of an image, which the kubelet passes on only with this feature gate.
pub async fn handler(manager: &RuntimeManager, manifest: &Manifest) -> Result<String, StepFailure> {
    let gates = &manager.ctx.config().kubelet.feature_gates;
    match gates.get("RuntimeClassInImageCriApi") {
        Some(true) => runtime_class::handler(manager, manifest).await,
        _ => Ok(String::new()),
    }
}

/// The runtime's reference of an image that is present, by its own report of a moment ago at most.
pub(super) async fn inspect(
    manager: &RuntimeManager,
    image: v1::ImageSpec,
) -> Result<Option<String>, StepFailure> {
    if let Some(image_ref) = manager.images.present.get(&image) {
        return Ok(Some(image_ref));
    }
    let found = manager.images.runtime.image_status(image.clone()).await;
    let found = found.map_err(|error| {
        // The kubelet quotes the reference that it has found, which is empty here.
        let error = events::error_text(&error);
        let message = format!("Failed to inspect image \"\": {error}");
        failure(reason::IMAGE_INSPECT_ERROR, message)
    })?;
    Ok(found.map(|found| {
        manager.images.users.insert(&found);
        manager.images.present.insert(&image, &found.id);
        found.id
    }))
}
