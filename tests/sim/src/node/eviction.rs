//! eviction: the real manager over a node whose resources run low at times.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use jiff::{SignedDuration, Timestamp};
use polylet_eviction::manager::EvictionManager;
use polylet_eviction::{
    Action, EvictionConfig, EvictionStore, Evictions, Observation, Observations, Signal,
};
use polylet_kit::state_file::StateFileError;
use polylet_watch::Store;
use polylet_wire::eviction::v1 as wire;
use polylet_wire::pleg::v1::WatchPodStatesResponse;
use polylet_wire::podconfig::v1::WatchPodsResponse;

use super::config::SOURCES;
use super::images;
use crate::link::Link;
use crate::world::World;

/// A process instance of eviction.
pub struct Eviction {
    /// The number of the instance.
    pub incarnation: u32,
    manager: EvictionManager,
    pods: Vec<Link<WatchPodsResponse>>,
    states: Link<WatchPodStatesResponse>,
    /// When the next sync iteration is due.
    pub next_sync: Timestamp,
}

/// The stored evictions, over all instances.
#[derive(Clone, Debug, Default)]
pub struct StoredEvictions(Rc<RefCell<BTreeMap<String, wire::Eviction>>>);

impl EvictionStore for StoredEvictions {
    fn save(&self, evictions: &BTreeMap<String, wire::Eviction>) -> Result<(), StateFileError> {
        *self.0.borrow_mut() = evictions.clone();
        Ok(())
    }
}

impl StoredEvictions {
    /// The uids of evicted pods.
    pub fn pods(&self) -> Vec<String> {
        self.0.borrow().keys().cloned().collect()
    }
}

/// Starts an instance with the stored evictions.
pub fn start(world: &mut World, incarnation: u32) {
    let signals = ["memory.available", "imagefs.available"];
    let thresholds = signals.map(|signal| (signal.to_owned(), "10%".to_owned()));
    let stored = world.disk.evictions.clone();
    let current = stored.0.borrow().clone();
    let store = Store::new(&format!("eviction-{incarnation}"));
    let evictions = Evictions::new(Box::new(stored), current);
    let config = EvictionConfig::hard(&thresholds.into());
    let manager = EvictionManager::new(config, evictions, store.clone());
    world.stores.pressure = Some((incarnation, store));
    world.eviction = Some(Eviction {
        incarnation,
        manager,
        pods: SOURCES.iter().map(|_| Link::default()).collect(),
        states: Link::default(),
        next_sync: world.now,
    });
}

/// The number of its streams.
pub const LINKS: usize = SOURCES.len() + 1;

/// Receives from one of its streams.
pub fn listen(world: &mut World, which: usize) -> bool {
    let World {
        eviction: Some(eviction),
        stores,
        rng,
        quiescing,
        ..
    } = world
    else {
        return false;
    };
    let Some((source, link)) = SOURCES.get(which).zip(eviction.pods.get_mut(which)) else {
        let updates = eviction.states.receive(&stores.states, rng, *quiescing);
        let any = !updates.is_empty();
        updates
            .into_iter()
            .for_each(|u| eviction.manager.handle_pod_state(u));
        return any;
    };
    let served = stores.pods.get(source).cloned().flatten();
    let updates = link.receive(&served, rng, *quiescing);
    let any = !updates.is_empty();
    for update in updates {
        eviction.manager.handle_pod(update);
    }
    any
}

/// One sync iteration.
pub fn synchronize(world: &mut World) {
    let (now, short) = (world.now, world.short);
    let Some(eviction) = &mut world.eviction else {
        return;
    };
    let later = now.checked_add(SignedDuration::from_secs(10));
    eviction.next_sync = later.unwrap_or(now);
    let observation = |signal: Signal| {
        let available = if short == Some(signal) { 5 } else { 50 };
        let capacity = 100;
        let observation = Observation {
            available,
            capacity,
        };
        (signal, observation)
    };
    let signals = [Signal::MemoryAvailable, Signal::ImageFsAvailable];
    let observations: Observations = signals.map(observation).into();
    let action = eviction.manager.synchronize(&observations, false, now);
    let threshold = match action {
        Action::None => return,
        Action::Evict { threshold } => threshold,
        Action::Reclaim { threshold } => {
            eviction.manager.request_container_reclaim(now);
            // All that is unused; it does not help enough.
            images::begin(world, Some(0));
            threshold
        }
    };
    let Some(eviction) = &mut world.eviction else {
        return;
    };
    if !eviction.manager.may_evict(now) {
        return;
    }
    let candidates = eviction.manager.candidates_without_usage();
    let started = eviction
        .manager
        .evict(&threshold, &observations, candidates, now);
    if started.is_some() {
        for uid in world.disk.evictions.pods() {
            world.record(|| format!("eviction: evicting {uid}"));
            world.runtime.disturbed.insert(uid.clone());
            world.sources.evicted.insert(uid);
        }
    }
}
