//! Property test: after any sequence of events, every pod reaches the state that its manifest asks for.

use proptest::prelude::*;
use serde_json::json;

use crate::core::plan::SyncPhase;
use crate::core::runtime_state::{ContainerRecord, ContainerState};
use crate::core::step::{Step, StepFailure};
use crate::core::test_support::TestEnv;

fn specs() -> impl Strategy<Value = serde_json::Value> {
    let policy = prop::sample::select(vec!["Always", "OnFailure", "Never"]);
    (
        policy,
        0..3_usize,
        any::<bool>(),
        1..4_usize,
        any::<bool>(),
        any::<bool>(),
        any::<bool>(),
    )
        .prop_map(|(policy, inits, sidecar, mains, volumes, hooks, devices)| {
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
            if devices {
                for one in main.iter_mut().take(1).chain(init.last_mut()) {
                    one["resources"] = json!({"limits": {"example.com/device": "1"}});
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

/// One event: a step in flight succeeds, fails, or is lost with the process; a container exits; the
/// sandbox dies; time passes.
fn apply_event(env: &mut TestEnv, kind: u8, pick: usize) {
    let in_flight: Vec<Step> = env.pod.in_flight.values().map(|f| f.step.clone()).collect();
    let picked = in_flight.get(pick % in_flight.len().max(1)).cloned();
    let running: Vec<ContainerRecord> = env
        .runtime
        .containers
        .iter()
        .filter(|c| c.state == ContainerState::Running)
        .cloned()
        .collect();
    match (kind % 8, picked) {
        (0..=2, Some(step)) => env.finish(&step),
        (3, Some(step)) => env.fail(&step, StepFailure::default()),
        // Process killed after the effect, before the result.
        (4, Some(step)) => {
            if let Step::CreateSandbox { attempt } = step {
                env.pod.min_sandbox_attempt = attempt + 1;
            }
            let min_attempt = env.pod.min_sandbox_attempt;
            let _ = env.effect(&step);
            env.restart_process();
            env.pod.min_sandbox_attempt = min_attempt;
        }
        // Process killed before the effect.
        (5, _) => env.restart_process(),
        (6, _) => {
            if let Some(container) = running.get(pick % running.len().max(1)) {
                let name = container.name.clone();
                env.exit_container(&name, i32::try_from(pick % 2).unwrap_or(0));
            }
        }
        (7, _) => {
            env.advance_clock(i64::try_from(pick % 20).unwrap_or(0));
            if pick.is_multiple_of(7) {
                for sandbox in &mut env.runtime.sandboxes {
                    sandbox.ready = false;
                }
                let ids: Vec<String> = env
                    .runtime
                    .containers
                    .iter()
                    .map(|c| c.id.clone())
                    .collect();
                ids.iter().for_each(|id| env.exit_by_id(id, 137));
                env.relist();
            }
        }
        _ => {}
    }
}

/// Advances the clock and completes init containers until nothing changes.
fn converge(env: &mut TestEnv) {
    let in_flight: Vec<Step> = env.pod.in_flight.values().map(|f| f.step.clone()).collect();
    in_flight.iter().for_each(|step| env.finish(step));
    for _ in 0..40 {
        env.run_until_idle();
        env.advance_clock(400);
        let inits: Vec<String> = env
            .running_names()
            .iter()
            .filter(|n| n.starts_with('i'))
            .map(|n| (*n).to_owned())
            .collect();
        for name in inits {
            env.exit_container(&name, 0);
        }
    }
    env.run_until_idle();
}

proptest! {
    /// Any events in any order, with process restarts anywhere: the pod converges, and then there is
    /// nothing to do.
    #[test]
    fn any_sequence_of_events_converges(spec in specs(), events in prop::collection::vec((any::<u8>(), any::<usize>()), 0..60), remove: bool) {
        let mut env = TestEnv::new(spec);
        for (kind, pick) in events {
            env.start_steps();
            apply_event(&mut env, kind, pick);
        }
        if remove {
            env.remove();
        }
        converge(&mut env);
        let plan = env.plan();
        prop_assert!(plan.steps.is_empty(), "{:?}", plan);
        if remove {
            prop_assert!(env.runtime.is_empty() && env.volumes.is_none());
        } else if env.pod.checkpoint.termination.is_some() {
            prop_assert!(env.running_names().is_empty());
            prop_assert_eq!(plan.phase, SyncPhase::Terminated);
        } else {
            let mains: Vec<String> = env.spec.containers.iter().filter(|c| c.name.starts_with('m')).map(|c| c.name.clone()).collect();
            for name in mains {
                let newest = env.runtime.newest_container(&name);
                let is_expected = newest.is_some_and(|c| c.state == ContainerState::Running || c.succeeded() || env.spec.restart_policy != polylet_model::RestartPolicy::Always);
                prop_assert!(is_expected, "{} {:?}", name, newest);
            }
        }
        if remove {
            return Ok(());
        }
        let changes = |env: &TestEnv| env.history.iter().filter(|s| **s != Step::ApplyVolumes).count();
        let before = (env.runtime.containers.clone(), changes(&env));
        env.restart_process();
        env.run_until_idle();
        prop_assert_eq!(before, (env.runtime.containers.clone(), changes(&env)));
    }
}
