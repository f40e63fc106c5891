//! The images of one container: looked for by policy, pulled where they are not there.

use std::rc::Rc;
use std::time::Instant;

use futures::future::{join, join_all};
use polylet_cri::{About, v1};
use polylet_model::constants::reason;
use polylet_model::{Manifest, image};

use super::super::{Hands, Job, manifest, notices, runtime_class, said, sandbox, trouble};
use super::pull::Order;
use super::records::{Announced, Records};
use super::words::{failed, go_duration, invalid};
use super::{Wanted, access, credentials, volume};
use crate::core::credentials::Credential;
use crate::core::credentials::verify::Access;
use crate::core::learn::{Outcome, Trouble};
use crate::core::wanted::Pull;

/// Sees to it that a container's image is on the node, and those of the volumes it mounts. A
/// volume's trouble is told first, as upstream does.
pub async fn ensure(hands: &Rc<Hands>, job: &Job, container: &str) -> Result<Outcome, Trouble> {
    let manifest = manifest(job)?;
    let (_, spec) = manifest
        .container(container)
        .ok_or_else(|| invalid(format!("no container {container}")))?;
    let own = Wanted {
        reference: spec.image.clone().unwrap_or_default(),
        policy: Pull::of(spec.image_pull_policy.as_deref()),
        volume: false,
    };
    let mounted = volume::wanted(manifest, spec);
    let one = |wanted: Wanted| async move {
        let ensured = present(hands, job, manifest, container, &wanted).await;
        ensured.map_err(|trouble| Trouble {
            image: wanted.reference,
            ..trouble
        })
    };
    let image = own.reference.clone();
    let volumes = join_all(mounted.into_iter().map(one));
    let (volumes, own) = join(volumes, one(own)).await;
    for volume in volumes {
        volume?;
    }
    let image_ref = own?;
    Ok(Outcome::Image { image, image_ref })
}

/// The runtime's reference of an image, pulled where the policy says so.
async fn present(
    hands: &Rc<Hands>,
    job: &Job,
    manifest: &Manifest,
    container: &str,
    wanted: &Wanted,
) -> Result<String, Trouble> {
    let tell = |warning, reason: &str, words: String| match wanted.volume {
        true => notices::of_whole(hands, job, warning, reason, words),
        false => notices::of_container(hands, job, container, warning, reason, words),
    };
    // What is not even looked for has no other event of its own.
    let unseen = |trouble: Trouble| {
        let looked = [reason::INVALID_IMAGE_NAME, reason::IMAGE_INSPECT_ERROR];
        if looked.contains(&trouble.reason.as_str()) {
            tell(true, "InspectFailed", trouble.message.clone());
        }
        trouble
    };
    let image = spec(hands, manifest, &wanted.reference).await;
    let image = image.map_err(unseen)?;
    if wanted.policy != Pull::Always {
        if let Some(image_ref) = look(hands, image.clone()).await.map_err(unseen)?
            && access::may_use(hands, manifest, &wanted.reference, &image_ref).await?
        {
            let accessed = match &hands.images.records {
                Some(_) => " and can be accessed by the pod",
                None => "",
            };
            let words = format!(
                "Container image {:?} already present on machine{accessed}",
                wanted.reference
            );
            tell(false, "Pulled", words);
            credentials::mind(hands, manifest);
            return Ok(image_ref);
        }
        // An image that the pod may not use is to it as if it were not there.
        if wanted.policy == Pull::Never {
            let words = format!(
                "Container image \"{}\" is not present with pull policy of Never",
                wanted.reference
            );
            let reason = reason::ERR_IMAGE_NEVER_PULL;
            tell(true, reason, words.clone());
            return Err(said(reason, words));
        }
    }
    let logins = logins(hands, manifest, &wanted.reference).await?;
    let sandbox = sandbox::config(hands, job, manifest, 0).await?;
    let runtime = hands.images.runtime.about(About {
        pod_uid: Some(job.pod.uid.clone()),
        pod_name: Some(job.pod.name.clone()),
        namespace: Some(job.pod.namespace.clone()),
        container: Some(container.to_owned()),
        attempt: None,
    });
    let order = Order {
        image,
        logins,
        sandbox,
    };
    let announced = announce(hands, &wanted.reference).await?;
    let name = &wanted.reference;
    tell(false, "Pulling", format!("Pulling image {name:?}"));
    let began = Instant::now();
    let pulled = hands.images.pulls.pull(runtime, order).await;
    let pulled = pulled.map_err(|words| {
        let told = format!("Failed to pull image {name:?}: {words}");
        tell(true, "Failed", told);
        failed(name, &words)
    })?;
    let (took, whole) = (go_duration(pulled.took), go_duration(began.elapsed()));
    let size = hands.images.size(&pulled.image_ref).await;
    tell(
        false,
        "Pulled",
        format!(
            "Successfully pulled image {name:?} in {took} ({whole} including waiting). Image size: {size} bytes."
        ),
    );
    if let Some((records, announced)) = announced {
        let (id, access) = (&pulled.image_ref, Access::of(pulled.used.as_ref()));
        let noted = records.note(id, &wanted.reference, Some(access)).await;
        if let Err(error) = noted {
            let error = polylet_kit::report(&error);
            tracing::warn!(image = wanted.reference, error, "a pull is not recorded");
            announced.keep();
        }
    }
    Ok(pulled.image_ref)
}

