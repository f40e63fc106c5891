//! How soon an object is got again that a node may not watch.

use std::time::Duration;

use serde_json::Value;

/// The first pause while something is awaited of it …
const SHORTEST: Duration = Duration::from_millis(100);
/// … and the longest.
const LONGEST: Duration = Duration::from_secs(2);
/// When nothing is awaited.
const SETTLED: Duration = Duration::from_secs(60);

/// Whether a node waits for a change of it: a claim is to be bound, or its growth to go on, an
/// attachment to be attached, what is not there to be made.
pub fn is_awaited(kind: &str, object: Option<&Value>) -> bool {
    let Some(object) = object else {
        return true;
    };
    let text = |field: &str| object.pointer(field).and_then(Value::as_str);
    match kind {
        "PersistentVolumeClaim" => {
            let grows = text("/status/allocatedResourceStatuses/storage");
            // What the cluster's part of the growth has ended for is the node's to go on with.
            let ours = grows.is_some_and(|how| how.starts_with("NodeResize"));
            text("/status/phase") != Some("Bound")
                || (ours && grows != Some("NodeResizeInfeasible"))
        }
        "PersistentVolume" => text("/status/phase") != Some("Bound"),
        "VolumeAttachment" => {
            object.pointer("/status/attached") != Some(&Value::Bool(true))
                || text("/metadata/deletionTimestamp").is_some()
        }
        _ => false,
    }
}

/// The pause before it is got again, when it has been awaited so many times in a row.
pub fn pause(awaited: Option<u32>) -> Duration {
    match awaited {
        None => SETTLED,
        Some(times) => {
            let doubled = SHORTEST.saturating_mul(1 << times.min(8));
            doubled.min(LONGEST)
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_awaited_is_asked_for_often() {
        let bound = json!({"status": {"phase": "Bound"}});
        let pending = json!({"status": {"phase": "Pending"}});
        let attached = json!({"status": {"attached": true}});
        let growing = json!({"status": {"phase": "Bound",
            "allocatedResourceStatuses": {"storage": "NodeResizePending"}}});
        for (kind, object, awaited) in [
            ("PersistentVolumeClaim", Some(&bound), false),
            ("PersistentVolumeClaim", Some(&pending), true),
            ("PersistentVolumeClaim", None, true),
            ("PersistentVolumeClaim", Some(&growing), true),
            ("VolumeAttachment", Some(&attached), false),
            ("VolumeAttachment", Some(&pending), true),
            ("ServiceAccount", Some(&pending), false),
        ] {
            assert_eq!(is_awaited(kind, object), awaited, "{kind} {object:?}");
        }
        let pauses: Vec<u128> = (0..6).map(|n| pause(Some(n)).as_millis()).collect();
        assert_eq!(pauses, [100, 200, 400, 800, 1600, 2000]);
        assert_eq!(pause(Some(99)), LONGEST);
        assert_eq!(pause(None), SETTLED);
    }
}
