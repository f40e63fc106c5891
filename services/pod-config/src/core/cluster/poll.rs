//! Poll intervals of objects that nodes can get but not watch.

use std::time::Duration;

use serde_json::Value;

/// First interval while a change is pending.
const MIN_PENDING_INTERVAL: Duration = Duration::from_millis(100);
/// Longest interval while a change is pending.
const MAX_PENDING_INTERVAL: Duration = Duration::from_secs(2);
/// Interval without a pending change.
const SETTLED_INTERVAL: Duration = Duration::from_secs(60);

/// Whether the node waits for a change: a claim to be bound or resized, a volume to be attached, an
/// absent object to be created.
pub fn is_pending(kind: &str, object: Option<&Value>) -> bool {
    let Some(object) = object else {
        return true;
    };
    let text = |field: &str| object.pointer(field).and_then(Value::as_str);
    match kind {
        "PersistentVolumeClaim" => {
            let resize = text("/status/allocatedResourceStatuses/storage");
            // After the controller's part of a resize, the node's part follows.
            let on_node = resize.is_some_and(|status| status.starts_with("NodeResize"));
            text("/status/phase") != Some("Bound")
                || (on_node && resize != Some("NodeResizeInfeasible"))
        }
        "PersistentVolume" => text("/status/phase") != Some("Bound"),
        "VolumeAttachment" => {
            object.pointer("/status/attached") != Some(&Value::Bool(true))
                || text("/metadata/deletionTimestamp").is_some()
        }
        _ => false,
    }
}

/// The interval before the next poll, after so many polls in a row without the pending change.
pub fn poll_interval(pending_polls: Option<u32>) -> Duration {
    match pending_polls {
        None => SETTLED_INTERVAL,
        Some(times) => {
            let doubled = MIN_PENDING_INTERVAL.saturating_mul(1 << times.min(8));
            doubled.min(MAX_PENDING_INTERVAL)
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn pending_objects_are_polled_often() {
        let bound = json!({"status": {"phase": "Bound"}});
        let pending = json!({"status": {"phase": "Pending"}});
        let attached = json!({"status": {"attached": true}});
        let growing = json!({"status": {"phase": "Bound",
            "allocatedResourceStatuses": {"storage": "NodeResizePending"}}});
        for (kind, object, pending) in [
            ("PersistentVolumeClaim", Some(&bound), false),
            ("PersistentVolumeClaim", Some(&pending), true),
            ("PersistentVolumeClaim", None, true),
            ("PersistentVolumeClaim", Some(&growing), true),
            ("VolumeAttachment", Some(&attached), false),
            ("VolumeAttachment", Some(&pending), true),
            ("ServiceAccount", Some(&pending), false),
        ] {
            assert_eq!(is_pending(kind, object), pending, "{kind} {object:?}");
        }
        let intervals: Vec<u128> = (0..6).map(|n| poll_interval(Some(n)).as_millis()).collect();
        assert_eq!(intervals, [100, 200, 400, 800, 1600, 2000]);
        assert_eq!(poll_interval(Some(99)), MAX_PENDING_INTERVAL);
        assert_eq!(poll_interval(None), SETTLED_INTERVAL);
    }
}
