//! Images of containers and image volumes: presence, pulls, credentials.
//!
//! [`ensure()`] pulls an image by its policy, [`pull`] shares and limits pulls, [`credentials`] finds
//! registry credentials, [`provider`] runs credential provider plugins, [`records`] stores the
//! credentials that each image was pulled with, [`volume`] is for image volumes, `run_as_user`
//! caches the users of images, and `present` that they are present.

pub mod access;
pub mod credentials;
mod ensure;
mod inspect;
mod messages;
mod present;
pub mod provider;
pub mod pull;
pub mod pull_times;
pub mod records;
mod run_as_user;
mod service_account;
pub mod volume;

use std::rc::Rc;
use std::time::Duration;

use jiff::Timestamp;
use polylet_cri::{RuntimeClient, v1};
use polylet_kit::BoxError;
use polylet_kit::config::{Config, KubeletConfiguration};
use polylet_model::constants::reason;
use polylet_watch::{PULSE, until_pulse};

use super::failure;
use super::security::ImageUser;
use crate::core::credentials::verify::VerificationPolicy;
use crate::core::pod_spec::PullPolicy;
use crate::core::step::StepFailure;
pub use ensure::{ensure, find};
pub use inspect::handler;
use present::PresentImages;
use provider::CredentialPlugins;
use pull::ImagePuller;
use pull_times::PullTimes;
use records::PullRecords;
use run_as_user::ImageUsers;

/// The feature gate of the check whether a pod may use an image that is present.
const VERIFY_GATE: &str = "KubeletEnsureSecretPulledImages";

/// Between two comparisons of the pull records with the images; upstream's period of image garbage
/// collection. They are at pulses.
const RECONCILE_PERIOD: Duration = Duration::from_secs(300);

/// Image pulls and what they need.
pub struct Images {
    runtime: RuntimeClient,
    pulls: ImagePuller,
    pull_times: PullTimes,
    plugins: CredentialPlugins,
    /// `None` if every pod may use every image, by the feature gate.
    records: Option<Rc<PullRecords>>,
    policy: VerificationPolicy,
    users: ImageUsers,
    present: PresentImages,
}

/// State that is read from disk before the first pull.
pub struct ImageState {
    plugins: CredentialPlugins,
    records: Option<Rc<PullRecords>>,
}

impl ImageState {
    /// Reads the plugins' configuration and the pull records.
    ///
    /// # Errors
    /// The configuration is invalid, or the directory of the records cannot be created.
    pub fn open(config: &Config) -> Result<Self, BoxError> {
        let gate = config.kubelet.feature_gates.get(VERIFY_GATE);
        let records =
            (gate != Some(&false)).then(|| PullRecords::open(&config.polylet.root_directory));
        Ok(Self {
            plugins: CredentialPlugins::load(&config.polylet)?,
            records: records.transpose()?.map(Rc::new),
        })
    }
}

/// An image to be present.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PullTarget {
    /// The reference in the manifest.
    pub reference: String,
    /// The pull policy.
    pub policy: PullPolicy,
    /// Whether it is an image volume, whose events belong to the pod.
    pub volume: bool,
}

impl Images {
    /// Uses this runtime; nothing is called yet.
    pub fn new(runtime: RuntimeClient, kubelet: &KubeletConfiguration, state: ImageState) -> Self {
        let list = &kubelet.preloaded_images_verification_allowlist;
        let policy = &kubelet.image_pull_credentials_verification_policy;
        Images {
            runtime,
            pulls: ImagePuller::new(kubelet, Timestamp::now()),
            pull_times: PullTimes::default(),
            plugins: state.plugins,
            records: state.records,
            policy: VerificationPolicy::from_name(policy, list),
            users: ImageUsers::default(),
            present: PresentImages::default(),
        }
    }

    /// An image that was present may be missing: the runtime is asked again.
    pub fn forget_present(&self) {
        self.present.clear();
    }

    /// How long images of each pod were being pulled.
    pub fn pull_times(&self) -> &PullTimes {
        &self.pull_times
    }

    /// Reconciles the pull records with the images in the runtime at once, and then as often as images
    /// are collected: the runtime reports no removals, and image-gc is not the only one to remove images.
    pub async fn reconcile_records(&self) {
        let Some(records) = &self.records else {
            return std::future::pending().await;
        };
        loop {
            records.reconcile(&self.runtime).await;
            tokio::time::sleep(RECONCILE_PERIOD - PULSE + until_pulse()).await;
        }
    }

    /// The size of an image in bytes; zero if unknown.
    async fn size(&self, image_ref: &str) -> u64 {
        let spec = v1::ImageSpec {
            image: image_ref.to_owned(),
            ..Default::default()
        };
        let found = self.runtime.image_status(spec).await.ok().flatten();
        found.map_or(0, |image| image.size)
    }

    /// The user that an image runs as.
    pub async fn user(&self, image_ref: &str) -> Result<ImageUser, StepFailure> {
        if let Some(known) = self.users.get(image_ref) {
            return Ok(known);
        }
        let spec = v1::ImageSpec {
            image: image_ref.to_owned(),
            ..Default::default()
        };
        let found = self.runtime.image_status(spec).await;
        let found = found.map_err(|e| failure(reason::IMAGE_INSPECT_ERROR, e.message()))?;
        let image = found.ok_or_else(|| {
            failure(
                reason::IMAGE_INSPECT_ERROR,
                format!("image {image_ref} is no longer present"),
            )
        })?;
        Ok(self.users.insert(&image))
    }
}
