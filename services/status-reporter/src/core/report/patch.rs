//! The strategic merge patch between two statuses.

use k8s_openapi::api::core::v1::PodStatus;
use polylet_model::constants::condition as condition_type;
use polylet_model::quantity::Amount;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::merge::OWNED_CONDITIONS;

/// Takes the fields that the node agent writes, as JSON, where they differ. Other fields, known to this
/// build or not, are never patched. What is equal is not encoded: most of a status stays as it is.
macro_rules! differing {
    ($old:ident, $new:ident, $($name:literal: $field:ident,)+) => {{
        let mut fields = Vec::new();
        $(if $old.$field != $new.$field {
            let (old, new) = ($old.$field.as_ref(), $new.$field.as_ref());
            fields.push(($name, old.and_then(json), new.and_then(json)));
        })+
        fields
    }};
}

/// Lists with a merge key that are replaced as a whole.
const REPLACED: [&str; 2] = ["hostIPs", "podIPs"];

/// The body of a patch from `old` to `new`, with the uid as a precondition; `None` when no field of
/// the node agent differs.
pub(crate) fn between(uid: &str, old: &PodStatus, new: &PodStatus) -> Option<Value> {
    let fields = differing!(old, new,
        "allocatedResources": allocated_resources,
        "containerStatuses": container_statuses,
        "ephemeralContainerStatuses": ephemeral_container_statuses,
        "hostIP": host_ip,
        "hostIPs": host_ips,
        "initContainerStatuses": init_container_statuses,
        "message": message,
        "nominatedNodeName": nominated_node_name,
        "observedGeneration": observed_generation,
        "phase": phase,
        "podIP": pod_ip,
        "podIPs": pod_ips,
        "qosClass": qos_class,
        "reason": reason,
        "resize": resize,
        "resources": resources,
        "startTime": start_time,
    );
    let mut status = Map::new();
    for (field, old, new) in fields {
        match difference(field, old.as_ref(), new.as_ref()) {
            Some(Value::Array(items)) if REPLACED.contains(&field) => {
                let mut list = vec![json!({ "$patch": "replace" })];
                list.extend(items);
                status.insert(field.to_owned(), list.into());
            }
            Some(value) => {
                status.insert(field.to_owned(), value);
            }
            None => {}
        }
    }
    if old.conditions != new.conditions {
        let list = |status: &PodStatus| -> Vec<Value> {
            let list = status.conditions.iter().flatten();
            list.filter_map(json).collect()
        };
        conditions(&list(old), &list(new), &mut status);
    }
    (!status.is_empty()).then(|| json!({ "metadata": { "uid": uid }, "status": status }))
}

/// A part of a status, which always has a JSON form.
fn json(value: &impl Serialize) -> Option<Value> {
    serde_json::to_value(value).ok()
}

/// The patch of a field; `None` when both values are equivalent.
fn difference(field: &str, old: Option<&Value>, new: Option<&Value>) -> Option<Value> {
    let none = &Value::Null;
    if is_equivalent(field, old.unwrap_or(none), new.unwrap_or(none)) {
        return None;
    }
    match (old, new) {
        (_, None) => Some(Value::Null),
        (Some(Value::Object(old)), Some(Value::Object(new))) => {
            let mut fields = Map::new();
            for key in old.keys().filter(|key| !new.contains_key(*key)) {
                fields.insert(key.clone(), Value::Null);
            }
            for (key, value) in new {
                let inner = if is_resource_list(field) { field } else { key };
                if let Some(value) = difference(inner, old.get(key), Some(value)) {
                    fields.insert(key.clone(), value);
                }
            }
            Some(fields.into())
        }
        (_, Some(new)) => Some(new.clone()),
    }
}

/// The patch of the conditions, which are merged by type: only owned ones that differ are sent, so that
/// concurrent writes of others stay.
fn conditions(old: &[Value], new: &[Value], patch: &mut Map<String, Value>) {
    let type_of = |condition: &Value| condition["type"].as_str().unwrap_or("").to_owned();
    let is_owned = |type_: &str| {
        OWNED_CONDITIONS.contains(&type_) || type_ == condition_type::DISRUPTION_TARGET
    };
    let find = |list: &[Value], type_: &str| list.iter().find(|c| type_of(c) == type_).cloned();
    let mut changes = Vec::new();
    for condition in new.iter().filter(|condition| is_owned(&type_of(condition))) {
        let known = find(old, &type_of(condition)).unwrap_or(Value::Null);
        if is_equivalent("", condition, &known) {
            continue;
        }
        let mut condition = condition.clone();
        if let (Some(fields), Some(known)) = (condition.as_object_mut(), known.as_object()) {
            for removed in known.keys().filter(|key| *key != "lastProbeTime") {
                fields.entry(removed).or_insert(Value::Null);
            }
        }
        changes.push(condition);
    }
    for known in old {
        let type_ = type_of(known);
        if OWNED_CONDITIONS.contains(&type_.as_str()) && find(new, &type_).is_none() {
            changes.push(json!({ "$patch": "delete", "type": type_ }));
        }
    }
    if !changes.is_empty() {
        let order: Vec<Value> = new.iter().map(|c| json!({ "type": type_of(c) })).collect();
        patch.insert("$setElementOrder/conditions".to_owned(), order.into());
        patch.insert("conditions".to_owned(), changes.into());
    }
}

/// Whether the values of a field are quantities.
fn is_resource_list(field: &str) -> bool {
    ["limits", "requests", "allocatedResources"].contains(&field)
}

/// Whether two values of a field mean the same: an empty value is equal to none, and quantities are compared as
/// numbers.
fn is_equivalent(field: &str, one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Object(fields), Value::Object(others)) => {
            let inner = |key| if is_resource_list(field) { field } else { key };
            let mut added = others.iter().filter(|(key, _)| !fields.contains_key(*key));
            added.all(|(_, value)| is_empty(value))
                && fields.iter().all(|(key, value)| {
                    let other = others.get(key).unwrap_or(&Value::Null);
                    is_equivalent(inner(key), value, other)
                })
        }
        (Value::Array(list), Value::Array(others)) if list.len() == others.len() => {
            let mut pairs = list.iter().zip(others);
            pairs.all(|(one, other)| is_equivalent("", one, other))
        }
        (Value::String(one), Value::String(other)) if is_resource_list(field) => {
            match (Amount::parse(one), Amount::parse(other)) {
                (Ok(one), Ok(other)) => one.nanos() == other.nanos(),
                _ => one == other,
            }
        }
        _ => one == other || (is_empty(one) && is_empty(other)),
    }
}

/// Whether a value is equivalent to none, such as an object of which all fields are.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(fields) => fields.values().all(is_empty),
        Value::Bool(_) | Value::Number(_) => false,
    }
}
