//! Chaos: one step in which anything may happen.

use polylet_eviction::Signal;
use polylet_pleg::core::HintKind;
use polylet_wire::pleg::v1::ContainerPhase;
use polylet_wire::podconfig::v1::PodSource;

use crate::node::{config, coordinator, eviction, images, pleg, prober, status};
use crate::pods;
use crate::run::{revive, ticks};
use crate::world::{Who, World};

/// One step.
pub fn step(world: &mut World) {
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
    match world.rng.below(6) {
        4 => {
            let which = world.rng.below(images::LINKS);
            images::listen(world, which)
        }
        5 => {
            let which = world.rng.below(eviction::LINKS);
            eviction::listen(world, which)
        }
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
                format!("p{}-{}", world.rng.below(6), config::NODE),
                format!("u{}", world.pod_count),
            );
            // Sources keep their names apart: a static pod's mirror has its name at the API server.
            let mut all = world.truth.wishes.values();
            let taken = all.any(|w| w.manifest.name() == name);
            if taken {
                return;
            }
            let now = world.now;
            if let Some(wish) = pods::random(source, &name, &uid, now, &mut world.rng) {
                world.say(|| format!("{source:?} wants {uid} ({name}): {}", wish.json["spec"]));
                world
                    .memory
                    .manifests
                    .insert(uid.clone(), wish.manifest.clone());
                pods::write(world, &wish);
                if source != PodSource::Api {
                    world.truth.fixed.insert(uid.clone());
                }
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
                world.disk.files.remove(&wish.path());
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
            pods::write(world, &wish);
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

fn disasters(world: &mut World) {
    let now = world.now;
    match world.rng.below(9) {
        6 => {
            let shortages = [
                None,
                Some(Signal::MemoryAvailable),
                Some(Signal::ImageFsAvailable),
            ];
            world.short = shortages[world.rng.below(3)];
            let short = world.short;
            world.say(|| format!("node: short of {short:?}"));
        }
        7 => images::begin(world, None),
        8 => pods::spoil(world),
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
