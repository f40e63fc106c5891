//! `SetObjectDefaults_Pod` of `k8s.io/kubernetes/pkg/apis/core/v1`, on the JSON of a pod.
//!
//! Values of another type than the API's are left as they are: the dump rejects them.

use polylet_model::image;
use serde_json::{Map, Value, json};

use super::error::DumpError;
use super::layout::GoLayout;
use super::pod_level;
use super::quantity::GoQuantity;

type Object = Map<String, Value>;

/// Sets the defaults of a pod.
pub(super) fn apply(pod: &mut Value, layout: &GoLayout) -> Result<(), DumpError> {
    let Value::Object(root) = pod else {
        return Ok(());
    };
    if is_nil(root, "spec") {
        root.insert("spec".into(), json!({}));
    }
    if let Some(spec) = object(root, "spec") {
        default_pod(spec)?;
        default_spec(spec);
        for volume in items(spec, "volumes") {
            default_volume(volume, layout)?;
        }
        for list in ["initContainers", "containers", "ephemeralContainers"] {
            for container in items(spec, list) {
                default_container(container)?;
            }
        }
        round_list(spec, "overhead")?;
        if let Some(resources) = object(spec, "resources") {
            round_resources(resources)?;
        }
    }
    if let Some(status) = object(root, "status") {
        for list in [
            "initContainerStatuses",
            "containerStatuses",
            "ephemeralContainerStatuses",
        ] {
            for container in items(status, list) {
                round_status(container)?;
            }
        }
        round_status(status)?;
    }
    Ok(())
}

/// `SetDefaults_Pod`.
fn default_pod(spec: &mut Object) -> Result<(), DumpError> {
    for list in ["containers", "initContainers"] {
        for container in items(spec, list) {
            if let Some(resources) = object(container, "resources") {
                requests_from_limits(resources);
            }
        }
    }
    pod_level::apply(spec)?;
    if_nil(spec, "enableServiceLinks", json!(true));
    if spec.get("hostNetwork").and_then(Value::as_bool) == Some(true) {
        for list in ["containers", "initContainers"] {
            for port in items(spec, list).flat_map(|container| items(container, "ports")) {
                let container_port = port.get("containerPort").cloned().unwrap_or_default();
                if_zero(port, "hostPort", container_port);
            }
        }
    }
    Ok(())
}

fn requests_from_limits(resources: &mut Object) {
    let Some(Value::Object(limits)) = resources.get("limits").cloned() else {
        return;
    };
    if_nil(resources, "requests", json!({}));
    if let Some(requests) = object(resources, "requests") {
        for (name, limit) in limits {
            requests.entry(name).or_insert(limit);
        }
    }
}

/// `SetDefaults_PodSpec`.
fn default_spec(spec: &mut Object) {
    if_zero(spec, "dnsPolicy", json!("ClusterFirst"));
    if_zero(spec, "restartPolicy", json!("Always"));
    if_nil(spec, "securityContext", json!({}));
    if_nil(spec, "terminationGracePeriodSeconds", json!(30));
    if_zero(spec, "schedulerName", json!("default-scheduler"));
}

fn default_volume(volume: &mut Object, layout: &GoLayout) -> Result<(), DumpError> {
    const MODE: i32 = 0o644;
    let sources = layout.fields("core.VolumeSource");
    let keys = || sources.iter().filter_map(|source| source.key);
    if keys().all(|key| is_nil(volume, key)) {
        volume.insert("emptyDir".into(), json!({}));
    }
    if let Some(image) = object(volume, "image") {
        default_pull_policy(image, "reference", "pullPolicy");
    }
    if let Some(host_path) = object(volume, "hostPath") {
        if_nil(host_path, "type", json!(""));
    }
    for source in ["secret", "configMap", "downwardAPI", "projected"] {
        if let Some(source) = object(volume, source) {
            if_nil(source, "defaultMode", json!(MODE));
        }
    }
    if let Some(downward) = object(volume, "downwardAPI") {
        default_downward_items(downward);
    }
    if let Some(projected) = object(volume, "projected") {
        for source in items(projected, "sources") {
            if let Some(downward) = object(source, "downwardAPI") {
                default_downward_items(downward);
            }
            if let Some(token) = object(source, "serviceAccountToken") {
                if_nil(token, "expirationSeconds", json!(3600));
            }
        }
    }
    if let Some(template) =
        object(volume, "ephemeral").and_then(|ephemeral| object(ephemeral, "volumeClaimTemplate"))
    {
        if_nil(template, "spec", json!({}));
        if let Some(spec) = object(template, "spec") {
            if_nil(spec, "volumeMode", json!("Filesystem"));
            if let Some(resources) = object(spec, "resources") {
                round_resources(resources)?;
            }
        }
    }
    default_former_plugins(volume);
    Ok(())
}

