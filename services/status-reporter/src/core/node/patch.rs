//! What has to be written, as a strategic merge patch against what is held.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{NodeCondition, NodeStatus};
use serde_json::{Map, Value, json};

/// Whether the statuses say something else; when a condition was last confirmed does not count.
pub(crate) fn differs(held: &NodeStatus, wanted: &NodeStatus) -> bool {
    quiet(held) != quiet(wanted)
}

/// Whether they differ in what cannot wait. Images may wait for more of their kind; a volume that is
/// no longer in use too, as whoever knows that may only have begun to look again after a restart.
pub(crate) fn differs_at_once(held: &NodeStatus, wanted: &NodeStatus) -> bool {
    let without = |status: &NodeStatus| {
        let mut status = quiet(status);
        status.images = None;
        status.volumes_in_use = None;
        status
    };
    let used = held.volumes_in_use.as_deref().unwrap_or_default();
    let mut now = wanted.volumes_in_use.iter().flatten();
    now.any(|volume| !used.contains(volume)) || without(held) != without(wanted)
}

fn quiet(status: &NodeStatus) -> NodeStatus {
    let mut status = status.clone();
    for condition in status.conditions.iter_mut().flatten() {
        condition.last_heartbeat_time = None;
    }
    // Empty and absent are one to the API.
    status.images = status.images.filter(|images| !images.is_empty());
    status.volumes_in_use = status.volumes_in_use.filter(|volumes| !volumes.is_empty());
    status.runtime_handlers = status.runtime_handlers.filter(|all| !all.is_empty());
    status
}

/// The patch that turns the held status into the wanted one, heartbeats included, with labels to be
/// put right.
pub(crate) fn status(
    held: &NodeStatus,
    wanted: &NodeStatus,
    labels: &BTreeMap<String, String>,
) -> Value {
    let (mut old, mut new) = (fields(held), fields(wanted));
    // Lists that are merged by a key are told as such; all others replace each other.
    for map in [&mut old, &mut new] {
        map.remove("conditions");
        map.remove("addresses");
    }
    let mut patch = changes(&old, &new);
    if held.addresses != wanted.addresses {
        let addresses = wanted.addresses.iter().flatten();
        let mut list: Vec<Value> = addresses
            .filter_map(|a| serde_json::to_value(a).ok())
            .collect();
        list.push(json!({"$patch": "replace"}));
        patch.insert("addresses".to_owned(), list.into());
    }
    let conditions = conditions(held, wanted);
    if !conditions.is_empty() {
        patch.insert("conditions".to_owned(), conditions.into());
    }
    match labels.is_empty() {
        true => json!({ "status": patch }),
        false => json!({ "metadata": { "labels": labels }, "status": patch }),
    }
}

fn conditions(held: &NodeStatus, wanted: &NodeStatus) -> Vec<Value> {
    let before = held.conditions.as_deref().unwrap_or_default();
    let is_held = |condition: &&NodeCondition| !before.contains(condition);
    let changed = wanted.conditions.iter().flatten().filter(is_held);
    changed
        .filter_map(|c| serde_json::to_value(c).ok())
        .collect()
}

/// Labels and annotations to be put right.
pub(crate) fn metadata(
    labels: Map<String, Value>,
    annotations: Map<String, Value>,
) -> Option<Value> {
    if labels.is_empty() && annotations.is_empty() {
        return None;
    }
    let mut metadata = Map::new();
    for (name, map) in [("labels", labels), ("annotations", annotations)] {
        if !map.is_empty() {
            metadata.insert(name.to_owned(), map.into());
        }
    }
    Some(json!({ "metadata": metadata }))
}

fn fields(status: &NodeStatus) -> Map<String, Value> {
    match serde_json::to_value(status) {
        Ok(Value::Object(map)) => map,
        _ => Map::new(),
    }
}

fn changes(old: &Map<String, Value>, new: &Map<String, Value>) -> Map<String, Value> {
    let mut patch = Map::new();
    for (name, value) in new {
        match (old.get(name), value) {
            (Some(before), value) if before == value => {}
            (Some(Value::Object(before)), Value::Object(after)) => {
                patch.insert(name.clone(), changes(before, after).into());
            }
            _ => {
                patch.insert(name.clone(), value.clone());
            }
        }
    }
    for name in old.keys().filter(|name| !new.contains_key(*name)) {
        patch.insert(name.clone(), Value::Null);
    }
    patch
}
