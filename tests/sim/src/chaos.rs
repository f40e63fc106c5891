//! Chaos: steps in which anything may happen.

use polylet_eviction::Signal;
use polylet_model::status::ContainerPhase;
use polylet_pleg::core::RuntimeEventKind;
use polylet_wire::podconfig::v1::PodSource;

use crate::device_plugin;
use crate::node::{config, coordinator, devices, eviction, images, pleg, prober, status};
use crate::pods;
use crate::run::{fire_timers, start_stopped};
use crate::world::{ServiceId, World};

/// Runs one step.
pub fn step(world: &mut World) {
    let millis = world.rng.between(0, 5);
    world.advance_clock(millis);
    device_plugin::restart_in_time(world);
    if world.rng.below(1000) < world.fault_profile.kills {
        kill(world);
    }
    if world.rng.below(1000) < world.fault_profile.rare_faults {
        rare_faults(world);
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
                let _ = receive_from_stream(world);
            }
        }
        70..=77 => {
            let millis = world.rng.between(10, 800);
            world.advance_clock(millis);
        }
        78..=80 => {
            if let Some(due) = world.next_due() {
                let millis = due.duration_since(world.now).as_millis().clamp(0, 30_000);
                world.advance_clock(i64::try_from(millis).unwrap_or(0));
            }
        }
        81..=87 => drop(fire_timers(world)),
        88..=90 => change_manifests(world),
        91..=93 => read_sources(world),
        94..=95 => fail_container(world),
        _ => drop(start_stopped(world)),
    }
}

/// A service receives from one of its streams.
fn receive_from_stream(world: &mut World) -> bool {
    match world.rng.below(7) {
        6 => {
            let which = world.rng.below(devices::LINKS);
            devices::listen(world, which)
        }
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

fn change_manifests(world: &mut World) {
    let known: Vec<String> = world.sources.desired_pods.keys().cloned().collect();
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
            // Names are unique across sources: a static pod's mirror has its name at the API server.
            let mut all = world.sources.desired_pods.values();
            let is_taken = all.any(|w| w.manifest.name() == name);
            if is_taken {
                return;
            }
            let now = world.now;
            let with_devices = world.rng.percent(world.sources.device_pods);
            let rng = &mut world.rng;
            let random = pods::random(source, &name, &uid, with_devices, now, rng);
            if let Some(desired) = random {
                world.record(|| {
                    format!(
                        "{source:?} creates {uid} ({name}): {}",
                        desired.json["spec"]
                    )
                });
                world
                    .memory
                    .manifests
                    .insert(uid.clone(), desired.manifest.clone());
                pods::write(world, &desired);
                if source != PodSource::Api {
                    world.sources.static_pods.insert(uid.clone());
                }
                world.sources.desired_pods.insert(uid, desired);
            }
        }
        (5, Some(uid)) => {
            let Some(desired) = world
                .sources
                .desired_pods
                .get(&uid)
                .filter(|w| w.source == PodSource::Api)
            else {
                return;
            };
            if let Some(other) = desired.with_other_image(&mut world.rng) {
                world.record(|| format!("{uid} changes an image"));
                world.sources.changed.insert(uid.clone());
                world.runtime.disturbed.insert(uid.clone());
                world
                    .memory
                    .manifests
                    .insert(uid.clone(), other.manifest.clone());
                world.sources.desired_pods.insert(uid, other);
            }
        }
        (6, Some(uid)) => {
            let now = world.now;
            let Some(desired) = world
                .sources
                .desired_pods
                .get(&uid)
                .filter(|w| w.source == PodSource::Api && !w.is_deleting())
            else {
                return;
            };
            if let Some(other) = desired.deleting(now, &mut world.rng) {
                world.record(|| format!("{uid} is deleted"));
                world.sources.withdrawn.insert(uid.clone());
                world.runtime.disturbed.insert(uid.clone());
                world.sources.desired_pods.insert(uid, other);
            }
        }
        (7..=8, Some(uid)) => {
            world.record(|| format!("{uid} is removed from its source"));
            world.sources.withdrawn.insert(uid.clone());
            world.runtime.disturbed.insert(uid.clone());
            if let Some(desired) = world.sources.desired_pods.remove(&uid)
                && desired.source == PodSource::File
            {
                world.disk.files.remove(&desired.path());
                world.sources.removed_manifests.push(desired);
            }
        }
        (9, picked) => {
            let Some(desired) = world.sources.removed_manifests.pop() else {
                return rewrite_manifest(world, picked);
            };
            let mut all = world.sources.desired_pods.values();
            if all.any(|w| w.manifest.name() == desired.manifest.name()) {
                return;
            }
            world.record(|| format!("{} returns", desired.uid()));
            pods::write(world, &desired);
            world
                .sources
                .desired_pods
                .insert(desired.uid().to_owned(), desired);
        }
        _ => {}
    }
}

