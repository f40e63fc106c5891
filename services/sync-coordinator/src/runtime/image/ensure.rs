//! The images of a container: present by their pull policies, or pulled.

use std::rc::Rc;
use std::time::Instant;

use futures::future::{join, join_all};
use k8s_openapi::api::core::v1::Container;
use polylet_cri::{CallContext, v1};
use polylet_model::constants::reason;
use polylet_model::{Manifest, image};

use super::super::{
    RuntimeManager, StepContext, events, failure, failure_from, metrics, require_manifest, sandbox,
};
use super::inspect::{image_spec, inspect};
use super::messages::{go_duration, invalid_image, pull_failure};
use super::pull::PullRequest;
use super::records::{PendingPull, PullRecords};
use super::{PullTarget, access, credentials, volume};
use crate::core::credentials::Credential;
use crate::core::credentials::verify::ImagePullCredentials;
use crate::core::pod_spec::PullPolicy;
use crate::core::step::{StepFailure, StepOutcome};

/// The image of a container, and those of its image volumes.
fn images_of<'a>(
    context: &'a StepContext,
    container: &str,
) -> Result<(&'a Manifest, PullTarget, Vec<PullTarget>), StepFailure> {
    let manifest = require_manifest(context)?;
    let (_, spec) = manifest
        .container(container)
        .ok_or_else(|| invalid_image(format!("no container {container}")))?;
    let mounted = volume::pull_targets(manifest, spec);
    Ok((manifest, own_target(spec), mounted))
}

/// Ensures that the image of a container and those of its image volumes are present. The failure of a
/// volume takes precedence, as in the kubelet.
pub async fn ensure(
    manager: &Rc<RuntimeManager>,
    context: &StepContext,
    container: &str,
) -> Result<StepOutcome, StepFailure> {
    let (manifest, own, mounted) = images_of(context, container)?;
    let one = |target: PullTarget| async move {
        let image = ImageEnsurer {
            manager,
            context,
            manifest,
            container,
            target: &target,
        };
        image.ensure().await.map_err(|failure| StepFailure {
            image: target.reference,
            ..failure
        })
    };
    let image = own.reference.clone();
    let volumes = join_all(mounted.into_iter().map(one));
    let (volumes, own) = join(volumes, one(own)).await;
    for volume in volumes {
        volume?;
    }
    let image_ref = own?;
    Ok(StepOutcome::ImagePulled { image, image_ref })
}

/// Uses the images of a container and its image volumes if all are present by now; nothing is pulled.
pub async fn find(
    manager: &Rc<RuntimeManager>,
    context: &StepContext,
    container: &str,
) -> Result<StepOutcome, StepFailure> {
    let (manifest, own, mounted) = images_of(context, container)?;
    let image = own.reference.clone();
    let mut image_ref = None;
    for target in mounted.into_iter().chain([own]) {
        let ensurer = ImageEnsurer {
            manager,
            context,
            manifest,
            container,
            target: &target,
        };
        image_ref = ensurer.find().await?;
        if image_ref.is_none() {
            break;
        }
    }
    Ok(
        image_ref.map_or(StepOutcome::Done, |image_ref| StepOutcome::ImagePulled {
            image,
            image_ref,
        }),
    )
}

fn own_target(spec: &Container) -> PullTarget {
    PullTarget {
        reference: spec.image.clone().unwrap_or_default(),
        policy: PullPolicy::from_name(spec.image_pull_policy.as_deref()),
        volume: false,
    }
}

/// One image of a container.
struct ImageEnsurer<'a> {
    manager: &'a Rc<RuntimeManager>,
    context: &'a StepContext,
    manifest: &'a Manifest,
    container: &'a str,
    target: &'a PullTarget,
}

