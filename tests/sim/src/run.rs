//! One seed from the beginning to the end: first everything goes wrong, then all is calm.

use polylet_pleg::core::HintKind;
use polylet_wire::pleg::v1::ContainerPhase;
use polylet_wire::podconfig::v1::PodSource;

use crate::laws::{Broken, Law};
use crate::node::{config, coordinator, pleg, prober, status, volumes};
use crate::pods;
use crate::rest;
use crate::sabotage::Sabotage;
use crate::world::{Who, World};

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
/// How much the calm may take.
const CALM_ROUNDS: usize = 12_000;

/// Runs one seed.
pub fn seed(seed: u64, sabotage: Option<Sabotage>, log: bool) -> Report {
    let mut world = World::new(seed, sabotage, log);
    let steps = STEPS / 2 + world.rng.below(STEPS);
    // Each world has its own temper: where all die all the time, nothing ever begins.
    world.temper.kills = [2, 8, 25][world.rng.below(3)];
    world.temper.disasters = [2, 8, 25][world.rng.below(3)];
    for _ in 0..steps {
        chaos(&mut world);
        if world.broken.is_some() {
            break;
        }
    }
    if world.broken.is_none() {
        settle(&mut world);
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

fn chaos(world: &mut World) {
    let millis = world.rng.between(0, 5);
    world.pass(millis);
    if world.rng.below(1000) < world.temper.kills {
        kill(world);
    }
    if world.rng.below(1000) < world.temper.disasters {
        disasters(world);
    }
    match world.rng.below(100) {
        0..=34 => {
            for _ in 0..world.rng.below(4) {
                let at = world.rng.below(world.calls.len());
                world.advance(at);
            }
        }
        35..=69 => {
            for _ in 0..world.rng.below(6) {
                let _ = streams(world);
            }
        }
        70..=77 => {
            let millis = world.rng.between(10, 800);
            world.pass(millis);
        }
        78..=80 => {
            if let Some(due) = world.next_due() {
                let millis = due.duration_since(world.now).as_millis().clamp(0, 30_000);
                world.pass(i64::try_from(millis).unwrap_or(0));
            }
        }
        81..=87 => drop(ticks(world)),
        88..=90 => manifests(world),
        91..=93 => read_sources(world),
        94..=95 => containers(world),
        _ => drop(revive(world)),
    }
}

/// Something happens on some stream.
fn streams(world: &mut World) -> bool {
    match world.rng.below(4) {
        0 => {
            let which = world.rng.below(prober::LINKS);
            prober::listen(world, which)
        }
        1 => {
            let which = world.rng.below(status::LINKS);
            status::listen(world, which)
        }
        _ => {
            let which = world.rng.below(coordinator::LINKS);
            coordinator::listen(world, which)
        }
    }
}

fn ticks(world: &mut World) -> bool {
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
    if due(world.volumes.as_ref().and_then(volumes::Volumes::due)) {
        volumes::act(world);
        any = true;
    }
    any
}

fn manifests(world: &mut World) {
    let known: Vec<String> = world.truth.wishes.keys().cloned().collect();
    let picked = world.rng.pick(&known).cloned();
    match (world.rng.below(10), picked) {
        (0..=4, _) if known.len() < 5 => {
            world.pod_count += 1;
            let source = if world.rng.percent(50) {
                PodSource::File
            } else {
                PodSource::Api
            };
            let (name, uid) = (
                format!("p{}", world.rng.below(6)),
                format!("u{}", world.pod_count),
            );
            // Sources keep their names apart: a static pod's mirror has its name at the API server.
            let mut all = world.truth.wishes.values();
            let taken = all.any(|w| w.manifest.name() == name);
            if taken {
                return;
            }
            if let Some(wish) = pods::random(source, &name, &uid, &mut world.rng) {
                world.say(|| format!("{source:?} wants {uid} ({name}): {}", wish.json["spec"]));
                world
                    .memory
                    .manifests
                    .insert(uid.clone(), wish.manifest.clone());
                world.truth.wishes.insert(uid, wish);
            }
        }
        (5, Some(uid)) => {
            let Some(wish) = world
                .truth
                .wishes
                .get(&uid)
                .filter(|w| w.source == PodSource::Api)
            else {
                return;
            };
            if let Some(other) = wish.with_other_image(&mut world.rng) {
                world.say(|| format!("{uid} changes an image"));
                world.truth.changed.insert(uid.clone());
                world.runtime.disturbed.insert(uid.clone());
                world
                    .memory
                    .manifests
                    .insert(uid.clone(), other.manifest.clone());
                world.truth.wishes.insert(uid, other);
            }
        }
        (6, Some(uid)) => {
            let now = world.now;
            let Some(wish) = world
                .truth
                .wishes
                .get(&uid)
                .filter(|w| w.source == PodSource::Api && !w.is_deleting())
            else {
                return;
            };
            if let Some(other) = wish.deleting(now, &mut world.rng) {
                world.say(|| format!("{uid} is asked to go"));
                world.truth.disowned.insert(uid.clone());
                world.runtime.disturbed.insert(uid.clone());
                world.truth.wishes.insert(uid, other);
            }
        }
        (7..=8, Some(uid)) => {
            world.say(|| format!("{uid} is taken back"));
            world.truth.disowned.insert(uid.clone());
            world.runtime.disturbed.insert(uid.clone());
            if let Some(wish) = world.truth.wishes.remove(&uid)
                && wish.source == PodSource::File
            {
                world.truth.taken_back.push(wish);
            }
        }
        (9, _) => {
            let Some(wish) = world.truth.taken_back.pop() else {
                return;
            };
            let mut all = world.truth.wishes.values();
            if all.any(|w| w.manifest.name() == wish.manifest.name()) {
                return;
            }
            world.say(|| format!("{} is put back", wish.uid()));
            world.truth.wishes.insert(wish.uid().to_owned(), wish);
        }
        _ => {}
    }
}

fn read_sources(world: &mut World) {
    let source = if world.rng.percent(50) {
        PodSource::File
    } else {
        PodSource::Api
    };
    let away = world.rng.percent(20);
    config::read(world, source, away);
}

fn containers(world: &mut World) {
    let now = world.now;
    let running: Vec<String> = world
        .runtime
        .containers
        .values()
        .filter(|c| c.phase == ContainerPhase::Running)
        .map(|c| c.id.clone())
        .collect();
    let Some(id) = world.rng.pick(&running).cloned() else {
        return;
    };
    let ends = world.rng.percent(60);
    let Some(container) = world.runtime.containers.get_mut(&id) else {
        return;
    };
    if !ends {
        container.well = !container.well;
        container.was_unwell |= !container.well;
        let (well, uid) = (container.well, container.pod.uid.clone());
        world.runtime.disturbed.insert(uid.clone());
        world.say(|| format!("runtime: {id} of {uid} is well: {well}"));
        return;
    }
    let (uid, init) = (container.pod.uid.clone(), container.name.starts_with('i'));
    let good = world.rng.percent(if init { 75 } else { 30 });
    let (code, reason) = if good {
        (0, "Completed")
    } else if world.rng.percent(30) {
        (137, "OOMKilled")
    } else {
        (1, "Error")
    };
    world.say(|| format!("runtime: {id} of {uid} ends with {code} {reason}"));
    world.runtime.exit(&id, code, reason, now);
    world.tell_pleg(&uid, &id, HintKind::Ended);
}

fn kill(world: &mut World) {
    let alive: Vec<Who> = Who::ALL
        .into_iter()
        .filter(|who| world.life(*who).is_some())
        .collect();
    // Half of all deaths are the coordinator's: it has most to lose.
    let who = if world.rng.percent(50) {
        Some(Who::Coordinator)
    } else {
        world.rng.pick(&alive).copied()
    };
    if let Some(who) = who.filter(|who| world.life(*who).is_some()) {
        world.kill(who);
        if world.rng.percent(70) {
            world.start(who);
        }
    }
}

fn revive(world: &mut World) -> bool {
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

fn disasters(world: &mut World) {
    let now = world.now;
    match world.rng.below(6) {
        0 => {
            world.runtime.up = false;
            world.say(|| "runtime: goes away".to_owned());
            pleg::events(world, false);
            pleg::act(world);
        }
        1 | 2 => {
            world.runtime.up = true;
            pleg::events(world, true);
            pleg::act(world);
        }
        3 => {
            let which = world.rng.below(coordinator::LINKS);
            world.say(|| format!("coordinator: stream {which} breaks"));
            coordinator::cut(world, which);
        }
        4 => {
            let standing: Vec<(String, String)> = world
                .runtime
                .sandboxes
                .values()
                .filter(|s| s.ready)
                .map(|s| (s.id.clone(), s.pod.uid.clone()))
                .collect();
            if let Some((id, uid)) = world.rng.pick(&standing).cloned() {
                world.say(|| format!("runtime: sandbox {id} of {uid} falls"));
                world.runtime.stop_sandbox(&id, now);
                world.tell_pleg(&uid, &id, HintKind::Ended);
            }
        }
        _ => {
            let flow = world.rng.percent(50);
            pleg::events(world, flow);
            pleg::act(world);
        }
    }
}

/// No faults any more: goes on until nothing is to be done for a while.
pub fn settle(world: &mut World) {
    world.say(|| "now all is calm".to_owned());
    world.calm = true;
    world.runtime.up = true;
    for container in world.runtime.containers.values_mut() {
        container.well = true;
    }
    while revive(world) {}
    for source in config::SOURCES {
        config::read(world, source, false);
    }
    let mut quiet_since = world.now;
    for round in 0..CALM_ROUNDS {
        if world.broken.is_some() {
            return;
        }
        let mut any = false;
        for which in 0..coordinator::LINKS {
            any |= coordinator::listen(world, which);
        }
        for which in 0..prober::LINKS {
            any |= prober::listen(world, which);
        }
        for which in 0..status::LINKS {
            any |= status::listen(world, which);
        }
        let mut at = 0;
        let mut mine = false;
        while at < world.calls.len() {
            let before = world.calls.len();
            let coordinators = world
                .calls
                .get(at)
                .is_some_and(|c| c.who == Who::Coordinator);
            let moved = world.advance(at);
            mine |= moved && coordinators;
            any |= moved;
            // A call that waits, or waits again, lets the next one go on.
            if world.calls.len() >= before {
                at += 1;
            }
        }
        any |= finish_inits(world);
        any |= ticks(world);
        if mine {
            quiet_since = world.now;
        }
        if any {
            continue;
        }
        let coordinator = world.coordinator.as_ref().and_then(coordinator::Node::due);
        if coordinator.is_none() && world.now.duration_since(quiet_since).as_secs() > 40 {
            world.say(|| format!("at rest after {round} rounds"));
            return;
        }
        let next = world.next_due().unwrap_or(world.now);
        let millis = next.duration_since(world.now).as_millis().clamp(1, 60_000);
        world.pass(i64::try_from(millis).unwrap_or(1));
    }
    let due = world.next_due();
    let coordinator = world.coordinator.as_ref().and_then(coordinator::Node::due);
    world.breaks(
        Law::ComesToRest,
        format!(
            "there is always something to do; next at {due:?}, by the coordinator at {coordinator:?}"
        ),
    );
}

fn finish_inits(world: &mut World) -> bool {
    let now = world.now;
    let inits: Vec<(String, String)> = world
        .runtime
        .containers
        .values()
        .filter(|c| c.phase == ContainerPhase::Running)
        .filter(|c| {
            let manifest = world.memory.manifests.get(&c.pod.uid);
            let kind = manifest
                .and_then(|m| m.container(&c.name))
                .map(|(kind, _)| kind);
            kind == Some(polylet_model::ContainerKind::Init)
        })
        .map(|c| (c.id.clone(), c.pod.uid.clone()))
        .collect();
    for (id, uid) in &inits {
        world.runtime.exit(id, 0, "Completed", now);
        world.tell_pleg(uid, id, HintKind::Ended);
    }
    !inits.is_empty()
}

/// Everything is killed and started again: nothing may change.
fn restart_all(world: &mut World) {
    let before = (world.memory.changes, world.runtime.containers.len());
    world.runtime.disturbed.clear();
    for who in Who::ALL {
        world.kill(who);
    }
    settle(world);
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
