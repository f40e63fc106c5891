//! Images: present for the next start of a container, or on their way.

use polylet_model::constants::reason;

use super::plan::Plan;
use super::step::{Step, StepKey};
use super::view::{Failure, View};
use super::wanted::{Wanted, WantedContainer};

/// How long a failed pull is told as such before it is told as a back-off.
const FRESH: jiff::SignedDuration = jiff::SignedDuration::from_secs(2);

/// Where a container's image stands.
pub enum ImageState {
    /// On the node, under the runtime's reference.
    Present(String),
    /// Being looked for or pulled.
    Coming,
    /// Failed, and not to be tried before a while.
    Failed,
}

/// The container's image for its next start.
pub fn ready(view: &View<'_>, container: &WantedContainer, plan: &mut Plan) -> ImageState {
    if let Some(image_ref) = present(view, container) {
        return ImageState::Present(image_ref);
    }
    let key = StepKey::Pull(container.name.clone());
    let failure = view.pod.failures.get(&key);
    if let Some(failure) = failure.filter(|f| f.holds(view.now) && !view.in_flight(&key)) {
        let turned = failure.at.checked_add(FRESH).unwrap_or(failure.at);
        let (word, message) = if view.now < turned && backs_off(failure) {
            plan.wake(turned);
            (failure.reason.as_str(), failure.message.clone())
        } else {
            backing_off(container, failure)
        };
        plan.note(&container.name, word, message, Some(failure.retry_at));
        plan.wake(failure.retry_at);
        return ImageState::Failed;
    }
    if let Some(failure) = failure {
        // Until the next try has come to its end the last one is what there is to tell.
        let (word, message) = backing_off(container, failure);
        plan.note(&container.name, word, message, None);
    }
    plan.step(
        view,
        Step::PullImage {
            container: container.name.clone(),
        },
    );
    ImageState::Coming
}

/// Whether the registry was asked: what it said is told once, then the back-off.
fn backs_off(failure: &Failure) -> bool {
    [
        reason::ERR_IMAGE_PULL,
        reason::REGISTRY_UNAVAILABLE,
        reason::SIGNATURE_VALIDATION_FAILED,
    ]
    .contains(&failure.reason.as_str())
}

fn backing_off<'a>(container: &'a WantedContainer, failure: &'a Failure) -> (&'a str, String) {
    if !backs_off(failure) {
        return (&failure.reason, failure.message.clone());
    }
    // One of its volumes may be an image as well.
    let image = match failure.image.as_str() {
        "" => &container.image,
        image => image,
    };
    let message = format!(
        "Back-off pulling image \"{image}\": {}: {}",
        failure.reason, failure.message
    );
    (reason::IMAGE_PULL_BACK_OFF, message)
}

/// Fetches images of containers that never ran while the pod is on its way.
pub fn ahead(view: &View<'_>, wanted: &Wanted, plan: &mut Plan) {
    for container in &wanted.containers {
        let key = StepKey::Pull(container.name.clone());
        let known =
            present(view, container).is_some() || view.observed().newest(&container.name).is_some();
        if !known && view.held_back(&key).is_none() {
            plan.step(
                view,
                Step::PullImage {
                    container: container.name.clone(),
                },
            );
        }
    }
}

fn present(view: &View<'_>, container: &WantedContainer) -> Option<String> {
    let image = view.pod.images.get(&container.name)?;
    image
        .image_ref
        .clone()
        .filter(|_| image.image == container.image)
}
