//! Images: looked for by policy, pulled once for all who wait.
//!
//! [`pull`] shares and limits pulls, [`credentials`] finds logins for them, [`provider`] asks
//! plugins (with a token of the pod's account where one wants that), [`records`] remembers what was pulled with what, [`volume`] is for images that are
//! mounted.

pub mod access;
mod account;
pub mod credentials;
pub mod provider;
pub mod pull;
pub mod records;
pub mod volume;

use std::rc::Rc;
use std::time::{Duration, Instant};

use futures::future::{join, join_all};
use jiff::Timestamp;
use polylet_cri::{About, Runtime, v1};
use polylet_kit::BoxError;
use polylet_kit::config::{Config, KubeletConfiguration};
use polylet_model::constants::reason;
use polylet_model::{Manifest, image};

use super::{Hands, Job, manifest, notices, runtime_class, said, sandbox};
use crate::core::credentials::Credential;
use crate::core::credentials::verify::{Access, Policy};
use crate::core::learn::{Outcome, Trouble};
use crate::core::wanted::Pull;
use provider::Providers;
use pull::{Order, Pulls};
use records::{Announced, Records};

/// The gate of upstream's check that a pod may use an image that is there.
const VERIFY_GATE: &str = "KubeletEnsureSecretPulledImages";

/// Images and all that pulling them needs.
pub struct Images {
    runtime: Runtime,
    pulls: Pulls,
    providers: Providers,
    /// None where images are free for every pod, by the feature gate.
    records: Option<Rc<Records>>,
    policy: Policy,
}

/// What is read from disk before the first pull.
pub struct Kept {
    providers: Providers,
    records: Option<Rc<Records>>,
}

impl Kept {
    /// Reads the plugins' configuration and the records of pulls.
    ///
    /// # Errors
    /// When the one is wrong or there is no place for the other.
    pub fn open(config: &Config) -> Result<Self, BoxError> {
        let gate = config.kubelet.feature_gates.get(VERIFY_GATE);
        let records = (gate != Some(&false)).then(|| Records::open(&config.polylet.root_directory));
        Ok(Self {
            providers: Providers::load(&config.polylet)?,
            records: records.transpose()?.map(Rc::new),
        })
    }
}

/// An image as somebody wants it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// As the manifest says it.
    pub reference: String,
    /// When it is pulled.
    pub policy: Pull,
}

impl Images {
    /// Asks this runtime; nothing is called yet.
    pub fn new(runtime: Runtime, kubelet: &KubeletConfiguration, kept: Kept) -> Self {
        let list = &kubelet.preloaded_images_verification_allowlist;
        let policy = &kubelet.image_pull_credentials_verification_policy;
        Images {
            runtime,
            pulls: Pulls::new(kubelet, Timestamp::now()),
            providers: kept.providers,
            records: kept.records,
            policy: Policy::of(policy, list),
        }
    }

    /// Settles what a former life of the process left of its records.
    pub async fn settle(&self) {
        if let Some(records) = &self.records {
            records.settle(&self.runtime).await;
        }
    }

