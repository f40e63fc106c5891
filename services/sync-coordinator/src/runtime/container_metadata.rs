//! Labels and annotations of containers, from which later process instances know them.

use std::collections::HashMap;

use k8s_openapi::api::core::v1::Container;
use polylet_cri::labels::PodLabels;
use polylet_model::constants::{annotation, label};
use polylet_model::{Manifest, ResizableResources, hash};

use super::StepContext;

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

/// Annotations with what later process instances need about a container without its manifest.
pub fn annotations(
    manifest: &Manifest,
    spec: &Container,
    attempt: u32,
    backoff_step: u32,
) -> HashMap<String, String> {
    let mut annotations = HashMap::from([
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
