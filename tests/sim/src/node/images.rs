//! image-gc: the real manager over the simulated images.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;
use polylet_image_gc::core::plan::{ImageFsUsage, ImageGcPolicy, ImageRemoval};
use polylet_image_gc::core::records::ListedImage;
use polylet_image_gc::manager::ImageGcManager;
use polylet_wire::podconfig::v1::WatchPodsResponse;

use super::config::SOURCES;
use crate::calls::Work;
use crate::invariants;
use crate::link::Link;
use crate::mutations::Mutation;
use crate::world::{ServiceId, World};

/// A process instance of image-gc.
pub struct ImageGcInstance {
    /// The number of the instance.
    pub incarnation: u32,
    manager: ImageGcManager,
    pods: Vec<Link<WatchPodsResponse>>,
    busy: bool,
}

/// The steps of a garbage collection, in order.
pub enum Gc {
    /// List images; a caller may need this many bytes.
    Images(Option<u64>),
    /// List containers, after the images.
    Containers(Option<u64>, Vec<ListedImage>),
    /// Remove the images that were unused at that time.
    Remove(Vec<ImageRemoval>, Timestamp),
}

const POLICY: ImageGcPolicy = ImageGcPolicy {
    high_threshold_percent: 80,
    low_threshold_percent: 60,
    minimum_age: Duration::from_secs(1),
    maximum_age: Duration::ZERO,
};
const IMAGE_BYTES: u64 = 10;

/// Starts an instance with the stored ages.
pub fn start(world: &mut World, incarnation: u32) {
    let manager = ImageGcManager::new(POLICY, world.disk.ages.clone());
    let pods = SOURCES.iter().map(|_| Link::default()).collect();
    world.images = Some(ImageGcInstance {
        incarnation,
        manager,
        pods,
        busy: false,
    });
}

/// The number of its streams.
pub const LINKS: usize = SOURCES.len();

/// Receives from one of its streams.
pub fn listen(world: &mut World, which: usize) -> bool {
    let World {
        images: Some(images),
        stores,
        rng,
        quiescing,
        ..
    } = world
    else {
        return false;
    };
    let (Some(source), Some(link)) = (SOURCES.get(which), images.pods.get_mut(which)) else {
        return false;
    };
    let served = stores.pods.get(source).cloned().flatten();
    let updates = link.receive(&served, rng, *quiescing);
    let any = !updates.is_empty();
    for update in updates {
        images.manager.handle_pod(*source, update);
    }
    any
}

/// Starts a garbage collection, or a reclaim call for this many bytes.
pub fn begin(world: &mut World, bytes: Option<u64>) {
    let Some(images) = world.images.as_mut().filter(|images| !images.busy) else {
        return;
    };
    images.busy = true;
    let incarnation = images.incarnation;
    world.call(
        ServiceId::Images,
        incarnation,
        Work::Images(Gc::Images(bytes)),
    );
}

/// Carries out one step.
pub fn advance(world: &mut World, at: Gc) -> Option<Work> {
    let next = if world.runtime.up {
        continue_step(world, at)
    } else {
        None
    };
    if next.is_none()
        && let Some(images) = &mut world.images
    {
        images.busy = false;
    }
    next.map(Work::Images)
}

fn continue_step(world: &mut World, at: Gc) -> Option<Gc> {
    let now = world.now;
    match at {
        Gc::Images(bytes) => {
            let listed = world.runtime.images.iter().map(|(id, name)| ListedImage {
                id: id.clone(),
                names: vec![name.clone()],
                size_bytes: IMAGE_BYTES,
                pinned: false,
            });
            Some(Gc::Containers(bytes, listed.collect()))
        }
        Gc::Containers(bytes, listed) => {
            let containers = world.runtime.containers.values();
            let used: BTreeSet<String> = match world.mutation {
                Some(Mutation::ImageUseIgnored) => BTreeSet::new(),
                _ => containers.map(|c| c.image_id.clone()).collect(),
            };
            let usage = ImageFsUsage {
                capacity: 100,
                available: u64::try_from(world.rng.below(60)).unwrap_or(0),
            };
            let manager = &mut world.images.as_mut()?.manager;
            let snapshot = manager.update(listed, used, now);
            world.disk.ages = manager.records().clone();
            if !manager.has_synced() {
                return None;
            }
            let removals = match bytes {
                Some(bytes) => manager.reclaim(&snapshot, bytes, POLICY.minimum_age, now),
                None => manager.over_threshold(&snapshot, usage, now).0,
            };
            Some(Gc::Remove(removals, now))
        }
        Gc::Remove(mut removals, listed_at) => {
            let removal = removals.pop()?;
            invariants::removal::check_image_removal(world, &removal.id, listed_at);
            world.record(|| format!("images: removing {}", removal.id));
            world.runtime.images.remove(&removal.id);
            world.images.as_mut()?.manager.on_removed(&removal.id);
            Some(Gc::Remove(removals, listed_at))
        }
    }
}
