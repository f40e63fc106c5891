//! The status message of an evicted pod.

use super::rank::{Candidate, ContainerUsage};
use super::signal::{EvictionResource, Observation, Signal};
use super::threshold::Threshold;

/// Upstream's message: the resource, the threshold and the available amount, then each container
/// whose usage is above its request.
pub(crate) fn evicted(
    threshold: &Threshold,
    observation: Option<Observation>,
    pod: &Candidate,
) -> String {
    let resource = threshold.signal.resource();
    let mut text = format!("The node was low on resource: {resource}. ");
    if let Some(observation) = observation {
        let bound = threshold.value.resolve(observation.capacity);
        text.push_str(&format!(
            "Threshold quantity: {}, available: {}. ",
            quantity(threshold.signal, bound),
            quantity(threshold.signal, observation.available)
        ));
    }
    for container in &pod.containers {
        if let Some(line) = over_request(resource, container) {
            text.push_str(&line);
        }
    }
    text
}

fn over_request(resource: EvictionResource, container: &ContainerUsage) -> Option<String> {
    let (used, request) = match resource {
        EvictionResource::Memory => (container.memory, container.memory_request),
        EvictionResource::Disk => (container.storage, container.storage_request),
        EvictionResource::Inodes | EvictionResource::Pids => return None,
    };
    (used > request).then(|| {
        format!(
            "Container {} was using {}, request is {}, has larger consumption of {resource}. ",
            container.name,
            quantity(Signal::MemoryAvailable, used),
            if request == 0 {
                "0".to_owned()
            } else {
                quantity(Signal::MemoryAvailable, request)
            }
        )
    })
}

/// Bytes in the largest binary unit that divides them, at least Ki, as upstream prints usage.
pub(crate) fn quantity(signal: Signal, amount: u64) -> String {
    if !signal.is_bytes() {
        return amount.to_string();
    }
    const UNITS: [(&str, u32); 4] = [("Ti", 40), ("Gi", 30), ("Mi", 20), ("Ki", 10)];
    for (unit, shift) in UNITS {
        if amount != 0 && amount.is_multiple_of(1 << shift) {
            return format!("{}{unit}", amount >> shift);
        }
    }
    format!("{}Ki", amount.div_ceil(1024))
}
