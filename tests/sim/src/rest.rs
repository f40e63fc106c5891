//! What must hold when all is calm.

use polylet_model::RestartPolicy;
use polylet_watch::PressureKeyOwned;
use polylet_wire::pleg::v1::ContainerPhase;
use polylet_wire::sync::v1::SyncPhase;

use crate::laws::Law;
use crate::pods::Wish;
use crate::world::World;

/// Holds everything to what is wanted.
pub fn check(world: &mut World) {
    leaks(world);
    let ordered = world.stores.pressure.as_ref().map(|(_, s)| s.snapshot());
    let ordered = ordered.unwrap_or_default().into_keys();
    let ordered = ordered.filter(|key| matches!(key, PressureKeyOwned::Pod(_)));
    let ordered: Vec<String> = ordered.map(|key| format!("{key:?}")).collect();
    for order in ordered.into_iter().chain(world.disk.orders.pods()) {
        world.breaks(Law::ComesToRest, format!("the order {order} still stands"));
    }
    let wishes: Vec<Wish> = world.truth.wishes.values().cloned().collect();
    for wish in &wishes {
        // Of two pods of one full name one waits for ever.
        let namesake = |other: &&Wish| {
            other.uid() != wish.uid() && other.manifest.name() == wish.manifest.name()
        };
        if let Some(other) = wishes.iter().find(namesake)
            && waits(world, wish)
        {
            if waits(world, other) {
                let why = format!("{} and {} wait for each other", wish.uid(), other.uid());
                world.breaks(Law::ComesToRest, why);
            }
            continue;
        }
        if let Some(why) = wrong(world, wish) {
            world.breaks(Law::ComesToRest, format!("{}: {why}", wish.uid()));
        }
    }
}

fn waits(world: &World, wish: &Wish) -> bool {
    let told = world.stores.sync.as_ref();
    let told = told.and_then(|(_, s)| s.get(&wish.uid().to_owned()));
    let name = |w: &polylet_wire::sync::v1::WaitingFor| w.what.contains("of the same name");
    told.is_none_or(|told| told.waiting_for.iter().any(name))
}

fn leaks(world: &mut World) {
    let wanted = |uid: &String| world.truth.wishes.contains_key(uid);
    let runtime = &world.runtime;
    let told = world.stores.sync.as_ref().map(|(_, s)| s.snapshot());
    let states = world.stores.states.as_ref().map(|(_, s)| s.snapshot());
    let volumes = world.stores.volumes.as_ref().map(|(_, s)| s.snapshot());
    let mut all: Vec<(&str, String)> = Vec::new();
    all.extend(
        runtime
            .sandboxes
            .values()
            .map(|s| ("a sandbox", s.pod.uid.clone())),
    );
    all.extend(
        runtime
            .containers
            .values()
            .map(|c| ("a container", c.pod.uid.clone())),
    );
    all.extend(
        world
            .disk
            .journal
            .keys()
            .map(|uid| ("a journal entry", uid.clone())),
    );
    all.extend(
        world
            .disk
            .intents
            .keys()
            .map(|uid| ("an intent", uid.clone())),
    );
    all.extend(
        world
            .disk
            .lifecycles
            .keys()
            .map(|uid| ("a stop or hook", uid.clone())),
    );
    all.extend(
        world
            .disk
            .cgroups
            .iter()
            .map(|uid| ("a cgroup", uid.clone())),
    );
    all.extend(world.disk.logs.iter().map(|uid| ("logs", uid.clone())));
    all.extend(
        world
            .disk
            .pods
            .keys()
            .map(|uid| ("a pod directory", uid.clone())),
    );
    all.extend(
        told.into_iter()
            .flatten()
            .map(|(uid, _)| ("a word of the coordinator", uid)),
    );
    all.extend(
        states
            .into_iter()
            .flatten()
            .map(|(uid, _)| ("a word of pleg", uid)),
    );
    all.extend(
        volumes
            .into_iter()
            .flatten()
            .map(|(uid, _)| ("a word of volume-manager", uid)),
    );
    let left: Vec<_> = all.into_iter().filter(|(_, uid)| !wanted(uid)).collect();
    for (what, uid) in left {
        world.breaks(Law::NoLeaks, format!("{what} of {uid} is left"));
    }
}

fn wrong(world: &World, wish: &Wish) -> Option<String> {
    let uid = wish.uid();
    let running: Vec<&str> = world
        .runtime
        .running(uid)
        .map(|c| c.name.as_str())
        .collect();
    let told = world
        .stores
        .sync
        .as_ref()
        .and_then(|(_, s)| s.get(&uid.to_owned()));
    let Some(told) = told else {
        return Some("the coordinator says nothing".to_owned());
    };
    if wish.is_deleting() {
        let left = world.runtime.knows(uid) || world.disk.pods.contains_key(uid);
        return left.then(|| "it was asked to go, and is there".to_owned());
    }
    let journal = world.disk.journal.get(uid);
    let Some(journal) = journal else {
        return Some("no journal".to_owned());
    };
    if journal.terminal.is_some() {
        if !running.is_empty() {
            return Some(format!("it has ended, and {running:?} run"));
        }
        let left = world.disk.cgroups.contains(uid) || world.disk.pods.contains_key(uid);
        if left || !journal.torn_down || told.phase() != SyncPhase::Terminated {
            return Some(format!(
                "it has ended, and is not torn down: {journal:?} {told:?}"
            ));
        }
        return None;
    }
    if told.phase() != SyncPhase::Syncing || !told.waiting_for.is_empty() {
        return Some(format!("it is not at rest: {told:?}"));
    }
    let standing = world.runtime.sandboxes.values();
    let standing = standing.filter(|s| s.pod.uid == uid && s.ready).count();
    if standing != 1 {
        return Some(format!("{standing} sandboxes stand"));
    }
    for container in wish.manifest.containers() {
        let runs = running.contains(&container.name.as_str());
        let ended = world.runtime.containers.values().any(|c| {
            c.pod.uid == uid && c.name == container.name && c.phase == ContainerPhase::Exited
        });
        let policy = wish.manifest.restart_policy();
        if !runs && (policy == RestartPolicy::Always || !ended) {
            return Some(format!("{} does not run", container.name));
        }
    }
    for init in wish.manifest.init_containers() {
        let runs = running.contains(&init.name.as_str());
        if wish.manifest.is_sidecar(init) && !runs {
            return Some(format!("sidecar {} does not run", init.name));
        }
    }
    None
}
