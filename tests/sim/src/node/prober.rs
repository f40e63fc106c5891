//! prober: the real manager; each container answers according to its state.

use polylet_model::status::ContainerPhase;
use polylet_prober::convert;
use polylet_prober::manager::{ProbeAttempt, ProbeManager, Results};
use polylet_prober::publisher::Publisher;
use polylet_watch::Store;
use polylet_wire::pleg::v1::WatchPodStatesResponse;
use polylet_wire::podconfig::v1::WatchPodsResponse;

use super::config::SOURCES;
use crate::calls::Work;
use crate::link::Link;
use crate::mutations::Mutation;
use crate::world::{ServiceId, World};

/// A process instance of the prober.
pub struct ProberInstance {
    /// The number of the instance.
    pub incarnation: u32,
    /// The real manager.
    pub manager: ProbeManager,
    /// Publishes its results.
    pub publisher: Publisher,
    pods: Vec<Link<WatchPodsResponse>>,
    states: Link<WatchPodStatesResponse>,
}

/// Starts an instance with the saved results.
pub fn start(world: &mut World, incarnation: u32) {
    let store = Store::new(&format!("prober-{incarnation}"));
    let results = match world.mutation {
        Some(Mutation::ProbeResultsLost) => Results::new(),
        _ => world.disk.probe_results.clone(),
    };
    world.stores.probe_results = Some((incarnation, store.clone()));
    world.prober = Some(ProberInstance {
        incarnation,
        publisher: Publisher::new(store, &results),
        manager: ProbeManager::new(&results),
        pods: SOURCES.iter().map(|_| Link::default()).collect(),
        states: Link::default(),
    });
}

/// The number of its streams.
pub const LINKS: usize = 4;

/// Receives from one of its streams.
pub fn listen(world: &mut World, which: usize) -> bool {
    let World {
        prober: Some(prober),
        stores,
        rng,
        quiescing,
        now,
        ..
    } = world
    else {
        return false;
    };
    let mut any = false;
    match SOURCES.get(which).zip(prober.pods.get_mut(which)) {
        Some((source, link)) => {
            let served = stores.pods.get(source).cloned().flatten();
            for update in link.receive(&served, rng, *quiescing) {
                if let Some(change) = convert::pod_change(*source, update) {
                    prober.manager.handle_pod(change, *now);
                }
                any = true;
            }
        }
        None => {
            for update in prober.states.receive(&stores.states, rng, *quiescing) {
                // The wall clock is the probe clock, and no pod is on the host's network.
                let change = convert::observed_change(update, String::new, |at| at);
                if let Some(change) = change
                    && prober.manager.handle_observed(change, *now)
                {
                    prober.publisher.publish_synced(prober.manager.unsaved());
                }
                any = true;
            }
        }
    }
    act(world);
    any
}

/// Starts attempts and saves results.
pub fn act(world: &mut World) {
    let now = world.now;
    let incarnation = world.prober.as_ref().map(|p| p.incarnation);
    // One write at a time carries all changes so far.
    let writing = world.calls.iter().any(|call| {
        matches!(call.work, Work::SaveProbeResults { .. }) && Some(call.incarnation) == incarnation
    });
    let Some(prober) = &mut world.prober else {
        return;
    };
    let incarnation = prober.incarnation;
    let attempts = prober.manager.start_due(now);
    let save = if writing {
        None
    } else {
        prober.manager.take_unsaved()
    };
    for attempt in attempts {
        world.call(
            ServiceId::Prober,
            incarnation,
            Work::Probe {
                attempt,
                response: None,
            },
        );
    }
    if let Some(changes) = save {
        world.call(
            ServiceId::Prober,
            incarnation,
            Work::SaveProbeResults {
                changes,
                written: false,
            },
        );
    }
}

/// The answer of a container to a probe.
pub fn answer(world: &mut World, attempt: &ProbeAttempt) -> Option<Result<(), String>> {
    if !world.quiescing && world.rng.percent(5) {
        return None;
    }
    let container = world.runtime.containers.get(attempt.container_id());
    let container = container.filter(|c| c.phase == ContainerPhase::Running)?;
    Some(match container.healthy {
        true => Ok(()),
        false => Err("not healthy".to_owned()),
    })
}

/// An attempt is complete.
pub fn complete(world: &mut World, attempt: &ProbeAttempt, result: Option<Result<(), String>>) {
    let now = world.now;
    if let Some(prober) = &mut world.prober {
        prober.manager.complete_simulated(attempt, result, now);
    }
    act(world);
}
