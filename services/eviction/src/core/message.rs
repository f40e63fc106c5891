//! What an evicted pod's status says.

use super::rank::{Candidate, ContainerUse};
use super::signal::{Level, Signal, Starved};
use super::threshold::Threshold;

/// Upstream's message: the resource, the threshold and what was available, then each container that
/// used more than it had requested.
pub(crate) fn evicted(threshold: &Threshold, level: Option<Level>, pod: &Candidate) -> String {
    let starved = threshold.signal.starved();
    let mut text = format!("The node was low on resource: {starved}. ");
    if let Some(level) = level {
        let bound = threshold.amount.of(level.capacity);
        text.push_str(&format!(
            "Threshold quantity: {}, available: {}. ",
            quantity(threshold.signal, bound),
            quantity(threshold.signal, level.available)
        ));
    }
    for container in &pod.containers {
        if let Some(line) = over_request(starved, container) {
            text.push_str(&line);
        }
    }
    text
}

fn over_request(starved: Starved, container: &ContainerUse) -> Option<String> {
    let (used, request) = match starved {
        Starved::Memory => (container.memory, container.memory_request),
        Starved::Disk => (container.disk, container.disk_request),
        Starved::Inodes | Starved::Pids => return None,
    };
    (used > request).then(|| {
        format!(
            "Container {} was using {}, request is {}, has larger consumption of {starved}. ",
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

/// Bytes in the largest binary unit that divides them, at least Ki as upstream prints usage.
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
