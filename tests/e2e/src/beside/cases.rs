//! The pods. Each ends by its deletion, and is looked at when it has come to rest.

use serde_json::{Value, json};

use super::{Case, Step};
use crate::RUNS;

/// What is done to pods that run: deletions, changes.
pub mod changed;
/// Pods that others send away, and pods that go before they run.
pub mod disrupted;
/// Pods that end, or never stop ending.
pub mod ending;
/// Pods that nobody lets in.
pub mod refused;
/// Pods that do not get to run.
pub mod stuck;

/// All of them; those of one list live at one time.
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

/// Some, for every day.
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
        "says-log",
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

/// A pod of one container, bound to the node; `more` as [`crate::pod`].
pub fn case(name: &str, script: &str, more: &Value, steps: Vec<Step>) -> Case {
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

/// A pod that runs until it is told to end.
pub fn runs(name: &str, more: &Value, steps: Vec<Step>) -> Case {
    case(name, RUNS, more, steps)
}

/// A container of its own.
pub fn container(name: &str, script: &str, more: &Value) -> Value {
    let mut container = json!({
        "name": name, "image": "polylet-test:1", "command": ["sh", "-c", script],
    });
    for (key, value) in more.as_object().into_iter().flatten() {
        container[key] = value.clone();
    }
    container
}

/// Waits for Ready.
pub fn ready() -> Step {
    Step::Until("ready", polylet_harness::cluster::is_ready)
}

/// Waits for an end.
pub fn ended() -> Step {
    Step::Until("ended", |pod| {
        ["Succeeded", "Failed"].contains(&pod["status"]["phase"].as_str().unwrap_or_default())
    })
}

/// Whether any container waits for this reason.
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

/// Waits until a container that failed is not started again yet.
pub fn backs_off() -> Step {
    Step::Once("backs off", |pod| waits(pod, "CrashLoopBackOff"))
}

/// How often the first container of a list was started again.
pub fn restarts(pod: &Value, list: &str) -> u64 {
    pod["status"][list][0]["restartCount"]
        .as_u64()
        .unwrap_or_default()
}
