//! What of this node's object is told.

use serde_json::Value;

use super::super::canonical;
use super::kinds::bare;

/// The Node less managed fields, resource version and the times of heartbeats, so that a write of
/// nothing but new heartbeats is no change.
pub fn reduce(mut node: Value) -> String {
    bare(&mut node, "v1", "Node");
    let conditions = node.pointer_mut("/status/conditions");
    let conditions = conditions.and_then(Value::as_array_mut);
    for condition in conditions.into_iter().flatten() {
        if let Some(condition) = condition.as_object_mut() {
            condition.remove("lastHeartbeatTime");
        }
    }
    canonical::text(&node)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_heartbeat_is_no_change() {
        let node = |version: &str, beat: &str, status: &str| {
            reduce(json!({
                "metadata": {"name": "n", "resourceVersion": version, "managedFields": []},
                "status": {"conditions": [
                    {"type": "Ready", "status": status, "lastHeartbeatTime": beat},
                    "odd",
                ]},
            }))
        };
        assert_eq!(node("1", "a", "True"), node("2", "b", "True"));
        assert_ne!(node("1", "a", "True"), node("1", "a", "False"));
        assert_eq!(reduce(json!([])), "[]");
    }
}
