//! Published form of the Node object.

use bytes::Bytes;
use serde_json::Value;

use super::super::canonical;
use super::kinds::normalize;

/// The Node as JSON without managed fields, resource version and heartbeat times, so that a heartbeat
/// is no change.
pub fn to_json(mut node: Value) -> Bytes {
    normalize(&mut node, "v1", "Node");
    let conditions = node.pointer_mut("/status/conditions");
    let conditions = conditions.and_then(Value::as_array_mut);
    for condition in conditions.into_iter().flatten() {
        if let Some(condition) = condition.as_object_mut() {
            condition.remove("lastHeartbeatTime");
        }
    }
    canonical::to_bytes(&node)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn heartbeat_is_no_change() {
        let node = |version: &str, beat: &str, status: &str| {
            to_json(json!({
                "metadata": {"name": "n", "resourceVersion": version, "managedFields": []},
                "status": {"conditions": [
                    {"type": "Ready", "status": status, "lastHeartbeatTime": beat},
                    "odd",
                ]},
            }))
        };
        assert_eq!(node("1", "a", "True"), node("2", "b", "True"));
        assert_ne!(node("1", "a", "True"), node("1", "a", "False"));
        assert_eq!(to_json(json!([])), "[]");
    }
}