impl ImageEnsurer<'_> {
    /// Ensures that the image is present; returns the runtime's reference.
    async fn ensure(&self) -> Result<String, StepFailure> {
        let (mut present, mut pull) = (None, None);
        let ensured = self.decide(&mut present, &mut pull).await;
        metrics::images::count_ensure(self.target.policy, present, pull);
        ensured
    }

    /// The same; sets whether the image is present, and whether it has to be pulled, once it is known.
    async fn decide(
        &self,
        present: &mut Option<bool>,
        pull: &mut Option<bool>,
    ) -> Result<String, StepFailure> {
        let inspect_failed = |failure: StepFailure| {
            let reasons = [reason::INVALID_IMAGE_NAME, reason::IMAGE_INSPECT_ERROR];
            if reasons.contains(&failure.reason.as_str()) {
                self.record(true, "InspectFailed", failure.message.clone());
            }
            failure
        };
        let reference = &self.target.reference;
        let image = image_spec(self.manager, self.manifest, reference).await;
        let image = image.map_err(inspect_failed)?;
        if self.target.policy == PullPolicy::Always {
            *pull = Some(true);
            return self.pull(image).await;
        }
        let found = inspect(self.manager, image.clone()).await;
        let found = found.map_err(inspect_failed)?;
        *present = Some(found.is_some());
        if let Some(image_ref) = self.usable(found).await? {
            *pull = Some(false);
            return Ok(image_ref);
        }
        // As upstream: one that is absent and never pulled has not come to this decision.
        let is_never = self.target.policy == PullPolicy::Never;
        *pull = (!is_never || *present == Some(true)).then_some(true);
        // An image that the pod may not use counts as absent.
        if self.target.policy == PullPolicy::Never {
            let message =
                format!("Container image \"{reference}\" is not present with pull policy of Never");
            let reason = reason::ERR_IMAGE_NEVER_PULL;
            self.record(true, reason, message.clone());
            return Err(failure(reason, message));
        }
        self.pull(image).await
    }

    /// The runtime's reference if the image is present and the pod may use it. Nothing is pulled: an
    /// image that is pulled at each start counts as absent.
    async fn find(&self) -> Result<Option<String>, StepFailure> {
        if self.target.policy == PullPolicy::Always {
            return Ok(None);
        }
        let image = image_spec(self.manager, self.manifest, &self.target.reference).await?;
        let present = inspect(self.manager, image).await?;
        self.usable(present).await
    }

    /// The reference of a present image, if the pod may use it.
    async fn usable(&self, present: Option<String>) -> Result<Option<String>, StepFailure> {
        let reference = &self.target.reference;
        let Some(image_ref) = present else {
            return Ok(None);
        };
        if !access::may_use(self.manager, self.manifest, reference, &image_ref).await? {
            return Ok(None);
        }
        let accessed = match &self.manager.images.records {
            Some(_) => " and can be accessed by the pod",
            None => "",
        };
        let message = format!("Container image {reference:?} already present on machine{accessed}");
        self.record(false, "Pulled", message);
        credentials::check_pull_secrets(self.manager, self.manifest);
        Ok(Some(image_ref))
    }

    /// Pulls the image and records its credentials.
    async fn pull(&self, image: v1::ImageSpec) -> Result<String, StepFailure> {
        let (manager, name) = (self.manager, &self.target.reference);
        let request = PullRequest {
            image,
            logins: logins(manager, self.manifest, name).await?,
            sandbox: sandbox::config(manager, self.context, self.manifest, 0).await?,
        };
        let pod = &self.context.pod;
        let runtime = manager.images.runtime.with_context(CallContext {
            pod_uid: Some(pod.uid.clone()),
            pod_name: Some(pod.name.clone()),
            namespace: Some(pod.namespace.clone()),
            container: Some(self.container.to_owned()),
            attempt: None,
        });
        let pending = record_intent(manager, name).await?;
        self.record(false, "Pulling", format!("Pulling image {name:?}"));
        let started = Instant::now();
        let time = manager.images.pull_times.begin(&pod.uid);
        let pulled = manager.images.pulls.pull(runtime, request).await;
        drop(time);
        let pulled = pulled.map_err(|error| {
            let message = format!("Failed to pull image {name:?}: {error}");
            self.record(true, "Failed", message);
            pull_failure(name, &error)
        })?;
        let (took, total) = (go_duration(pulled.took), go_duration(started.elapsed()));
        let size = manager.images.size(&pulled.image_ref).await;
        metrics::images::count_pull(size, started.elapsed());
        let message = format!(
            "Successfully pulled image {name:?} in {took} ({total} including waiting). Image size: {size} bytes."
        );
        self.record(false, "Pulled", message);
        if let Some((records, pending)) = pending {
            let access = ImagePullCredentials::from_pull(pulled.used.as_ref());
            let recorded = records.record_pulled(&pulled.image_ref, name, Some(access));
            if let Err(error) = recorded.await {
                tracing::warn!(
                    image = name,
                    error = polylet_kit::report(&error),
                    "failed to record image pull; keeping its intent"
                );
                pending.keep();
            }
        }
        Ok(pulled.image_ref)
    }

    /// Records an event of the container, or of the pod for an image volume.
    fn record(&self, warning: bool, reason: &str, message: String) {
        let (manager, context) = (self.manager, self.context);
        if self.target.volume {
            events::record_pod(manager, context, warning, reason, message);
        } else {
            let container = self.container;
            events::record_container(manager, context, container, warning, reason, message);
        }
    }
}

/// Records the intent to pull, if pulls are recorded.
async fn record_intent<'a>(
    manager: &'a RuntimeManager,
    reference: &str,
) -> Result<Option<(&'a Rc<PullRecords>, PendingPull)>, StepFailure> {
    let Some(records) = &manager.images.records else {
        return Ok(None);
    };
    let pending = records.record_intent(reference).await.map_err(|error| {
        let error = polylet_kit::report(&error);
        failure(
            reason::ERR_IMAGE_PULL,
            format!(
                "Failed to record image pull intent for container image \"{reference}\": {error}"
            ),
        )
    })?;
    Ok(Some((records, pending)))
}

/// Credentials to try at the registry, in order.
async fn logins(
    manager: &RuntimeManager,
    manifest: &Manifest,
    reference: &str,
) -> Result<Vec<Credential>, StepFailure> {
    let name = image::ImageReference::parse(reference).map_err(|e| invalid_image(e.to_string()))?;
    let found = credentials::lookup(manager, manifest, &name.name()).await;
    found.map_err(|error| failure_from(reason::ERR_IMAGE_PULL, &error))
}
