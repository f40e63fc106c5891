use k8s_openapi::api::core::v1::PodStatus;
use serde_json::{Value, json};

use super::merge::{PhaseRules, merged};
use super::patch::between;

mod newer_server;
mod patches;
mod queue;

/// A status out of its JSON form.
fn status(of: Value) -> PodStatus {
    serde_json::from_value(of).unwrap()
}

fn condition(type_: &str, status: &str, second: u32) -> Value {
    json!({ "type": type_, "status": status, "lastTransitionTime": format!("2026-01-01T00:00:{second:02}Z") })
}

/// The status of a pod that has just started.
fn running() -> Value {
    json!({
        "phase": "Running", "hostIP": "192.0.2.1", "hostIPs": [{ "ip": "192.0.2.1" }],
        "podIP": "10.0.0.2", "podIPs": [{ "ip": "10.0.0.2" }], "qosClass": "BestEffort",
        "startTime": "2026-01-01T00:00:00Z", "observedGeneration": 1,
        "conditions": [condition("Ready", "True", 2), condition("ContainersReady", "True", 2), condition("PodScheduled", "True", 0)],
        "containerStatuses": [{
            "name": "a", "image": "x", "imageID": "i", "ready": true, "restartCount": 0, "started": true,
            "containerID": "containerd://c", "state": { "running": { "startedAt": "2026-01-01T00:00:02Z" } },
        }],
    })
}

/// A status with some fields changed.
fn with(mut status: Value, changes: &[(&str, Value)]) -> Value {
    for (pointer, value) in changes {
        let (parent, key) = pointer.rsplit_once('/').unwrap();
        let parent = status.pointer_mut(parent).unwrap();
        match parent {
            Value::Object(fields) if value.is_null() => drop(fields.remove(key)),
            Value::Object(fields) => drop(fields.insert(key.to_owned(), value.clone())),
            Value::Array(list) if key == "-" => list.push(value.clone()),
            other => other[key.parse::<usize>().unwrap()] = value.clone(),
        }
    }
    status
}

/// Applies a patch as the API server does.
fn applied(old: &PodStatus, body: &Value) -> PodStatus {
    let mut current = serde_json::to_value(old).unwrap();
    for (field, value) in body["status"].as_object().unwrap() {
        match field.as_str() {
            "$setElementOrder/conditions" => {}
            "conditions" => merge_conditions(&mut current, value.as_array().unwrap()),
            "podIPs" | "hostIPs" if value.is_array() => {
                let list = value.as_array().unwrap();
                assert_eq!(list[0], json!({ "$patch": "replace" }));
                current[field] = list[1..].to_vec().into();
            }
            _ => merge(&mut current, field, value),
        }
    }
    status(current)
}

fn merge(current: &mut Value, field: &str, value: &Value) {
    let fields = current.as_object_mut().unwrap();
    match value {
        Value::Null => drop(fields.remove(field)),
        Value::Object(changes) if fields.get(field).is_some_and(Value::is_object) => {
            for (key, value) in changes {
                merge(&mut fields[field], key, value);
            }
        }
        _ => drop(fields.insert(field.to_owned(), value.clone())),
    }
}

fn merge_conditions(current: &mut Value, changes: &[Value]) {
    let mut list = current["conditions"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    for change in changes {
        let known = list.iter().position(|c| c["type"] == change["type"]);
        match known {
            _ if change["$patch"] == "delete" => list.retain(|c| c["type"] != change["type"]),
            Some(at) => {
                for (key, value) in change.as_object().unwrap() {
                    merge(&mut list[at], key, value);
                }
            }
            None => {
                let mut new = json!({});
                for (key, value) in change.as_object().unwrap() {
                    merge(&mut new, key, value);
                }
                list.push(new);
            }
        }
    }
    current["conditions"] = list.into();
}

/// The rules for a pod of the API server.
fn rules(may_run: bool) -> PhaseRules {
    PhaseRules {
        may_run,
        is_static: false,
    }
}

/// Applies the patch between two statuses, after which nothing may be left to patch.
fn patched(api: Value, ours: Value, rules: PhaseRules) -> (Option<Value>, PodStatus) {
    let (api, ours) = (status(api), status(ours));
    let new = merged(&api, &ours, rules);
    let Some(body) = between("u", &api, &new) else {
        return (None, api);
    };
    assert_eq!(body["metadata"], json!({ "uid": "u" }));
    let after = applied(&api, &body);
    let again = between("u", &after, &merged(&after, &ours, rules));
    assert_eq!(again, None, "patched twice after {body}");
    (Some(body["status"].clone()), after)
}
