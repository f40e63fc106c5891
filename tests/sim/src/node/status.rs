//! status-reporter: the real desk. What it tells is what people and the API server see.

use polylet_status_reporter::desk::{Desk, Input};
use polylet_watch::{Store, Value};
use polylet_wire::pleg::v1::{WatchPodStatesResponse, WatchRuntimeResponse};
use polylet_wire::podconfig::v1::WatchPodsResponse;
use polylet_wire::prober::v1::WatchVerdictsResponse;
use polylet_wire::sync::v1::WatchPodSyncResponse;

use super::config::SOURCES;
use crate::laws::status as laws;
use crate::link::Link;
use crate::world::World;

/// A life of it.
pub struct Status {
    /// Which.
    pub life: u32,
    desk: Desk,
    store: Store<String, polylet_wire::status::v1::PodStatus>,
    pods: Vec<Link<WatchPodsResponse>>,
    sync: Link<WatchPodSyncResponse>,
    states: Link<WatchPodStatesResponse>,
    verdicts: Link<WatchVerdictsResponse>,
    runtime: Option<WatchRuntimeResponse>,
    unsaved: bool,
}

/// Reads what is kept, and has heard nothing yet.
pub fn start(world: &mut World, life: u32) {
    let store = Store::new(&format!("status-{life}"));
    world.stores.status = Some((life, store.clone()));
    world.status = Some(Status {
        life,
        desk: Desk::new(world.disk.statuses.clone(), store.clone()),
        store,
        pods: SOURCES.iter().map(|_| Link::default()).collect(),
        sync: Link::default(),
        states: Link::default(),
        verdicts: Link::default(),
        runtime: None,
        unsaved: false,
    });
}

/// Its streams.
pub const LINKS: usize = 7;

/// Something happens on one of its streams.
pub fn listen(world: &mut World, which: usize) -> bool {
    let World {
        status: Some(status),
        stores,
        rng,
        calm,
        ..
    } = world
    else {
        return false;
    };
    let mut inputs = Vec::new();
    match (SOURCES.get(which), which) {
        (Some(source), _) => {
            let served = stores.pods.get(source).cloned().flatten();
            if let Some(link) = status.pods.get_mut(which) {
                let told = link.hear(&served, rng, *calm);
                inputs.extend(told.into_iter().map(|u| Input::Pod(*source, u)));
            }
        }
        (None, 3) => {
            let told = status.sync.hear(&stores.sync, rng, *calm);
            inputs.extend(told.into_iter().map(Box::new).map(Input::Sync));
        }
        (None, 4) => {
            let told = status.states.hear(&stores.states, rng, *calm);
            inputs.extend(told.into_iter().map(Input::State));
        }
        (None, 5) => {
            let told = status.verdicts.hear(&stores.verdicts, rng, *calm);
            inputs.extend(told.into_iter().map(Input::Verdict));
        }
        _ => {
            let now = stores.runtime.as_ref().map(|(_, r)| r.borrow().clone());
            if now != status.runtime {
                status.runtime.clone_from(&now);
                let away = || Value::Stale("pleg is away".to_owned());
                inputs.push(Input::Runtime(now.map_or_else(away, Value::Current)));
            }
        }
    }
    let any = !inputs.is_empty();
    for input in inputs {
        status.desk.take(input);
    }
    if any {
        tell(world);
    }
    any
}

fn tell(world: &mut World) {
    let Some(status) = &mut world.status else {
        return;
    };
    status.unsaved |= status.desk.tell(|| vec!["192.168.0.1".to_owned()]);
    if !status.store.is_whole() {
        return;
    }
    let told = status.store.snapshot();
    laws::told(
        world,
        told.into_iter()
            .map(|(uid, told)| (uid, told.status.to_vec()))
            .collect(),
    );
}

/// What it tells is written; a kill before that loses what was not.
pub fn save(world: &mut World) -> bool {
    let Some(status) = &mut world.status else {
        return false;
    };
    let unsaved = std::mem::take(&mut status.unsaved);
    if unsaved {
        world.disk.statuses = status.desk.statuses();
    }
    unsaved
}
