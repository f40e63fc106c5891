//! eviction and image-gc: arbitrary pods, usage and images.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use polylet_eviction::manager::EvictionManager;
use polylet_eviction::{
    Action, EvictionConfig, EvictionStore, Evictions, Observation, Observations, Signal,
};
use polylet_image_gc::core::plan::{ImageFsUsage, ImageGcPolicy};
use polylet_image_gc::core::records::{ImageRecords, ListedImage};
use polylet_image_gc::manager::ImageGcManager;
use polylet_kit::state_file::StateFileError;
use polylet_watch::{Store, Update};
use polylet_wire::eviction::v1 as wire;
use polylet_wire::podconfig::v1::PodSource;

use super::{SOURCES, pod_update, stream_update, uid};
use crate::input::{Frame, frames};
use crate::targets::manifests::now;

/// Stores nothing.
struct Unstored;

impl EvictionStore for Unstored {
    fn save(&self, _: &BTreeMap<String, wire::Eviction>) -> Result<(), StateFileError> {
        Ok(())
    }
}

const POLICY: ImageGcPolicy = ImageGcPolicy {
    high_threshold_percent: 80,
    low_threshold_percent: 60,
    minimum_age: Duration::from_secs(1),
    maximum_age: Duration::from_secs(60),
};

/// Runs both managers with the inputs of the frames.
pub(in crate::targets) fn run(data: &[u8]) {
    let signals = ["memory.available", "imagefs.available", "nodefs.available"];
    let thresholds = signals.map(|signal| (signal.to_owned(), "10%".to_owned()));
    let evictions = Evictions::new(Box::new(Unstored), BTreeMap::new());
    let config = EvictionConfig::hard(&thresholds.into());
    let mut manager = EvictionManager::new(config, evictions, Store::new("fuzz"));
    let mut images = ImageGcManager::new(POLICY, ImageRecords::default());
    for source in SOURCES {
        images.handle_pod(source, Update::Synced);
    }
    let mut listed: Vec<ListedImage> = Vec::new();
    for frame in frames(data).iter().take(64) {
        let uid = uid(frame);
        match frame.select(6) {
            0 | 1 => {
                manager.handle_pod(pod_update(frame, SOURCES[0]));
                images.handle_pod(SOURCES[0], pod_update(frame, SOURCES[0]));
            }
            2 => {
                manager.handle_pod(stream_update(frame, uid.clone()));
                images.handle_pod(PodSource::Api, stream_update(frame, uid));
            }
            3 => {
                if let Some(state) = frame.message() {
                    manager.handle_pod_state(Update::Upsert(uid, state));
                }
            }
            4 => {
                let image = frame.message().map(polylet_image_gc::fuzzing::listed_image);
                listed.extend(image);
                collect(&mut images, &listed, frame);
            }
            _ => synchronize(&mut manager, frame),
        }
    }
}

fn collect(images: &mut ImageGcManager, listed: &[ListedImage], frame: &Frame<'_>) {
    let snapshot = images.update(listed.to_vec(), BTreeSet::new(), now());
    let number = number(frame, 0);
    let usage = ImageFsUsage {
        capacity: number,
        available: number / 10,
    };
    let (removals, _) = images.over_threshold(&snapshot, usage, now());
    images.exceeding_maximum_age(&snapshot, now());
    for removal in removals {
        images.on_removed(&removal.id);
    }
}

fn synchronize(manager: &mut EvictionManager, frame: &Frame<'_>) {
    let observation = Observation {
        available: number(frame, 0),
        capacity: number(frame, 8),
    };
    let signals = [Signal::MemoryAvailable, Signal::ImageFsAvailable];
    let observations: Observations = signals.map(|signal| (signal, observation)).into();
    if let Action::Evict { threshold } = manager.synchronize(&observations, true, now())
        && manager.may_evict(now())
    {
        let candidates = manager.candidates_without_usage();
        manager.evict(&threshold, &observations, candidates, now());
    }
}

/// A number in the content of a frame.
fn number(frame: &Frame<'_>, at: usize) -> u64 {
    let bytes = frame.content.iter().skip(at).take(8);
    bytes.fold(0, |number, byte| number << 8 | u64::from(*byte))
}
