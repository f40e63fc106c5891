//! The status message of an evicted pod, and the annotations of its event.

use std::collections::BTreeMap;

use polylet_model::quantity::Amount;

use super::rank::{Candidate, ContainerUsage, Requested};
use super::signal::{EvictionResource, Observation};
use super::threshold::{Threshold, ThresholdValue};

/// Upstream's message and annotations: the resource, the threshold and the available amount, then the
/// pod and each container whose usage is above its request.
pub(crate) fn evicted(
    threshold: &Threshold,
    observation: Option<Observation>,
    pod: &Candidate,
) -> (String, BTreeMap<String, String>) {
    let resource = threshold.signal.resource();
    let mut text = format!("The node was low on resource: {resource}. ");
    if let Some(Observation {
        available,
        capacity,
    }) = observation
    {
        let quantity = match &threshold.value {
            ThresholdValue::Quantity(_, text) => text.clone(),
            value => binary(value.resolve(capacity)),
        };
        let available = match resource {
            EvictionResource::Memory | EvictionResource::Disk => binary(available),
            EvictionResource::Inodes | EvictionResource::Pids => decimal(available),
        };
        text.push_str(&format!(
            "Threshold quantity: {quantity}, available: {available}. "
        ));
    }
    let mut annotations = BTreeMap::new();
    // A pod that could not be measured is not blamed.
    let Some(usage) = pod.usage else {
        return (text, annotations);
    };
    let line = |kind: &str, name: &str, used: &str, request: &str| {
        format!(
            "{kind} {name} was using {used}, request is {request}, has larger consumption of {resource}. "
        )
    };
    if let Some(request) = pod
        .pod_level_memory
        .as_ref()
        .filter(|_| resource == EvictionResource::Memory)
    {
        let used = binary(usage.memory);
        text.push_str(&line("Pod", &pod.name, &used, &request.text));
        annotations.insert("offending_pod".to_owned(), pod.name.clone());
        annotations.insert("offending_pod_usage".to_owned(), used);
    }
    let (mut names, mut usages) = (Vec::new(), Vec::new());
    for container in &pod.containers {
        if let Some((used, request)) = over_request(resource, container) {
            let used = binary(used);
            text.push_str(&line("Container", &container.name, &used, request));
            names.push(container.name.as_str());
            usages.push(used);
        }
    }
    annotations.insert("offending_containers".to_owned(), names.join(","));
    annotations.insert("offending_containers_usage".to_owned(), usages.join(","));
    annotations.insert("starved_resource".to_owned(), resource.to_string());
    (text, annotations)
}

/// The usage and the request of a container that is above it.
fn over_request(resource: EvictionResource, container: &ContainerUsage) -> Option<(u64, &str)> {
    let (used, request): (Option<u64>, &Requested) = match resource {
        EvictionResource::Memory => (container.memory, &container.memory_request),
        EvictionResource::Disk => (container.storage, &container.storage_request),
        EvictionResource::Inodes | EvictionResource::Pids => return None,
    };
    let used = used.filter(|used| *used > request.bytes)?;
    Some((
        used,
        if request.text.is_empty() {
            "0"
        } else {
            &request.text
        },
    ))
}

fn amount(number: u64) -> Amount {
    Amount::from_units(i64::try_from(number).unwrap_or(i64::MAX))
}

fn binary(number: u64) -> String {
    amount(number).to_binary()
}

fn decimal(number: u64) -> String {
    amount(number).to_decimal()
}
