//! eviction: its real decisions over a node that is short of things at times.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use jiff::{SignedDuration, Timestamp};
use polylet_eviction::desk::Desk;
use polylet_eviction::{Act, Level, Levels, Orders, Rules, Shelf, Signal};
use polylet_kit::kept::KeptError;
use polylet_watch::Store;
use polylet_wire::eviction::v1::Order;
use polylet_wire::pleg::v1::WatchPodStatesResponse;
use polylet_wire::podconfig::v1::WatchPodsResponse;

use super::config::SOURCES;
use super::images;
use crate::link::Link;
use crate::world::World;

/// A life of it.
pub struct Eviction {
    /// Which.
    pub life: u32,
    desk: Desk,
    pods: Vec<Link<WatchPodsResponse>>,
    states: Link<WatchPodStatesResponse>,
    /// When it looks at the node next.
    pub next_round: Timestamp,
}

/// Orders as they are kept, over all its lives.
#[derive(Clone, Debug, Default)]
pub struct Kept(Rc<RefCell<BTreeMap<String, Order>>>);

impl Shelf for Kept {
    fn put(&self, orders: &BTreeMap<String, Order>) -> Result<(), KeptError> {
        *self.0.borrow_mut() = orders.clone();
        Ok(())
    }
}

impl Kept {
    /// Pods that are ordered away.
    pub fn pods(&self) -> Vec<String> {
        self.0.borrow().keys().cloned().collect()
    }
}

/// Reads the orders that are kept, and has heard nothing yet.
pub fn start(world: &mut World, life: u32) {
    let lines = ["memory.available", "imagefs.available"];
    let lines = lines.map(|line| (line.to_owned(), "10%".to_owned()));
    let kept = world.disk.orders.clone();
    let standing = kept.0.borrow().clone();
    let store = Store::new(&format!("eviction-{life}"));
    let orders = Orders::new(Box::new(kept), standing);
    let desk = Desk::new(Rules::hard(&lines.into()), orders, store.clone());
    world.stores.pressure = Some((life, store));
    world.eviction = Some(Eviction {
        life,
        desk,
        pods: SOURCES.iter().map(|_| Link::default()).collect(),
        states: Link::default(),
        next_round: world.now,
    });
}

/// Its streams.
pub const LINKS: usize = SOURCES.len() + 1;

/// Something happens on one of its streams.
pub fn listen(world: &mut World, which: usize) -> bool {
    let World {
        eviction: Some(eviction),
        stores,
        rng,
        calm,
        ..
    } = world
    else {
        return false;
    };
    let Some((source, link)) = SOURCES.get(which).zip(eviction.pods.get_mut(which)) else {
        let told = eviction.states.hear(&stores.states, rng, *calm);
        let any = !told.is_empty();
        told.into_iter().for_each(|u| eviction.desk.state(u));
        return any;
    };
    let served = stores.pods.get(source).cloned().flatten();
    let told = link.hear(&served, rng, *calm);
    let any = !told.is_empty();
    for update in told {
        eviction.desk.pod(update);
    }
    any
}

/// It looks at the node.
pub fn round(world: &mut World) {
    let (now, short) = (world.now, world.short);
    let Some(eviction) = &mut world.eviction else {
        return;
    };
    let later = now.checked_add(SignedDuration::from_secs(10));
    eviction.next_round = later.unwrap_or(now);
    let level = |signal: Signal| {
        let available = if short == Some(signal) { 5 } else { 50 };
        let capacity = 100;
        let level = Level {
            available,
            capacity,
        };
        (signal, level)
    };
    let signals = [Signal::MemoryAvailable, Signal::ImageFsAvailable];
    let levels: Levels = signals.map(level).into();
    let mut act = eviction.desk.observe(&levels, false, now);
    if let Act::Reclaim { bytes, .. } = act {
        act = eviction.desk.observe(&levels, true, now);
        images::begin(world, Some(bytes));
    }
    let Some(eviction) = &mut world.eviction else {
        return;
    };
    let Act::Evict { threshold } = act else {
        return;
    };
    if !eviction.desk.may_evict(now) {
        return;
    }
    let running = eviction.desk.unmeasured();
    if eviction.desk.evict(&threshold, &levels, running, now) {
        for uid in world.disk.orders.pods() {
            world.say(|| format!("eviction: {uid} has to go"));
            world.runtime.disturbed.insert(uid.clone());
            world.truth.ordered.insert(uid);
        }
    }
}
