//! Images: looked for by policy, pulled once for all who wait.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use futures::future::{FutureExt, LocalBoxFuture, Shared, WeakShared};
use polylet_cri::{About, Runtime, v1};
use polylet_kit::config::KubeletConfiguration;
use polylet_model::constants::reason;
use polylet_model::image;
use tokio::sync::Semaphore;

use super::{Hands, Job, manifest, said, sandbox};
use crate::core::learn::{Outcome, Trouble};
use crate::core::wanted::Pull;

/// Pulls at once where the configuration does not say.
const PULLS: usize = 10;

type Pulled = Result<String, Trouble>;
type Pulling = LocalBoxFuture<'static, Pulled>;

/// Images on their way. A pull lives as long as somebody waits for it.
pub struct Images {
    runtime: Runtime,
    places: Rc<Semaphore>,
    pulls: RefCell<HashMap<String, WeakShared<Pulling>>>,
}

impl Images {
    /// Asks this runtime, and pulls as many at once as the configuration allows.
    pub fn new(runtime: Runtime, kubelet: &KubeletConfiguration) -> Self {
        let places = match (
            kubelet.serialize_image_pulls,
            kubelet.max_parallel_image_pulls,
        ) {
            (Some(true), _) => 1,
            (_, Some(most)) => usize::try_from(most).unwrap_or(1).max(1),
            _ => PULLS,
        };
        Images {
            runtime,
            places: Rc::new(Semaphore::new(places)),
            pulls: RefCell::default(),
        }
    }

    /// Whom an image runs as: a number, or a name.
    pub async fn user(&self, image_ref: &str) -> Result<(Option<i64>, String), Trouble> {
        let spec = v1::ImageSpec {
            image: image_ref.to_owned(),
            ..Default::default()
        };
        let found = self.runtime.image_status(spec).await;
        let found = found.map_err(|e| said(reason::IMAGE_INSPECT_ERROR, e.message()))?;
        let image = found.ok_or_else(|| {
            said(
                reason::IMAGE_INSPECT_ERROR,
                format!("image {image_ref} is gone"),
            )
        })?;
        Ok((image.uid.map(|uid| uid.value), image.username))
    }

    /// The pull of an image: the one under way, or a new one.
    fn pull(
        &self,
        about: About,
        spec: v1::ImageSpec,
        sandbox: v1::PodSandboxConfig,
    ) -> Shared<Pulling> {
        let mut pulls = self.pulls.borrow_mut();
        pulls.retain(|_, pull| pull.upgrade().is_some_and(|p| p.peek().is_none()));
        if let Some(pull) = pulls.get(&spec.image).and_then(WeakShared::upgrade) {
            return pull;
        }
        let (runtime, places, name) = (
            self.runtime.about(about),
            Rc::clone(&self.places),
            spec.image.clone(),
        );
        let pulling = async move {
            let _place = places
                .acquire()
                .await
                .map_err(|_| said("Draining", "the process is ending"))?;
            let pulled = runtime.pull_image(spec, None, Some(sandbox)).await;
            pulled.map_err(|error| match error.message() {
                message if message.contains("RegistryUnavailable") => {
                    said(reason::REGISTRY_UNAVAILABLE, message)
                }
                message if message.contains("SignatureValidationFailed") => {
                    said(reason::SIGNATURE_VALIDATION_FAILED, message)
                }
                message => said(reason::ERR_IMAGE_PULL, message),
            })
        };
        let pull = pulling.boxed_local().shared();
        if let Some(weak) = pull.downgrade() {
            pulls.insert(name, weak);
        }
        pull
    }
}

/// Sees to it that a container's image is on the node.
pub async fn ensure(hands: &Rc<Hands>, job: &Job, container: &str) -> Result<Outcome, Trouble> {
    let manifest = manifest(job)?;
    let lasting = |message: String| Trouble {
        lasting: true,
        ..said(reason::INVALID_IMAGE_NAME, message)
    };
    let (_, spec) = manifest
        .container(container)
        .ok_or_else(|| lasting(format!("no container {container}")))?;
    let wanted = spec.image.clone().unwrap_or_default();
    let name = image::with_default_tag(&wanted).map_err(|error| {
        lasting(format!(
            "Failed to apply default image tag \"{wanted}\": couldn't parse {error}"
        ))
    })?;
    let policy = match spec.image_pull_policy.as_deref() {
        Some("Always") => Pull::Always,
        Some("Never") => Pull::Never,
        _ => Pull::IfAbsent,
    };
    let image = v1::ImageSpec {
        image: name,
        runtime_handler: sandbox::handler(manifest),
        ..Default::default()
    };
    if policy != Pull::Always {
        let found = hands.images.runtime.image_status(image.clone()).await;
        let found = found.map_err(|error| {
            said(
                reason::IMAGE_INSPECT_ERROR,
                format!(
                    "Failed to inspect image \"{}\": {}",
                    image.image,
                    error.message()
                ),
            )
        })?;
        if let Some(found) = found {
            return Ok(Outcome::Image {
                image: wanted,
                image_ref: found.id,
            });
        }
        if policy == Pull::Never {
            let message =
                format!("Container image \"{wanted}\" is not present with pull policy of Never");
            return Err(said(reason::ERR_IMAGE_NEVER_PULL, message));
        }
    }
    let sandbox = sandbox::config(hands, job, manifest, 0).await?;
    let about = About {
        pod_uid: Some(job.pod.uid.clone()),
        pod_name: Some(job.pod.name.clone()),
        namespace: Some(job.pod.namespace.clone()),
        container: Some(container.to_owned()),
        attempt: None,
    };
    let image_ref = hands.images.pull(about, image, sandbox).await?;
    Ok(Outcome::Image {
        image: wanted,
        image_ref,
    })
}
