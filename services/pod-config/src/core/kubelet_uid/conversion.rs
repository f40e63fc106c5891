//! The conversion of a pod from `v1` to the internal version, where it is more than a copy.

use serde_json::{Map, Value, json};

/// Annotations of init containers from before they were fields.
const INIT_CONTAINER_ANNOTATIONS: [&str; 4] = [
    "pod.beta.kubernetes.io/init-containers",
    "pod.alpha.kubernetes.io/init-containers",
    "pod.beta.kubernetes.io/init-container-statuses",
    "pod.alpha.kubernetes.io/init-container-statuses",
];

/// Fields of the pod that the internal version has in the security context.
const HOST_NAMESPACES: [&str; 5] = [
    "hostNetwork",
    "hostPID",
    "hostIPC",
    "shareProcessNamespace",
    "hostUsers",
];

/// Converts a pod with defaults.
pub(super) fn apply(pod: &mut Value) {
    if let Value::Object(root) = pod {
        // The internal version has no name.
        root.remove("apiVersion");
        root.remove("kind");
    }
    if let Some(Value::Object(annotations)) = pod.pointer_mut("/metadata/annotations") {
        annotations.retain(|key, _| !INIT_CONTAINER_ANNOTATIONS.contains(&key.as_str()));
    }
    if let Some(Value::Object(spec)) = pod.get_mut("spec") {
        convert_spec(spec);
    }
    if let Some(Value::Object(status)) = pod.get_mut("status") {
        convert_status(status);
    }
}

fn convert_spec(spec: &mut Map<String, Value>) {
    let grace = spec.get("terminationGracePeriodSeconds");
    if grace.and_then(Value::as_i64).is_some_and(|grace| grace < 0) {
        spec.insert("terminationGracePeriodSeconds".into(), json!(1));
    }
    if text(spec, "serviceAccountName").is_empty()
        && let Some(deprecated) = spec.get("serviceAccount").cloned()
    {
        spec.insert("serviceAccountName".into(), deprecated);
    }
    let own: Vec<(&str, Value)> = HOST_NAMESPACES
        .into_iter()
        .map(|key| (key, spec.get(key).cloned().unwrap_or_default()))
        .collect();
    if let Some(Value::Object(context)) = spec.get_mut("securityContext") {
        for (key, value) in own {
            context.insert(key.into(), value);
        }
    }
}

/// The first of several addresses is also in a field of its own, which wins.
fn convert_status(status: &mut Map<String, Value>) {
    let ip = text(status, "podIP").to_owned();
    let first = status
        .get("podIPs")
        .and_then(|ips| ips.get(0))
        .map(|first| first.get("ip").and_then(Value::as_str).unwrap_or_default());
    if !ip.is_empty() && first != Some(ip.as_str()) {
        status.insert("podIPs".into(), json!([{ "ip": ip }]));
    }
}

fn text<'a>(map: &'a Map<String, Value>, key: &str) -> &'a str {
    map.get(key).and_then(Value::as_str).unwrap_or_default()
}
