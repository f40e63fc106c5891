//! prober: the real judge; containers answer as they are.

use polylet_prober::judge::{Attempt, Judge, Verdicts};
use polylet_watch::Store;
use polylet_wire::pleg::v1::{ContainerPhase, WatchPodStatesResponse};
use polylet_wire::podconfig::v1::WatchPodsResponse;

use super::config::SOURCES;
use crate::calls::Work;
use crate::link::Link;
use crate::sabotage::Sabotage;
use crate::world::{Who, World};

/// A life of it.
pub struct Prober {
    /// Which.
    pub life: u32,
    /// Decides.
    pub judge: Judge,
    pods: Vec<Link<WatchPodsResponse>>,
    states: Link<WatchPodStatesResponse>,
}

/// Reads what is kept, and has heard nothing yet.
pub fn start(world: &mut World, life: u32) {
    let store = Store::new(&format!("prober-{life}"));
    let kept = match world.sabotage {
        Some(Sabotage::VerdictsForgotten) => Verdicts::new(),
        _ => world.disk.verdicts.clone(),
    };
    world.stores.verdicts = Some((life, store.clone()));
    world.prober = Some(Prober {
        life,
        judge: Judge::new(kept, store),
        pods: SOURCES.iter().map(|_| Link::default()).collect(),
        states: Link::default(),
    });
}

/// Its streams.
pub const LINKS: usize = 4;

/// Something happens on one of its streams.
pub fn listen(world: &mut World, which: usize) -> bool {
    let World {
        prober: Some(prober),
        stores,
        rng,
        calm,
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
            for update in link.hear(&served, rng, *calm) {
                prober.judge.pod(*source, update, *now);
                any = true;
            }
        }
        None => {
            for update in prober.states.hear(&stores.states, rng, *calm) {
                prober.judge.state(update, *now);
                any = true;
            }
        }
    }
    act(world);
    any
}

/// Begins attempts, and has verdicts written.
pub fn act(world: &mut World) {
    let now = world.now;
    let life = world.prober.as_ref().map(|p| p.life);
    // One write at a time carries all changes so far.
    let writing = world
        .calls
        .iter()
        .any(|call| matches!(call.work, Work::SaveVerdicts { .. }) && Some(call.life) == life);
    let Some(prober) = &mut world.prober else {
        return;
    };
    let life = prober.life;
    let attempts = prober.judge.due(now);
    let save = if writing {
        None
    } else {
        prober.judge.to_save()
    };
    for attempt in attempts {
        world.call(
            Who::Prober,
            life,
            Work::Probe {
                attempt,
                said: None,
            },
        );
    }
    if let Some(verdicts) = save {
        world.call(
            Who::Prober,
            life,
            Work::SaveVerdicts {
                verdicts,
                written: false,
            },
        );
    }
}

/// What a container answers now.
pub fn ask(world: &mut World, attempt: &Attempt) -> Option<Result<(), String>> {
    if !world.calm && world.rng.percent(5) {
        return None;
    }
    let container = world.runtime.containers.get(attempt.container_id());
    let container = container.filter(|c| c.phase == ContainerPhase::Running)?;
    Some(match container.well {
        true => Ok(()),
        false => Err("not well".to_owned()),
    })
}

/// An attempt ended.
pub fn attempted(world: &mut World, attempt: &Attempt, said: Option<Result<(), String>>) {
    let now = world.now;
    if let Some(prober) = &mut world.prober {
        prober.judge.attempted(attempt, said, now);
    }
    act(world);
}
