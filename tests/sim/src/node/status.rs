//! status-reporter: its real state. The statuses it publishes are what users and the API server see.

use polylet_model::PodUid;
use polylet_status_reporter::input::Input;
use polylet_status_reporter::state::State;
use polylet_status_reporter::status_store::StatusStore;
use polylet_watch::{Store, Value};
use polylet_wire::pleg::v1::{WatchPodStatesResponse, WatchRuntimeResponse};
use polylet_wire::podconfig::v1::WatchPodsResponse;
use polylet_wire::prober::v1::WatchProbeStatusesResponse;
use polylet_wire::sync::v1::WatchPodSyncResponse;

use super::config::SOURCES;
use crate::invariants::status as invariants;
use crate::link::Link;
use crate::world::World;

/// A process instance of status-reporter.
pub struct Status {
    /// The number of the instance.
    pub incarnation: u32,
    state: State,
    store: Store<PodUid, polylet_wire::status::v1::PodStatus>,
    pods: Vec<Link<WatchPodsResponse>>,
    sync: Link<WatchPodSyncResponse>,
    states: Link<WatchPodStatesResponse>,
    probe_results: Link<WatchProbeStatusesResponse>,
    runtime: Option<WatchRuntimeResponse>,
    unsaved: bool,
}

/// Starts an instance with the persisted statuses.
pub fn start(world: &mut World, incarnation: u32) {
    let store = Store::new(&format!("status-{incarnation}"));
    world.stores.status = Some((incarnation, store.clone()));
    world.status = Some(Status {
        incarnation,
        state: State::new(world.disk.statuses.clone(), StatusStore::new(store.clone())),
        store,
        pods: SOURCES.iter().map(|_| Link::default()).collect(),
        sync: Link::default(),
        states: Link::default(),
        probe_results: Link::default(),
        runtime: None,
        unsaved: false,
    });
}

/// The number of its streams.
pub const LINKS: usize = 7;

/// Receives from one of its streams.
pub fn listen(world: &mut World, which: usize) -> bool {
    let World {
        status: Some(status),
        stores,
        rng,
        quiescing,
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
                let updates = link.receive(&served, rng, *quiescing);
                inputs.extend(updates.into_iter().map(|u| Input::Pod(*source, u)));
            }
        }
        (None, 3) => {
            let updates = status.sync.receive(&stores.sync, rng, *quiescing);
            inputs.extend(updates.into_iter().map(Box::new).map(Input::Sync));
        }
        (None, 4) => {
            let updates = status.states.receive(&stores.states, rng, *quiescing);
            inputs.extend(updates.into_iter().map(Input::RuntimeState));
        }
        (None, 5) => {
            let updates = status
                .probe_results
                .receive(&stores.probe_results, rng, *quiescing);
            inputs.extend(updates.into_iter().map(Input::Probe));
        }
        _ => {
            let now = stores.runtime.as_ref().map(|(_, r)| r.borrow().clone());
            if now != status.runtime {
                status.runtime.clone_from(&now);
                let stale = || Value::Stale("pleg is unavailable".to_owned());
                inputs.push(Input::Runtime(now.map_or_else(stale, Value::Current)));
            }
        }
    }
    let any = !inputs.is_empty();
    for input in inputs {
        status.state.handle_input(input);
    }
    if any {
        publish(world);
    }
    any
}

fn publish(world: &mut World) {
    let Some(status) = &mut world.status else {
        return;
    };
    status.unsaved |= status.state.reconcile(|| vec!["192.168.0.1".to_owned()]);
    if !status.store.has_synced() {
        return;
    }
    let updates = status.store.snapshot();
    invariants::check_published(
        world,
        updates
            .into_iter()
            .map(|(uid, updates)| (uid.into(), updates.status.to_vec()))
            .collect(),
    );
}

/// Persists the statuses; a kill before that loses them.
pub fn save(world: &mut World) -> bool {
    let Some(status) = &mut world.status else {
        return false;
    };
    let unsaved = std::mem::take(&mut status.unsaved);
    if unsaved {
        world.disk.statuses = status.state.statuses();
    }
    unsaved
}
