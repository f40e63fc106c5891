//! What image-gc knows, and which images to remove. The event loop and the simulation drive it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use polylet_kit::follow::podconfig::SOURCES;
use polylet_model::PodUid;
use polylet_watch::Update;
use polylet_wire::podconfig::v1::{Pod, PodSource, TerminalPhase};

use crate::core::plan::{self, ImageFsUsage, ImageGcPolicy, ImageRemoval};
use crate::core::records::{self, ImageRecords, ImageSnapshot, ListedImage};
use crate::manifest::PodImages;

/// The pods' images and the records of all images.
pub struct ImageGcManager {
    policy: ImageGcPolicy,
    /// Image references by uid of the pods that may still start a container.
    pods: BTreeMap<PodUid, Vec<String>>,
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
    pub fn handle_pod(&mut self, source: PodSource, update: Update<PodUid, Pod>) -> Option<usize> {
        match update {
            Update::Upsert(uid, pod) => match PodImages::from_json(&pod.manifest) {
                // A pod that has succeeded or failed starts nothing any more.
                Ok(_) if pod.terminal_phase() != TerminalPhase::Unspecified => {
                    self.pods.insert(uid, Vec::new());
                    None
                }
                Ok(manifest) => {
                    let references = manifest.into_image_references();
                    let count = references.len();
                    let previous = self.pods.insert(uid, references);
                    previous.is_none().then_some(count)
                }
                Err(error) => {
                    let error = polylet_kit::report(&error);
                    tracing::warn!(
                        pod_uid = uid.as_str(),
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

    /// The snapshot without the references of pods that the caller knows to have finished.
    pub fn without_pods(&self, snapshot: ImageSnapshot, finished: &[String]) -> ImageSnapshot {
        let is_finished = |uid: &PodUid| finished.iter().any(|finished| *uid == **finished);
        let others = self.pods.iter().filter(|(uid, _)| !is_finished(uid));
        ImageSnapshot {
            pod_references: others.flat_map(|(_, images)| images).cloned().collect(),
            ..snapshot
        }
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

#[cfg(test)]
mod tests {
    use polylet_wire::common::v1::PodRef;
    use serde_json::json;

    use super::*;

    fn pod(uid: &str, image: &str, phase: TerminalPhase) -> Update<PodUid, Pod> {
        let manifest = json!({ "spec": { "containers": [{ "name": "c", "image": image }] } });
        let pod = Pod {
            r#ref: Some(PodRef {
                uid: uid.to_owned(),
                ..PodRef::default()
            }),
            manifest: manifest.to_string().into_bytes().into(),
            terminal_phase: phase.into(),
            ..Pod::default()
        };
        Update::Upsert(uid.into(), pod)
    }

    fn image(name: &str) -> ListedImage {
        ListedImage {
            id: format!("sha256:{name}"),
            names: vec![format!("docker.io/library/{name}:1")],
            size_bytes: 10,
            pinned: false,
        }
    }

    #[test]
    fn images_of_finished_pods_are_not_desired() {
        let policy = ImageGcPolicy {
            high_threshold_percent: 100,
            low_threshold_percent: 80,
            minimum_age: Duration::ZERO,
            maximum_age: Duration::ZERO,
        };
        let mut manager = ImageGcManager::new(policy, ImageRecords::default());
        let source = PodSource::Api;
        for (uid, name, phase) in [
            ("runs", "a:1", TerminalPhase::Unspecified),
            ("ended-here", "b:1", TerminalPhase::Unspecified),
            ("ended", "c:1", TerminalPhase::Failed),
        ] {
            manager.handle_pod(source, pod(uid, name, phase));
        }
        let images = ["a", "b", "c"].map(image).to_vec();
        let now = Timestamp::UNIX_EPOCH;
        let snapshot = manager.update(images, BTreeSet::new(), now);
        let removed = |finished: &[&str]| -> Vec<String> {
            let finished: Vec<String> = finished.iter().map(|uid| (*uid).to_owned()).collect();
            let snapshot = manager.without_pods(snapshot.clone(), &finished);
            let removals = manager.reclaim(&snapshot, 0, Duration::ZERO, now);
            removals.into_iter().map(|removal| removal.id).collect()
        };
        assert_eq!(removed(&[]), ["sha256:c"]);
        assert_eq!(removed(&["ended-here"]), ["sha256:b", "sha256:c"]);
    }
}