/// Deletes the manifest of a static pod and writes it again at once.
fn rewrite_manifest(world: &mut World, uid: Option<String>) {
    let desired = uid.and_then(|uid| world.sources.desired_pods.get(&uid));
    let Some(desired) = desired.filter(|desired| desired.source == PodSource::File) else {
        return;
    };
    let (uid, path) = (desired.uid().to_owned(), desired.path());
    if world.config.is_none() {
        return;
    }
    world.record(|| format!("{uid} is removed from its source and returns"));
    world.sources.withdrawn.insert(uid.clone());
    world.runtime.disturbed.insert(uid);
    world.sources.rewritten.insert(path);
}

fn read_sources(world: &mut World) {
    let source = if world.rng.percent(50) {
        PodSource::File
    } else {
        PodSource::Api
    };
    let unavailable = world.rng.percent(20);
    config::read(world, source, unavailable);
}

fn fail_container(world: &mut World) {
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
    let exits = world.rng.percent(60);
    let Some(container) = world.runtime.containers.get_mut(&id) else {
        return;
    };
    if !exits {
        container.healthy = !container.healthy;
        container.was_unhealthy |= !container.healthy;
        let (healthy, uid) = (container.healthy, container.pod.uid.clone());
        world.runtime.disturbed.insert(uid.clone());
        world.record(|| format!("runtime: {id} of {uid} is healthy: {healthy}"));
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
    world.record(|| format!("runtime: {id} of {uid} exits with {code} {reason}"));
    world.runtime.exit(&id, code, reason, now);
    world.send_event(&uid, &id, RuntimeEventKind::Stopped);
}

fn kill(world: &mut World) {
    let running: Vec<ServiceId> = ServiceId::ALL
        .into_iter()
        .filter(|service| world.incarnation(*service).is_some())
        .collect();
    // Half of all kills are of the coordinator, which has the most state.
    let service = if world.rng.percent(50) {
        Some(ServiceId::Coordinator)
    } else {
        world.rng.pick(&running).copied()
    };
    if let Some(service) = service.filter(|service| world.incarnation(*service).is_some()) {
        world.kill(service);
        if world.rng.percent(70) {
            world.start(service);
        }
    }
}

fn rare_faults(world: &mut World) {
    let now = world.now;
    match world.rng.below(12) {
        9..=11 => device_plugin::disturb(world),
        6 => {
            let shortages = [
                None,
                Some(Signal::MemoryAvailable),
                Some(Signal::ImageFsAvailable),
            ];
            world.short = shortages[world.rng.below(3)];
            let short = world.short;
            world.record(|| format!("node: shortage of {short:?}"));
        }
        7 => images::begin(world, None),
        8 => pods::corrupt_manifest(world),
        0 => {
            world.runtime.up = false;
            world.record(|| "runtime: unavailable".to_owned());
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
            world.record(|| format!("coordinator: stream {which} breaks"));
            coordinator::cut(world, which);
        }
        4 => {
            let ready_sandboxes: Vec<(String, String)> = world
                .runtime
                .sandboxes
                .values()
                .filter(|s| s.ready)
                .map(|s| (s.id.clone(), s.pod.uid.clone()))
                .collect();
            if let Some((id, uid)) = world.rng.pick(&ready_sandboxes).cloned() {
                world.record(|| format!("runtime: sandbox {id} of {uid} stops"));
                world.runtime.stop_sandbox(&id, now);
                world.send_event(&uid, &id, RuntimeEventKind::Stopped);
            }
        }
        _ => {
            let active = world.rng.percent(50);
            pleg::events(world, active);
            pleg::act(world);
        }
    }
}