    /// Bytes of an image; nothing where the runtime does not say.
    async fn size(&self, image_ref: &str) -> u64 {
        let spec = v1::ImageSpec {
            image: image_ref.to_owned(),
            ..Default::default()
        };
        let found = self.runtime.image_status(spec).await.ok().flatten();
        found.map_or(0, |image| image.size)
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
}

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
    // What is not even looked for has no other event of its own.
    let unseen = |trouble: Trouble| {
        let looked = [reason::INVALID_IMAGE_NAME, reason::IMAGE_INSPECT_ERROR];
        if looked.contains(&trouble.reason.as_str()) {
            let words = trouble.message.clone();
            notices::of_container(hands, job, container, true, "InspectFailed", words);
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
            notices::of_container(hands, job, container, false, "Pulled", words);
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
            notices::of_container(hands, job, container, true, reason, words.clone());
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
    let tell = |warning, reason: &str, words: String| {
        notices::of_container(hands, job, container, warning, reason, words);
    };
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
async fn spec(
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
    match gates.get("RuntimeClassInImageCriAPI") {
        Some(true) => runtime_class::handler(hands, manifest).await,
        _ => Ok(String::new()),
    }
}

/// The runtime's reference of an image that is on the node.
async fn look(hands: &Hands, image: v1::ImageSpec) -> Result<Option<String>, Trouble> {
    let found = hands.images.runtime.image_status(image).await;
    let found = found.map_err(|error| {
        // Upstream quotes what it found here, which is nothing.
        let words = format!("Failed to inspect image \"\": {}", notices::words(&error));
        said(reason::IMAGE_INSPECT_ERROR, words)
    })?;
    Ok(found.map(|image| image.id))
}

/// What to try at the registry, in order.
async fn logins(
    hands: &Hands,
    manifest: &Manifest,
    reference: &str,
) -> Result<Vec<Credential>, Trouble> {
    let name = image::Reference::parse(reference).map_err(|e| invalid(e.to_string()))?;
    let found = credentials::lookup(hands, manifest, &name.name()).await;
    found.map_err(|error| super::trouble(reason::ERR_IMAGE_PULL, &error))
}

/// A pull that failed, as upstream words it.
fn failed(reference: &str, words: &str) -> Trouble {
    for (reason, why) in [
        (reason::REGISTRY_UNAVAILABLE, "the registry is unavailable"),
        (
            reason::SIGNATURE_VALIDATION_FAILED,
            "the signature validation failed",
        ),
    ] {
        if let Some(rest) = words.strip_prefix(reason) {
            let message = format!("image pull failed for {reference} because {why}{rest}");
            return said(reason, message);
        }
    }
    said(reason::ERR_IMAGE_PULL, words)
}

/// Cut to milliseconds, as upstream prints it: 530ms, 1.2s, 1m2.5s.
fn go_duration(span: Duration) -> String {
    let millis = span.as_millis();
    if millis == 0 {
        return "0s".to_owned();
    }
    if millis < 1000 {
        return format!("{millis}ms");
    }
    let (minutes, rest) = (millis / 60_000, millis % 60_000);
    let mut seconds = format!("{}.{:03}", rest / 1000, rest % 1000);
    seconds.truncate(seconds.trim_end_matches('0').trim_end_matches('.').len());
    match (minutes / 60, minutes % 60) {
        (0, 0) => format!("{seconds}s"),
        (0, minutes) => format!("{minutes}m{seconds}s"),
        (hours, minutes) => format!("{hours}h{minutes}m{seconds}s"),
    }
}

fn invalid(message: String) -> Trouble {
    Trouble {
        lasting: true,
        ..said(reason::INVALID_IMAGE_NAME, message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_printed_as_upstream_does() {
        for (millis, printed) in [
            (0, "0s"),
            (530, "530ms"),
            (1000, "1s"),
            (1204, "1.204s"),
            (60_000, "1m0s"),
            (62_500, "1m2.5s"),
            (3_600_000, "1h0m0s"),
        ] {
            assert_eq!(go_duration(Duration::from_millis(millis)), printed);
        }
    }

    #[test]
    fn failures_keep_upstreams_words() {
        for (words, reason, message) in [
            ("no such host", "ErrImagePull", "no such host"),
            (
                "RegistryUnavailable: connection refused",
                "RegistryUnavailable",
                "image pull failed for a:1 because the registry is unavailable: connection refused",
            ),
            (
                "SignatureValidationFailed",
                "SignatureValidationFailed",
                "image pull failed for a:1 because the signature validation failed",
            ),
            (
                "it said RegistryUnavailable",
                "ErrImagePull",
                "it said RegistryUnavailable",
            ),
        ] {
            let trouble = failed("a:1", words);
            assert_eq!(
                (trouble.reason.as_str(), trouble.message.as_str()),
                (reason, message)
            );
        }
    }
}
