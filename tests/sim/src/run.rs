//! One seed from the beginning to the end: first everything goes wrong, then all is calm.

use crate::laws::{Broken, Law};
use crate::node::{coordinator, eviction, pleg, prober, status, volumes};
use crate::rest;
use crate::sabotage::Sabotage;
use crate::world::{Who, World};
use crate::{calm, chaos};

/// What came of a seed.
#[derive(Debug)]
pub struct Report {
    /// The law that was broken, if one was.
    pub broken: Option<Broken>,
    /// What happened, if that was wanted.
    pub log: Vec<String>,
    /// The same for the same seed.
    pub digest: u64,
}

/// How many steps of chaos.
const STEPS: usize = 800;

/// Runs one seed.
pub fn seed(seed: u64, sabotage: Option<Sabotage>, log: bool) -> Report {
    let mut world = World::new(seed, sabotage, log);
    let steps = STEPS / 2 + world.rng.below(STEPS);
    // Each world has its own temper: where all die all the time, nothing ever begins.
    world.temper.kills = [2, 8, 25][world.rng.below(3)];
    world.temper.disasters = [2, 8, 25][world.rng.below(3)];
    for _ in 0..steps {
        chaos::step(&mut world);
        if world.broken.is_some() {
            break;
        }
    }
    if world.broken.is_none() {
        calm::settle(&mut world);
        if world.broken.is_none() {
            rest::check(&mut world);
        }
    }
    if world.broken.is_none() {
        restart_all(&mut world);
    }
    Report {
        broken: world.broken.take(),
        digest: world.digest,
        log: world.log.take().unwrap_or_default(),
    }
}

/// Whoever waits for a moment that has come goes on.
pub fn ticks(world: &mut World) -> bool {
    let now = world.now;
    let due = |at: Option<jiff::Timestamp>| at.is_some_and(|at| at <= now);
    let mut any = false;
    if due(world.coordinator.as_ref().and_then(coordinator::Node::due)) {
        coordinator::tick(world);
        any = true;
    }
    if due(world.pleg.as_ref().and_then(|p| p.teller.due())) {
        pleg::act(world);
        any = true;
    }
    if due(world.prober.as_ref().and_then(|p| p.judge.next_due())) {
        prober::act(world);
        any = true;
    }
    any |= status::save(world);
    if due(world.eviction.as_ref().map(|e| e.next_round)) {
        eviction::round(world);
        any = true;
    }
    if due(world.volumes.as_ref().and_then(volumes::Volumes::due)) {
        volumes::act(world);
        any = true;
    }
    any
}

/// Starts one of the dead.
pub fn revive(world: &mut World) -> bool {
    let dead: Vec<Who> = Who::ALL
        .into_iter()
        .filter(|who| world.life(*who).is_none())
        .collect();
    let Some(who) = world.rng.pick(&dead).copied() else {
        return false;
    };
    world.start(who);
    true
}

/// Everything is killed and started again: nothing may change.
fn restart_all(world: &mut World) {
    let before = (world.memory.changes, world.runtime.containers.len());
    world.runtime.disturbed.clear();
    for who in Who::ALL {
        world.kill(who);
    }
    calm::settle(world);
    let after = (world.memory.changes, world.runtime.containers.len());
    if before != after {
        world.breaks(
            Law::RestartsAreSilent,
            format!("{before:?} became {after:?}"),
        );
    }
    if world.broken.is_none() {
        rest::check(world);
    }
}