/// Volumes of former in-tree plugins.
fn default_former_plugins(volume: &mut Object) {
    let texts: [(&str, &[(&str, &str)]); 3] = [
        ("iscsi", &[("iscsiInterface", "default")]),
        (
            "rbd",
            &[
                ("pool", "rbd"),
                ("user", "admin"),
                ("keyring", "/etc/ceph/keyring"),
            ],
        ),
        (
            "scaleIO",
            &[("storageMode", "ThinProvisioned"), ("fsType", "xfs")],
        ),
    ];
    for (source, defaults) in texts {
        if let Some(source) = object(volume, source) {
            for (key, value) in defaults {
                if_zero(source, key, json!(value));
            }
        }
    }
    if let Some(disk) = object(volume, "azureDisk") {
        if_nil(disk, "cachingMode", json!("ReadWrite"));
        if_nil(disk, "fsType", json!("ext4"));
        if_nil(disk, "readOnly", json!(false));
        if_nil(disk, "kind", json!("Shared"));
    }
}

fn default_downward_items(downward: &mut Object) {
    for item in items(downward, "items") {
        default_field_ref(item);
    }
}

/// The default of the object's field selector, if it has one.
fn default_field_ref(from: &mut Object) {
    if let Some(field) = object(from, "fieldRef") {
        if_zero(field, "apiVersion", json!("v1"));
    }
}

fn default_container(container: &mut Object) -> Result<(), DumpError> {
    default_pull_policy(container, "image", "imagePullPolicy");
    if_zero(
        container,
        "terminationMessagePath",
        json!("/dev/termination-log"),
    );
    if_zero(container, "terminationMessagePolicy", json!("File"));
    for port in items(container, "ports") {
        if_zero(port, "protocol", json!("TCP"));
    }
    for env in items(container, "env") {
        if let Some(from) = object(env, "valueFrom") {
            default_field_ref(from);
            if let Some(file) = object(from, "fileKeyRef") {
                if_nil(file, "optional", json!(false));
            }
        }
    }
    if let Some(resources) = object(container, "resources") {
        round_resources(resources)?;
    }
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(probe) = object(container, probe) {
            default_probe(probe);
        }
    }
    if let Some(lifecycle) = object(container, "lifecycle") {
        for hook in ["postStart", "preStop"] {
            if let Some(hook) = object(lifecycle, hook) {
                default_http_get(hook);
            }
        }
    }
    Ok(())
}

fn default_pull_policy(of: &mut Object, reference: &str, key: &str) {
    let reference = of.get(reference).and_then(Value::as_str);
    let policy = image::default_pull_policy(reference.unwrap_or_default());
    if_zero(of, key, json!(policy));
}

fn default_probe(probe: &mut Object) {
    if_zero(probe, "timeoutSeconds", json!(1));
    if_zero(probe, "periodSeconds", json!(10));
    if_zero(probe, "successThreshold", json!(1));
    if_zero(probe, "failureThreshold", json!(3));
    default_http_get(probe);
    if let Some(grpc) = object(probe, "grpc") {
        if_nil(grpc, "service", json!(""));
    }
}

fn default_http_get(handler: &mut Object) {
    if let Some(http) = object(handler, "httpGet") {
        if_zero(http, "path", json!("/"));
        if_zero(http, "scheme", json!("HTTP"));
    }
}

/// Resources in a status, of a container or of the pod.
fn round_status(status: &mut Object) -> Result<(), DumpError> {
    round_list(status, "allocatedResources")?;
    match object(status, "resources") {
        Some(resources) => round_resources(resources),
        None => Ok(()),
    }
}

fn round_resources(resources: &mut Object) -> Result<(), DumpError> {
    round_list(resources, "limits")?;
    round_list(resources, "requests")
}

/// `SetDefaults_ResourceList`.
fn round_list(of: &mut Object, key: &str) -> Result<(), DumpError> {
    let Some(list) = object(of, key) else {
        return Ok(());
    };
    for value in list.values_mut() {
        let rounded = GoQuantity::from_json(value).and_then(|mut quantity| {
            quantity.round_up()?;
            Some(quantity)
        });
        *value = rounded.ok_or_else(GoQuantity::invalid)?.to_json();
    }
    Ok(())
}

/// The object under a key.
pub(super) fn object<'a>(of: &'a mut Object, key: &str) -> Option<&'a mut Object> {
    of.get_mut(key)?.as_object_mut()
}

/// The objects in the list under a key. Null in a list is an object without fields.
fn items<'a>(of: &'a mut Object, key: &str) -> impl Iterator<Item = &'a mut Object> + use<'a> {
    let list = of.get_mut(key).and_then(Value::as_array_mut);
    list.into_iter().flatten().filter_map(|item| {
        if item.is_null() {
            *item = json!({});
        }
        item.as_object_mut()
    })
}

fn is_nil(of: &Object, key: &str) -> bool {
    of.get(key).is_none_or(Value::is_null)
}

/// Sets a pointer, slice or map that is nil.
fn if_nil(of: &mut Object, key: &str, default: Value) {
    if is_nil(of, key) {
        of.insert(key.to_owned(), default);
    }
}

/// Sets a string or number that is empty or zero.
fn if_zero(of: &mut Object, key: &str, default: Value) {
    let is_zero = match of.get(key) {
        None | Some(Value::Null) => true,
        Some(Value::String(text)) => text.is_empty(),
        Some(Value::Number(number)) => number.as_f64() == Some(0.0),
        Some(_) => false,
    };
    if is_zero {
        of.insert(key.to_owned(), default);
    }
}
