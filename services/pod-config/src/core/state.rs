//! Persisted state of a static source: the last valid manifests, and the causes of its pods.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use polylet_kit::config::KeepSecrets;
use serde::{Deserialize, Serialize};

use super::merge::{ManifestState, Manifests};
use super::removals::Removals;
use super::{LocalObject, StaticPod};

/// Version of the file format.
pub const VERSION: u32 = 2;

/// Persisted state of one source.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PersistedSource {
    /// Node name and path or URL; the state of another source is not used.
    pub source_id: String,
    /// Start of the present outage of the source.
    pub stale_since: Option<Timestamp>,
    /// Manifests by origin.
    pub manifests: BTreeMap<String, PersistedManifest>,
    /// Causes by pod uid.
    pub causes: BTreeMap<String, PersistedCause>,
    /// Uids by the fingerprints of their manifests, see [`super::adoption`]. Former versions have only
    /// those of pods that a kubelet left running.
    #[serde(default, rename = "adopted")]
    pub uids: BTreeMap<String, String>,
    /// When pods were removed, by uid; former versions have none.
    #[serde(default)]
    pub removals: BTreeMap<String, Timestamp>,
}

/// Items of one manifest.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PersistedManifest {
    /// Valid pods.
    pub pods: Vec<StaticPod>,
    /// Valid Secrets, ConfigMaps and RuntimeClasses.
    pub objects: Vec<LocalObject>,
    /// See [`ManifestState::fingerprint`].
    pub fingerprint: String,
}

/// A pod's cause, which is the same after a restart for as long as the pod is unchanged.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PersistedCause {
    /// Digest of the pod it belongs to.
    pub digest: String,
    /// W3C traceparent.
    pub traceparent: String,
    /// When the change was first observed.
    pub observed_at: Option<Timestamp>,
    /// See [`StaticPod::removed_at`]: a pod that was added again has another cause.
    #[serde(default)]
    pub removed_at: Option<Timestamp>,
}

impl PersistedSource {
    /// Collects the state of a source.
    pub fn new(
        source_id: String,
        stale_since: Option<Timestamp>,
        manifests: &Manifests,
        causes: BTreeMap<String, PersistedCause>,
        uids: BTreeMap<String, String>,
    ) -> Self {
        let removals = manifests.removals().all().clone();
        let manifests = manifests
            .iter()
            .filter(|(_, m)| !m.pods.is_empty() || !m.objects.is_empty())
            .map(|(origin, m)| {
                let manifest = PersistedManifest {
                    pods: m.pods.clone(),
                    objects: m.objects.clone(),
                    fingerprint: m.fingerprint.clone(),
                };
                (origin.clone(), manifest)
            })
            .collect();
        PersistedSource {
            source_id,
            stale_since,
            manifests,
            causes,
            uids,
            removals,
        }
    }

    /// The state that may be kept on disk.
    #[must_use]
    pub fn persisted(mut self, keep_secrets: KeepSecrets) -> Self {
        for manifest in self.manifests.values_mut() {
            let objects = &mut manifest.objects;
            objects.retain(|object| object.key.is_persisted(keep_secrets));
        }
        self
    }

    /// The uids that pods run under, by the fingerprints of their manifests. In former versions, a uid
    /// that was not adopted was the fingerprint itself.
    pub fn uids(&self) -> BTreeMap<String, String> {
        let mut uids = self.uids.clone();
        let remembered: BTreeSet<&String> = self.uids.values().collect();
        let pods = self.manifests.values().flat_map(|manifest| &manifest.pods);
        for pod in pods.filter(|pod| !remembered.contains(&pod.uid)) {
            uids.insert(pod.uid.clone(), pod.uid.clone());
        }
        uids
    }

    /// The manifests as they were.
    pub fn manifests(&self) -> Manifests {
        let mut manifests = Manifests::with_removals(Removals::new(self.removals.clone()));
        for (origin, manifest) in self.manifests.clone() {
            let state = ManifestState {
                pods: manifest.pods,
                objects: manifest.objects,
                errors: Vec::new(),
                fingerprint: manifest.fingerprint,
            };
            manifests.restore(origin, state);
        }
        manifests
    }
}
