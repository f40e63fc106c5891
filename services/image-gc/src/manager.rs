//! What image-gc knows, and which images to remove. The event loop and the simulation drive it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use polylet_kit::follow::podconfig::SOURCES;
use polylet_watch::Update;
use polylet_wire::podconfig::v1::{Pod, PodSource};

use crate::core::plan::{self, ImageFsUsage, ImageGcPolicy, ImageRemoval};
use crate::core::records::{self, ImageRecords, ImageSnapshot, ListedImage};
use crate::manifest::PodImages;

/// The pods' images and the records of all images.
pub struct ImageGcManager {
    policy: ImageGcPolicy,
    /// Image references by pod uid.
    pods: BTreeMap<String, Vec<String>>,
    synced_sources: BTreeSet<i32>,
    records: ImageRecords,
}

impl ImageGcManager {
    /// Starts with the records of a previous process instance.
    pub fn new(policy: ImageGcPolicy, records: ImageRecords) -> Self {
        ImageGcManager {
            policy,
            pods: BTreeMap::new(),
            synced_sources: BTreeSet::new(),
            records,
        }
    }

    /// The limits.
    pub fn policy(&self) -> &ImageGcPolicy {
        &self.policy
    }

    /// Takes a change from a source of pods. Returns the number of images of a new pod, which are
    /// protected from now on.
    pub fn handle_pod(&mut self, source: PodSource, update: Update<String, Pod>) -> Option<usize> {
        match update {
            Update::Upsert(uid, pod) => match PodImages::from_json(&pod.manifest) {
                Ok(manifest) => {
                    let references = manifest.into_image_references();
                    let count = references.len();
                    let previous = self.pods.insert(uid, references);
                    previous.is_none().then_some(count)
                }
                Err(error) => {
                    let error = polylet_kit::report(&error);
                    tracing::warn!(
                        pod_uid = uid,
                        error,
                        "failed to parse pod manifest; keeping the previous image references"
                    );
                    None
                }
            },
            Update::Remove(uid) => {
                self.pods.remove(&uid);
                None
            }
            Update::Synced => {
                self.synced_sources.insert(source.into());
                None
            }
            // The pods of an unavailable source stay protected.
            Update::Stale(_) => None,
        }
    }

    /// Whether all sources have synced. Before that, no image is removed.
    pub fn has_synced(&self) -> bool {
        self.synced_sources.len() == SOURCES.len()
    }

    /// The records, to be stored.
    pub fn records(&self) -> &ImageRecords {
        &self.records
    }

    /// Takes the runtime's images, and the image references of its containers, which must have been
    /// listed after the images.
    pub fn update(
        &mut self,
        images: Vec<ListedImage>,
        container_references: BTreeSet<String>,
        now: Timestamp,
    ) -> ImageSnapshot {
        let snapshot = ImageSnapshot {
            images,
            container_references,
            pod_references: self.pods.values().flatten().cloned().collect(),
        };
        self.records = records::update(&self.records, &snapshot, now);
        snapshot
    }

    /// The images to remove for their age.
    pub fn exceeding_maximum_age(
        &self,
        snapshot: &ImageSnapshot,
        now: Timestamp,
    ) -> Vec<ImageRemoval> {
        plan::exceeding_maximum_age(&self.policy, snapshot, &self.records, now)
    }

    /// The images to remove because the file system is above the high threshold, and the bytes to
    /// free.
    pub fn over_threshold(
        &self,
        snapshot: &ImageSnapshot,
        usage: ImageFsUsage,
        now: Timestamp,
    ) -> (Vec<ImageRemoval>, u64) {
        let bytes = plan::bytes_over_threshold(&self.policy, usage);
        if bytes == 0 {
            return (Vec::new(), 0);
        }
        let age = self.policy.minimum_age;
        let removals = plan::free_space(snapshot, &self.records, now, age, Some(bytes));
        (removals, bytes)
    }

    /// The images to remove for a caller that needs `bytes`; zero for all removable images.
    pub fn reclaim(
        &self,
        snapshot: &ImageSnapshot,
        bytes: u64,
        minimum_age: Duration,
        now: Timestamp,
    ) -> Vec<ImageRemoval> {
        let bytes = (bytes > 0).then_some(bytes);
        plan::free_space(snapshot, &self.records, now, minimum_age, bytes)
    }

    /// An image was removed.
    pub fn on_removed(&mut self, id: &str) {
        self.records.remove(id);
    }
}
