//! Whatever happens in whatever order: every pod comes to rest as its manifest says.

use proptest::prelude::*;
use serde_json::json;

use super::super::learn::Trouble;
use super::super::observed::{Phase as Stands, SeenContainer};
use super::super::plan::Phase;
use super::super::step::Step;
use super::super::world::World;

fn specs() -> impl Strategy<Value = serde_json::Value> {
    let policy = prop::sample::select(vec!["Always", "OnFailure", "Never"]);
    (
        policy,
        0..3_usize,
        any::<bool>(),
        1..4_usize,
        any::<bool>(),
        any::<bool>(),
    )
        .prop_map(|(policy, inits, sidecar, mains, volumes, hooks)| {
            let container = |name: String| json!({"name": name, "image": "x:1"});
            let mut init: Vec<_> = (0..inits).map(|n| container(format!("i{n}"))).collect();
            if sidecar {
                let mut sidecar = container("s".into());
                sidecar["restartPolicy"] = json!("Always");
                init.push(sidecar);
            }
            let mut main: Vec<_> = (0..mains).map(|n| container(format!("m{n}"))).collect();
            if hooks {
                for one in main.iter_mut().chain(init.last_mut().filter(|_| sidecar)) {
                    let hook = json!({"sleep": {"seconds": 1}});
                    one["lifecycle"] = json!({"postStart": hook, "preStop": hook});
                }
            }
            let mut spec =
                json!({"restartPolicy": policy, "initContainers": init, "containers": main});
            if volumes {
                spec["volumes"] = json!([{"name": "data", "emptyDir": {}}]);
            }
            spec
        })
}

/// Something happens: a step under way ends, fails, or is lost with the process;
/// a container ends; the sandbox dies; time passes.
fn disturb(world: &mut World, what: u8, pick: usize) {
    let flights: Vec<Step> = world.pod.flights.values().map(|f| f.step.clone()).collect();
    let picked = flights.get(pick % flights.len().max(1)).cloned();
    let running: Vec<SeenContainer> = world
        .runtime
        .containers
        .iter()
        .filter(|c| c.phase == Stands::Running)
        .cloned()
        .collect();
    match (what % 8, picked) {
        (0..=2, Some(step)) => world.finish(&step),
        (3, Some(step)) => world.fail(&step, Trouble::default()),
        // Killed after the effect, before anybody heard of it.
        (4, Some(step)) => {
            if let Step::CreateSandbox { attempt } = step {
                world.pod.sandbox_floor = attempt + 1;
            }
            let floor = world.pod.sandbox_floor;
            let _ = world.effect(&step);
            world.restart();
            world.pod.sandbox_floor = floor;
        }
        // Killed before the effect.
        (5, _) => world.restart(),
        (6, _) => {
            if let Some(container) = running.get(pick % running.len().max(1)) {
                let name = container.name.clone();
                world.ends(&name, i32::try_from(pick % 2).unwrap_or(0));
            }
        }
        (7, _) => {
            world.pass(i64::try_from(pick % 20).unwrap_or(0));
            if pick.is_multiple_of(7) {
                for sandbox in &mut world.runtime.sandboxes {
                    sandbox.ready = false;
                }
                let ids: Vec<String> = world
                    .runtime
                    .containers
                    .iter()
                    .map(|c| c.id.clone())
                    .collect();
                ids.iter().for_each(|id| world.exit(id, 137));
                world.hear();
            }
        }
        _ => {}
    }
}

/// Lets time pass and init containers succeed until nothing more is wanted.
fn come_to_rest(world: &mut World) {
    let flights: Vec<Step> = world.pod.flights.values().map(|f| f.step.clone()).collect();
    flights.iter().for_each(|step| world.finish(step));
    for _ in 0..40 {
        world.settle();
        world.pass(400);
        let inits: Vec<String> = world
            .all_running()
            .iter()
            .filter(|n| n.starts_with('i'))
            .map(|n| (*n).to_owned())
            .collect();
        for name in inits {
            world.ends(&name, 0);
        }
    }
    world.settle();
}

proptest! {
    /// Whatever happens in whatever order, with the process dying anywhere: each
    /// pod comes to rest as its manifest says, and at rest there is nothing to do.
    #[test]
    fn every_history_converges(spec in specs(), events in prop::collection::vec((any::<u8>(), any::<usize>()), 0..60), leave: bool) {
        let mut world = World::new(spec);
        for (what, pick) in events {
            world.begin();
            disturb(&mut world, what, pick);
        }
        if leave {
            world.pod.leaving = true;
        }
        come_to_rest(&mut world);
        let plan = world.plan();
        prop_assert!(plan.steps.is_empty(), "{:?}", plan);
        if leave {
            prop_assert!(world.runtime.is_empty() && world.volumes.is_none());
        } else if world.pod.journal.terminal.is_some() {
            prop_assert!(world.all_running().is_empty());
            prop_assert_eq!(plan.phase, Phase::Terminated);
        } else {
            let mains: Vec<String> = world.wanted.containers.iter().filter(|c| c.name.starts_with('m')).map(|c| c.name.clone()).collect();
            for name in mains {
                let newest = world.runtime.newest(&name);
                let fine = newest.is_some_and(|c| c.phase == Stands::Running || c.succeeded() || world.wanted.restart != polylet_model::RestartPolicy::Always);
                prop_assert!(fine, "{} {:?}", name, newest);
            }
        }
        if leave {
            return Ok(());
        }
        let changes = |world: &World| world.history.iter().filter(|s| **s != Step::ApplyVolumes).count();
        let facts = (world.runtime.containers.clone(), changes(&world));
        world.restart();
        world.settle();
        prop_assert_eq!(facts, (world.runtime.containers.clone(), changes(&world)));
    }
}
