//! Strategic merge patches of the Node.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{NodeCondition, NodeStatus};
use serde_json::{Map, Value, json};

/// Whether the statuses differ, apart from heartbeats.
pub(crate) fn differs(current: &NodeStatus, desired: &NodeStatus) -> bool {
    without_heartbeats(current) != without_heartbeats(desired)
}

/// Whether the statuses differ in an urgent field. Images may wait for more changes, and so may a volume
/// that is no longer in use: volume-manager may be restarting. The message of a condition may change at
/// any time while its status stays.
pub(crate) fn differs_urgently(current: &NodeStatus, desired: &NodeStatus) -> bool {
    let without = |status: &NodeStatus| {
        let mut status = without_heartbeats(status);
        for condition in status.conditions.iter_mut().flatten() {
            condition.message = None;
        }
        status.images = None;
        status.volumes_in_use = None;
        status
    };
    let used = current.volumes_in_use.as_deref().unwrap_or_default();
    let mut now = desired.volumes_in_use.iter().flatten();
    now.any(|volume| !used.contains(volume)) || without(current) != without(desired)
}

fn without_heartbeats(status: &NodeStatus) -> NodeStatus {
    let mut status = status.clone();
    for condition in status.conditions.iter_mut().flatten() {
        condition.last_heartbeat_time = None;
    }
    // Empty and absent are equivalent in the API.
    status.images = status.images.filter(|images| !images.is_empty());
    status.volumes_in_use = status.volumes_in_use.filter(|volumes| !volumes.is_empty());
    status.runtime_handlers = status.runtime_handlers.filter(|all| !all.is_empty());
    status
}

/// The patch from the current status to the desired one, heartbeats included, and of outdated labels.
pub(crate) fn status(
    current: &NodeStatus,
    desired: &NodeStatus,
    labels: &BTreeMap<String, String>,
) -> Value {
    let (mut old, mut new) = (fields(current), fields(desired));
    // Lists with a merge key are patched below; all others are replaced.
    for map in [&mut old, &mut new] {
        map.remove("conditions");
        map.remove("addresses");
    }
    let mut patch = changes(&old, &new);
    if current.addresses != desired.addresses {
        let addresses = desired.addresses.iter().flatten();
        let mut list: Vec<Value> = addresses
            .filter_map(|a| serde_json::to_value(a).ok())
            .collect();
        list.push(json!({"$patch": "replace"}));
        patch.insert("addresses".to_owned(), list.into());
    }
    let conditions = conditions(current, desired);
    if !conditions.is_empty() {
        patch.insert("conditions".to_owned(), conditions.into());
    }
    match labels.is_empty() {
        true => json!({ "status": patch }),
        false => json!({ "metadata": { "labels": labels }, "status": patch }),
    }
}

fn conditions(current: &NodeStatus, desired: &NodeStatus) -> Vec<Value> {
    let before = current.conditions.as_deref().unwrap_or_default();
    let is_new = |condition: &&NodeCondition| !before.contains(condition);
    let changed = desired.conditions.iter().flatten().filter(is_new);
    changed
        .filter_map(|c| serde_json::to_value(c).ok())
        .collect()
}

/// The patch of labels and annotations; `None` without any.
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
