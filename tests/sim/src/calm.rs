//! Calm: no faults any more, until nothing is left to do.

use polylet_pleg::core::HintKind;
use polylet_wire::pleg::v1::ContainerPhase;

use crate::laws::Law;
use crate::node::{config, coordinator, eviction, images, prober, status};
use crate::pods;
use crate::run::{revive, ticks};
use crate::world::{Who, World};

/// How much the calm may take.
const CALM_ROUNDS: usize = 12_000;

/// No faults any more: goes on until nothing is to be done for a while.
pub fn settle(world: &mut World) {
    world.say(|| "now all is calm".to_owned());
    world.calm = true;
    world.runtime.up = true;
    world.short = None;
    pods::mend(world);
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
        for which in 0..images::LINKS {
            any |= images::listen(world, which);
        }
        for which in 0..eviction::LINKS {
            any |= eviction::listen(world, which);
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
