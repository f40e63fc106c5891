//! The pod worker's decisions, with upstream's test cases.

use serde_json::{Value, json};

use crate::core::step::Step;
use crate::core::test_support::simple;

mod at_rest;
mod cleanup;
mod convergence;
mod devices;
mod exits_after_kills;
mod grace_periods;
mod images;
mod lifecycle_hooks;
mod lost_sandbox;
mod replacement;
mod restart_all_containers;
mod restart_of_process;
mod stale_state;
mod start;
mod starts_over;
mod termination;
mod two_sandboxes;
mod volumes;

fn init_pod(policy: &str) -> Value {
    json!({"restartPolicy": policy,
        "initContainers": [{"name": "i1", "image": "i:1"}, {"name": "i2", "image": "i:1"}, {"name": "i3", "image": "i:1"}],
        "containers": [{"name": "a", "image": "a:1"}]})
}

fn sidecar_pod() -> Value {
    json!({"restartPolicy": "Never",
        "initContainers": [
            {"name": "s1", "image": "s:1", "restartPolicy": "Always",
             "startupProbe": {"exec": {"command": ["true"]}}},
            {"name": "i2", "image": "i:1"},
            {"name": "s3", "image": "s:1", "restartPolicy": "Always"}],
        "containers": [{"name": "a", "image": "a:1"}]})
}

fn stop_of(step: &Step) -> Option<(&str, u32)> {
    match step {
        Step::StopContainer {
            container,
            grace_period,
            ..
        } => Some((container, *grace_period)),
        _ => None,
    }
}

fn with_hooks(policy: &str, names: &[&str], hooks: &[&str]) -> Value {
    let mut spec = simple(policy, names);
    for hook in hooks {
        spec["containers"][0]["lifecycle"][hook] = json!({"exec": {"command": ["true"]}});
    }
    spec
}

fn pre_stop_of(step: &Step) -> Option<(&str, u32)> {
    match step {
        Step::PreStop {
            container, timeout, ..
        } => Some((container, *timeout)),
        _ => None,
    }
}