/// Announces a pull, where records are kept.
async fn announce<'a>(
    hands: &'a Hands,
    reference: &str,
) -> Result<Option<(&'a Rc<Records>, Announced)>, Trouble> {
    let Some(records) = &hands.images.records else {
        return Ok(None);
    };
    let announced = records.announce(reference).await.map_err(|error| {
        let why = polylet_kit::report(&error);
        said(
            reason::ERR_IMAGE_PULL,
            format!(
                "Failed to record image pull intent for container image \"{reference}\": {why}"
            ),
        )
    })?;
    Ok(Some((records, announced)))
}

/// What the runtime is asked for.
pub(super) async fn spec(
    hands: &Hands,
    manifest: &Manifest,
    reference: &str,
) -> Result<v1::ImageSpec, Trouble> {
    let name = image::with_default_tag(reference).map_err(|error| {
        invalid(format!(
            "Failed to apply default image tag \"{reference}\": {error}"
        ))
    })?;
    let annotations = manifest.metadata().annotations.clone();
    Ok(v1::ImageSpec {
        image: name,
        annotations: annotations.unwrap_or_default().into_iter().collect(),
        runtime_handler: handler(hands, manifest).await?,
        ..Default::default()
    })
}

/// The runtime handler that an image is for: upstream tells it only with this feature gate.
pub async fn handler(hands: &Hands, manifest: &Manifest) -> Result<String, Trouble> {
    let gates = &hands.ctx.config().kubelet.feature_gates;
    match gates.get("RuntimeClassInImageCriApi") {
        Some(true) => runtime_class::handler(hands, manifest).await,
        _ => Ok(String::new()),
    }
}

/// The runtime's reference of an image that is on the node.
pub(super) async fn look(hands: &Hands, image: v1::ImageSpec) -> Result<Option<String>, Trouble> {
    let found = hands.images.runtime.image_status(image).await;
    let found = found.map_err(|error| {
        // Upstream quotes what it found here, which is nothing.
        let words = format!("Failed to inspect image \"\": {}", notices::words(&error));
        said(reason::IMAGE_INSPECT_ERROR, words)
    })?;
    Ok(found.map(|image| {
        hands.images.users.learn(&image);
        image.id
    }))
}

/// What to try at the registry, in order.
async fn logins(
    hands: &Hands,
    manifest: &Manifest,
    reference: &str,
) -> Result<Vec<Credential>, Trouble> {
    let name = image::Reference::parse(reference).map_err(|e| invalid(e.to_string()))?;
    let found = credentials::lookup(hands, manifest, &name.name()).await;
    found.map_err(|error| trouble(reason::ERR_IMAGE_PULL, &error))
}
