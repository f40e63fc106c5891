//! Images of containers: pull, prefetch and image pull back-off.

use jiff::SignedDuration;
use polylet_model::ContainerKind;
use polylet_model::constants::reason;

use crate::core::plan::Plan;
use crate::core::pod_spec::{ContainerSpecView, PodSpecView, PullPolicy};
use crate::core::step::{Step, StepKey};
use crate::core::view::{StepBackoff, View};

/// How long a failed pull is shown before the back-off replaces it.
const SHOW_PULL_ERROR_FOR: SignedDuration = SignedDuration::from_secs(2);
/// Between two looks for an image during the back-off of its pull; upstream's sync interval of a pod
/// that failed.
const SEARCH_INTERVAL: SignedDuration = SignedDuration::from_secs(10);

/// Whether a container's image can be used.
pub enum ImageReadiness {
    /// Present, under this reference of the runtime.
    Present(String),
    /// Being checked or pulled.
    Pulling,
    /// The last pull failed and the next one must wait.
    BackingOff,
}

/// Ensures the image for a container's next start.
pub fn ensure(view: &View<'_>, container: &ContainerSpecView, plan: &mut Plan) -> ImageReadiness {
    if let Some(image_ref) = present(view, container) {
        return ImageReadiness::Present(image_ref);
    }
    let key = StepKey::PullImage(container.name.clone());
    let failure = view.pod.failures.get(&key);
    if let Some(failure) = failure.filter(|f| f.is_active(view.now) && !view.in_flight(&key)) {
        let failed_at = failure.last_failed_at;
        let shown_until = failed_at.checked_add(SHOW_PULL_ERROR_FOR);
        let shown_until = shown_until.unwrap_or(failed_at);
        let (reason, message) = if view.now < shown_until && is_registry_error(failure) {
            plan.wake_by(shown_until);
            (failure.reason.as_str(), failure.message.clone())
        } else {
            backoff_reason(container, failure)
        };
        plan.set_waiting(&container.name, reason, message, Some(failure.retry_at));
        plan.wake_by(failure.retry_at);
        find_arrived(view, container, failure, plan);
        return ImageReadiness::BackingOff;
    }
    if let Some(failure) = failure {
        // The last failure stays visible until the next attempt has ended.
        let (reason, message) = backoff_reason(container, failure);
        plan.set_waiting(&container.name, reason, message, None);
    }
    plan.start_step(
        view,
        Step::PullImage {
            container: container.name.clone(),
        },
    );
    ImageReadiness::Pulling
}

/// Looks whether the image has arrived in another way, as upstream does in each sync of a pod that
/// waits for the back-off of a pull.
fn find_arrived(
    view: &View<'_>,
    container: &ContainerSpecView,
    failure: &StepBackoff,
    plan: &mut Plan,
) {
    if container.pull_policy == PullPolicy::Always || !is_registry_error(failure) {
        return;
    }
    let searches = &view.pod.image_searches;
    let last = searches.get(&container.name);
    let last = last.copied().unwrap_or(failure.last_failed_at);
    let due = last.checked_add(SEARCH_INTERVAL).unwrap_or(last);
    if due > view.now {
        plan.wake_by(due);
        return;
    }
    plan.start_step(
        view,
        Step::FindImage {
            container: container.name.clone(),
        },
    );
}

/// Whether the error came from the registry: it is shown first, then `ImagePullBackOff`.
fn is_registry_error(failure: &StepBackoff) -> bool {
    [
        reason::ERR_IMAGE_PULL,
        reason::REGISTRY_UNAVAILABLE,
        reason::SIGNATURE_VALIDATION_FAILED,
    ]
    .contains(&failure.reason.as_str())
}

fn backoff_reason<'a>(
    container: &'a ContainerSpecView,
    failure: &'a StepBackoff,
) -> (&'a str, String) {
    if !is_registry_error(failure) {
        return (&failure.reason, failure.message.clone());
    }
    // The image may be that of an image volume.
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

/// Pulls images of containers that never ran while the pod is being set up. An image that is pulled at
/// each start is pulled right before it, unless that comes next: a tag may move while init containers run.
pub fn prefetch(view: &View<'_>, spec: &PodSpecView, plan: &mut Plan) {
    for container in &spec.containers {
        if container.pull_policy == PullPolicy::Always && !starts_first(spec, container) {
            continue;
        }
        let key = StepKey::PullImage(container.name.clone());
        let ran = view.observed().newest_container(&container.name).is_some();
        if present(view, container).is_none() && !ran && view.backing_off(&key).is_none() {
            plan.start_step(
                view,
                Step::PullImage {
                    container: container.name.clone(),
                },
            );
        }
    }
}

/// Whether a container starts as soon as there is a sandbox.
fn starts_first(spec: &PodSpecView, container: &ContainerSpecView) -> bool {
    let first = spec.init_containers().next();
    container.kind == ContainerKind::Ephemeral
        || first.is_none_or(|first| first.name == container.name)
}

fn present(view: &View<'_>, container: &ContainerSpecView) -> Option<String> {
    let image = view.pod.images.get(&container.name)?;
    let image_ref = image.image_ref.clone();
    image_ref.filter(|_| image.image == container.image)
}
