//! Upstream's cases of what to do with a pod, and properties of all plans.

use serde_json::json;

use super::step::Step;

mod doubts;
mod ends;
mod histories;
mod hooks;
mod images;
mod resets;
mod starts;

fn init_pod(policy: &str) -> serde_json::Value {
    json!({"restartPolicy": policy,
        "initContainers": [{"name": "i1", "image": "i:1"}, {"name": "i2", "image": "i:1"}, {"name": "i3", "image": "i:1"}],
        "containers": [{"name": "a", "image": "a:1"}]})
}

fn sidecar_pod() -> serde_json::Value {
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
            container, grace, ..
        } => Some((container, *grace)),
        _ => None,
    }
}
