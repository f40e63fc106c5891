//! image-gc: its real decisions over the simulated images.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;
use polylet_image_gc::core::plan::{Disk, Policy, Removal};
use polylet_image_gc::core::records::Listed;
use polylet_image_gc::desk::Desk;
use polylet_wire::podconfig::v1::WatchPodsResponse;

use super::config::SOURCES;
use crate::calls::Work;
use crate::laws;
use crate::link::Link;
use crate::sabotage::Sabotage;
use crate::world::{Who, World};

/// A life of it.
pub struct Images {
    /// Which.
    pub life: u32,
    desk: Desk,
    pods: Vec<Link<WatchPodsResponse>>,
    busy: bool,
}

/// What it is at, one after the other.
pub enum Gc {
    /// It lists images; somebody may need so many bytes.
    Images(Option<u64>),
    /// It lists containers after them.
    Containers(Option<u64>, Vec<Listed>),
    /// It removes what was unused at that moment.
    Remove(Vec<Removal>, Timestamp),
}

const POLICY: Policy = Policy {
    high_percent: 80,
    low_percent: 60,
    minimum_age: Duration::from_secs(1),
    maximum_age: Duration::ZERO,
};
const IMAGE_BYTES: u64 = 10;

/// Reads the ages that are kept, and has heard nothing yet.
pub fn start(world: &mut World, life: u32) {
    let desk = Desk::new(POLICY, world.disk.ages.clone());
    let pods = SOURCES.iter().map(|_| Link::default()).collect();
    world.images = Some(Images {
        life,
        desk,
        pods,
        busy: false,
    });
}

/// Its streams.
pub const LINKS: usize = SOURCES.len();

/// Something happens on one of its streams.
pub fn listen(world: &mut World, which: usize) -> bool {
    let World {
        images: Some(images),
        stores,
        rng,
        calm,
        ..
    } = world
    else {
        return false;
    };
    let (Some(source), Some(link)) = (SOURCES.get(which), images.pods.get_mut(which)) else {
        return false;
    };
    let served = stores.pods.get(source).cloned().flatten();
    let told = link.hear(&served, rng, *calm);
    let any = !told.is_empty();
    for update in told {
        images.desk.pod(*source, update);
    }
    any
}

/// It is time to look, or somebody needs room.
pub fn begin(world: &mut World, bytes: Option<u64>) {
    let Some(images) = world.images.as_mut().filter(|images| !images.busy) else {
        return;
    };
    images.busy = true;
    let life = images.life;
    world.call(Who::Images, life, Work::Images(Gc::Images(bytes)));
}

/// It goes on with what it is at.
pub fn advance(world: &mut World, at: Gc) -> Option<Work> {
    let next = if world.runtime.up {
        go_on(world, at)
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

fn go_on(world: &mut World, at: Gc) -> Option<Gc> {
    let now = world.now;
    match at {
        Gc::Images(bytes) => {
            let listed = world.runtime.images.iter().map(|(id, name)| Listed {
                id: id.clone(),
                names: vec![name.clone()],
                size_bytes: IMAGE_BYTES,
                pinned: false,
            });
            Some(Gc::Containers(bytes, listed.collect()))
        }
        Gc::Containers(bytes, listed) => {
            let containers = world.runtime.containers.values();
            let used: BTreeSet<String> = match world.sabotage {
                Some(Sabotage::UseUnseen) => BTreeSet::new(),
                _ => containers.map(|c| c.image_id.clone()).collect(),
            };
            let disk = Disk {
                capacity: 100,
                available: u64::try_from(world.rng.below(60)).unwrap_or(0),
            };
            let desk = &mut world.images.as_mut()?.desk;
            let look = desk.look(listed, used, now);
            world.disk.ages = desk.records().clone();
            if !desk.all_heard() {
                return None;
            }
            let removals = match bytes {
                Some(bytes) => desk.asked_for(&look, bytes, POLICY.minimum_age, now),
                None => desk.too_much(&look, disk, now).0,
            };
            Some(Gc::Remove(removals, now))
        }
        Gc::Remove(mut removals, looked) => {
            let removal = removals.pop()?;
            laws::removes_image(world, &removal.id, looked);
            world.say(|| format!("images: {} goes", removal.id));
            world.runtime.images.remove(&removal.id);
            world.images.as_mut()?.desk.removed(&removal.id);
            Some(Gc::Remove(removals, looked))
        }
    }
}
