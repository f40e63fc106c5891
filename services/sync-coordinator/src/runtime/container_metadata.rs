//! Labels and annotations of containers, from which later process instances know them.

use std::collections::HashMap;

use k8s_openapi::api::core::v1::Container;
use polylet_cri::labels::PodLabels;
use polylet_model::constants::{annotation, label};
use polylet_model::{Manifest, ResizableResources, hash};

use super::StepContext;
use crate::core::devices::PreparedDevices;

/// Labels that identify the container.
pub fn labels(context: &StepContext, spec: &Container) -> HashMap<String, String> {
    let pod = &context.pod;
    let mut labels = HashMap::new();
    PodLabels {
        uid: pod.uid.clone(),
        namespace: pod.namespace.clone(),
        name: pod.name.clone(),
    }
    .write(&mut labels);
    labels.insert(label::CONTAINER_NAME.to_owned(), spec.name.clone());
    labels
}

/// The resources that a container is created with.
pub fn requested_resources(manifest: &Manifest, spec: &Container) -> ResizableResources {
    let own = spec.resources.clone().unwrap_or_default();
    ResizableResources::new(manifest.spec().resources.as_ref(), &own)
}

/// Annotations with what later process instances need about a container without its manifest. They
/// replace those of its devices.
pub fn annotations(
    devices: &PreparedDevices,
    manifest: &Manifest,
    spec: &Container,
    attempt: u32,
    backoff_step: u32,
) -> HashMap<String, String> {
    let mut annotations: HashMap<_, _> = devices.annotations.clone().into_iter().collect();
    annotations.extend([
        (
            annotation::CONTAINER_HASH.to_owned(),
            hash::container_hash_annotation(spec),
        ),
        (annotation::RESTART_COUNT.to_owned(), attempt.to_string()),
        (
            annotation::TERMINATION_MESSAGE_PATH.to_owned(),
            spec.termination_message_path.clone().unwrap_or_default(),
        ),
        (
            annotation::TERMINATION_MESSAGE_POLICY.to_owned(),
            spec.termination_message_policy.clone().unwrap_or_default(),
        ),
        (
            annotation::BACK_OFF_STEP.to_owned(),
            backoff_step.to_string(),
        ),
        (
            annotation::POD_TERMINATION_GRACE_PERIOD.to_owned(),
            manifest.termination_grace().as_secs().to_string(),
        ),
    ]);
    if let Some(grace) = manifest.deletion_grace() {
        annotations.insert(
            annotation::POD_DELETION_GRACE_PERIOD.to_owned(),
            grace.as_secs().to_string(),
        );
    }
    let json = |value: Result<String, serde_json::Error>| value.ok();
    if let Some(text) = json(serde_json::to_string(&requested_resources(manifest, spec))) {
        annotations.insert(annotation::CREATED_RESOURCES.to_owned(), text);
    }
    if let Some(hook) = spec.lifecycle.as_ref().and_then(|l| l.pre_stop.as_ref())
        && let Some(text) = json(serde_json::to_string(hook))
    {
        annotations.insert(annotation::PRE_STOP_HANDLER.to_owned(), text);
    }
    if let Some(ports) = spec.ports.as_ref().filter(|p| !p.is_empty())
        && let Some(text) = json(serde_json::to_string(ports))
    {
        annotations.insert(annotation::PORTS.to_owned(), text);
    }
    annotations
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::runtime::test_manifest;

    #[test]
    fn annotations_of_devices_never_replace_those_of_the_agent() {
        let manifest = test_manifest(json!({"containers": [{"name": "a", "image": "a:1"}]}));
        let spec = &manifest.spec().containers[0];
        let hash = hash::container_hash_annotation(spec);
        let pairs = [
            ("example.com/key", "value"),
            (annotation::CONTAINER_HASH, "other"),
            (annotation::RESTART_COUNT, "9"),
        ];
        let pairs = pairs.map(|(key, value)| (key.to_owned(), value.to_owned()));
        let devices = PreparedDevices {
            annotations: pairs.into(),
            ..PreparedDevices::default()
        };
        let all = annotations(&devices, &manifest, spec, 2, 0);
        assert_eq!(all["example.com/key"], "value");
        assert_eq!(all[annotation::CONTAINER_HASH], hash);
        assert_eq!(all[annotation::RESTART_COUNT], "2");
        let without = annotations(&PreparedDevices::default(), &manifest, spec, 2, 0);
        assert_eq!(all.len(), without.len() + 1);
    }
}
