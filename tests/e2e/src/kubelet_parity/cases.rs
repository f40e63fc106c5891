//! Test cases: pods that are observed whenever their status has settled, and deleted at the end.

use serde_json::{Value, json};

use super::{Case, ScenarioStep};
use crate::RUNS;

/// Changes and deletions of running pods.
pub mod changed;
/// Pods that are preempted or evicted, and pods deleted before they run.
pub mod disrupted;
/// Pods that terminate, or crash repeatedly.
pub mod ending;
/// Pods that are rejected at admission.
pub mod refused;
/// Pods that never reach Running.
pub mod stuck;

/// All cases; those of one list run concurrently.
pub fn all() -> Vec<Vec<Case>> {
    vec![
        ending::cases(),
        [stuck::cases(), refused::cases()].concat(),
        [changed::cases(), disrupted::deleted()].concat(),
        super::views::cases(),
        disrupted::preempted(),
        disrupted::tainted(),
    ]
}

/// The subset for the short test.
pub fn few() -> Vec<Vec<Case>> {
    let chosen = [
        "plain",
        "volumes",
        "guaranteed",
        "pod-level",
        "user",
        "inits",
        "init-fails",
        "never-1",
        "sidecar-done",
        "message-log",
        "bad-command-never",
        "out-of-cpu",
        "affinity",
        "no-key",
        "image-never",
        "end-fails",
        "hooked",
        "sees",
        "sees-volumes",
    ];
    let all = all().into_iter().flatten();
    let few = all.filter(|case| chosen.contains(&case.name.as_str()));
    vec![few.collect()]
}

/// A pod of one container, bound to the node; `more` as in [`crate::pod`].
pub fn case(name: &str, script: &str, more: &Value, steps: Vec<ScenarioStep>) -> Case {
    let text = crate::pod(name, script, more);
    let mut pod: Value = serde_json::from_str(&text).unwrap_or_default();
    if pod["spec"].get("nodeName").is_none() {
        pod["spec"]["nodeName"] = "node".into();
    }
    let grace = &mut pod["spec"]["terminationGracePeriodSeconds"];
    if more.get("terminationGracePeriodSeconds").is_none() {
        *grace = 5.into();
    }
    Case {
        name: name.to_owned(),
        object: ("pods", pod),
        after: None,
        steps,
    }
}

/// A pod that runs until SIGTERM.
pub fn runs(name: &str, more: &Value, steps: Vec<ScenarioStep>) -> Case {
    case(name, RUNS, more, steps)
}

/// A further container.
pub fn container(name: &str, script: &str, more: &Value) -> Value {
    let mut container = json!({
        "name": name, "image": "polylet-test:1", "command": ["sh", "-c", script],
    });
    for (key, value) in more.as_object().into_iter().flatten() {
        container[key] = value.clone();
    }
    container
}

/// Waits until the pod is Ready.
pub fn ready() -> ScenarioStep {
    ScenarioStep::Until("ready", polylet_harness::cluster::is_ready)
}

/// Waits for a terminal phase.
pub fn ended() -> ScenarioStep {
    ScenarioStep::Until("ended", |pod| {
        ["Succeeded", "Failed"].contains(&pod["status"]["phase"].as_str().unwrap_or_default())
    })
}

/// Whether a container is waiting with this reason.
pub fn waits(pod: &Value, reason: &str) -> bool {
    let lists = ["initContainerStatuses", "containerStatuses"];
    let mut all = lists
        .iter()
        .filter_map(|list| pod["status"][list].as_array());
    all.any(|list| {
        list.iter()
            .any(|c| c["state"]["waiting"]["reason"] == reason)
    })
}

/// Waits until a failed container is in back-off.
pub fn backs_off() -> ScenarioStep {
    ScenarioStep::Once("backs off", |pod| waits(pod, "CrashLoopBackOff"))
}

/// Restart count of the first container of a list.
pub fn restarts(pod: &Value, list: &str) -> u64 {
    pod["status"][list][0]["restartCount"]
        .as_u64()
        .unwrap_or_default()
}
