//! Images: looked for by policy, pulled once for all who wait.
//!
//! [`ensure()`] looks and pulls, [`pull`] shares and limits pulls, [`credentials`] finds logins for them, [`provider`] asks
//! plugins (with a token of the pod's account where one wants that), [`records`] remembers what was pulled with what, [`volume`] is for images that are
//! mounted, `users` knows whom they run as.

pub mod access;
mod account;
pub mod credentials;
mod ensure;
pub mod provider;
pub mod pull;
pub mod records;
mod users;
pub mod volume;
mod words;

use std::rc::Rc;

use jiff::Timestamp;
use polylet_cri::{Runtime, v1};
use polylet_kit::BoxError;
use polylet_kit::config::{Config, KubeletConfiguration};
use polylet_model::constants::reason;

use super::said;
use crate::core::credentials::verify::Policy;
use crate::core::learn::Trouble;
use crate::core::wanted::Pull;
pub use ensure::{ensure, handler};
use provider::Providers;
use pull::Pulls;
use records::Records;
pub use users::User;
use users::Users;

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
    users: Users,
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
    /// It is a volume's: what is told of it is told of the pod.
    pub volume: bool,
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
            users: Users::default(),
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

    /// Whom an image runs as.
    pub async fn user(&self, image_ref: &str) -> Result<User, Trouble> {
        if let Some(known) = self.users.of(image_ref) {
            return Ok(known);
        }
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
        Ok(self.users.learn(&image))
    }
}
