//! One status made into another at the API server: a strategic merge.

use k8s_openapi::api::core::v1::PodStatus;
use polylet_model::constants::condition;
use polylet_model::quantity::Amount;
use serde_json::{Map, Value, json};

use super::merge::OWN;

/// Fields that a node agent writes. What others write, and what this build does not know, is in no
/// patch of ours.
const FIELDS: [&str; 17] = [
    "allocatedResources",
    "containerStatuses",
    "ephemeralContainerStatuses",
    "hostIP",
    "hostIPs",
    "initContainerStatuses",
    "message",
    "nominatedNodeName",
    "observedGeneration",
    "phase",
    "podIP",
    "podIPs",
    "qosClass",
    "reason",
    "resize",
    "resources",
    "startTime",
];

/// Lists that the API server would merge by a key, where ours is the whole list.
const REPLACED: [&str; 2] = ["hostIPs", "podIPs"];

/// The body of a patch that makes `old` into `new`, of the pod with this uid and no other; `None`
/// when nothing of ours differs.
pub(crate) fn between(uid: &str, old: &PodStatus, new: &PodStatus) -> Option<Value> {
    // A status always has a JSON form; should it ever not, there is nothing to say.
    let (old, new) = (fields(old)?, fields(new)?);
    let mut status = Map::new();
    for field in FIELDS {
        match difference(field, old.get(field), new.get(field)) {
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
    conditions(&old, &new, &mut status);
    (!status.is_empty()).then(|| json!({ "metadata": { "uid": uid }, "status": status }))
}

fn fields(status: &PodStatus) -> Option<Map<String, Value>> {
    match serde_json::to_value(status) {
        Ok(Value::Object(fields)) => Some(fields),
        _ => None,
    }
}

/// What a field is patched with; `None` when both mean the same.
fn difference(field: &str, old: Option<&Value>, new: Option<&Value>) -> Option<Value> {
    let meaning = |value: Option<&Value>| value.map_or(Value::Null, |v| meaning(field, v));
    if meaning(old) == meaning(new) {
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
                let inner = if is_amounts(field) { field } else { key };
                if let Some(value) = difference(inner, old.get(key), Some(value)) {
                    fields.insert(key.clone(), value);
                }
            }
            Some(fields.into())
        }
        (_, Some(new)) => Some(new.clone()),
    }
}

/// Conditions are merged by their type: only those of ours that differ are sent, so that what
/// somebody else writes meanwhile stays.
fn conditions(old: &Map<String, Value>, new: &Map<String, Value>, patch: &mut Map<String, Value>) {
    let list = |status: &Map<String, Value>| -> Vec<Value> {
        let list = status.get("conditions").and_then(Value::as_array);
        list.cloned().unwrap_or_default()
    };
    let type_of = |condition: &Value| condition["type"].as_str().unwrap_or("").to_owned();
    let ours = |type_: &str| OWN.contains(&type_) || type_ == condition::DISRUPTION_TARGET;
    let (old, new) = (list(old), list(new));
    let find = |list: &[Value], type_: &str| list.iter().find(|c| type_of(c) == type_).cloned();
    let mut changes = Vec::new();
    for said in new.iter().filter(|said| ours(&type_of(said))) {
        let known = find(&old, &type_of(said)).unwrap_or(Value::Null);
        if meaning("", said) == meaning("", &known) {
            continue;
        }
        let mut said = said.clone();
        if let (Some(said), Some(known)) = (said.as_object_mut(), known.as_object()) {
            for gone in known.keys().filter(|key| *key != "lastProbeTime") {
                said.entry(gone).or_insert(Value::Null);
            }
        }
        changes.push(said);
    }
    for known in &old {
        let type_ = type_of(known);
        if OWN.contains(&type_.as_str()) && find(&new, &type_).is_none() {
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
fn is_amounts(field: &str) -> bool {
    ["limits", "requests", "allocatedResources"].contains(&field)
}

/// A value without what makes no difference: empty fields, and how an amount is written.
fn meaning(field: &str, value: &Value) -> Value {
    let is_nothing = |value: &Value| match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    };
    let means = match value {
        Value::String(text) if is_amounts(field) => match Amount::parse(text) {
            Ok(amount) => amount.nanos().to_string().into(),
            Err(_) => value.clone(),
        },
        Value::Array(list) => list.iter().map(|value| meaning("", value)).collect(),
        Value::Object(fields) => {
            let each = fields.iter().map(|(key, value)| {
                let inner = if is_amounts(field) { field } else { key };
                (key.clone(), meaning(inner, value))
            });
            // `resources` of a container and the like: an empty one says as much as none.
            Value::Object(each.filter(|(_, value)| !is_nothing(value)).collect())
        }
        other => other.clone(),
    };
    if is_nothing(&means) {
        Value::Null
    } else {
        means
    }
}
