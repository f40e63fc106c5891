//! The resources of containers in the status: as the runtime reports them, else as allocated.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, ContainerStatus, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::{ContainerPhase, RuntimeContainer, StatusInputs, state};
use crate::ResizableResources;
use crate::quantity::Amount;

/// The kernel rounds lower CPU limits and requests up to these, in thousandths.
const MIN_CPU_LIMIT: i64 = 10;
const MIN_CPU_REQUEST: i64 = 2;

/// The actual resources of a container; `None` where the runtime does not report them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ActualResources {
    /// The CPU request in thousandths.
    pub cpu_request: Option<i64>,
    /// The CPU limit in thousandths.
    pub cpu_limit: Option<i64>,
    /// The memory limit in bytes.
    pub memory_limit: Option<i64>,
}

impl ActualResources {
    /// Converts the kernel's values: shares, quota and period in microseconds, and bytes.
    pub fn from_kernel(shares: i64, quota: i64, period: i64, memory: i64) -> Option<Self> {
        let positive = |value: i64| (value > 0).then_some(value);
        let to_millis = |shares: i64| shares.saturating_mul(1000).saturating_add(1023) / 1024;
        let limit_of = |period: i64| positive(quota.saturating_mul(1000) / period);
        let actual = ActualResources {
            cpu_request: positive(shares).filter(|s| *s >= 2).map(to_millis),
            cpu_limit: positive(period).and_then(limit_of),
            memory_limit: positive(memory),
        };
        (actual != ActualResources::default()).then_some(actual)
    }
}

/// `resources` of a container in the runtime.
pub(super) fn reported(
    facts: &StatusInputs<'_>,
    spec: &Container,
    container: &RuntimeContainer,
    previous: Option<&ContainerStatus>,
) -> ResourceRequirements {
    let mut reported = spec.resources.clone().unwrap_or_default();
    if container.phase != ContainerPhase::Running {
        return reported;
    }
    let id = state::container_id(facts, container);
    let previous = previous
        .filter(|it| state::is_running(it) && it.container_id.as_ref() == Some(&id))
        .and_then(|it| it.resources.as_ref());
    // While a resize is being applied, the container has not got the allocated resources yet.
    let present = facts
        .resize_in_progress
        .and_then(|r| r.actual.get(&spec.name));
    let present = present.map(|it| ResizableResources::new(None, it));
    let actual = container.actual.or_else(|| {
        present.map(|present| ActualResources {
            cpu_request: Some(present.cpu_request),
            cpu_limit: Some(present.cpu_limit),
            memory_limit: Some(present.memory_limit),
        })
    });
    if let Some(limits) = &mut reported.limits {
        let old = previous.and_then(|previous| previous.limits.as_ref());
        let cpu = actual.and_then(|a| a.cpu_limit);
        let cpu = cpu.map(Amount::from_millis);
        set_actual(limits, "cpu", cpu, MIN_CPU_LIMIT, old);
        let memory = actual.and_then(|a| a.memory_limit);
        set_actual(limits, "memory", memory.map(Amount::from_units), 0, old);
    }
    if let Some(requests) = &mut reported.requests {
        let old = previous.and_then(|previous| previous.requests.as_ref());
        let cpu = actual.and_then(|a| a.cpu_request);
        let cpu = cpu.map(Amount::from_millis);
        set_actual(requests, "cpu", cpu, MIN_CPU_REQUEST, old);
        // The kernel has no memory requests.
        let memory = present.map(|present| Amount::from_units(present.memory_request));
        if let Some(memory) = memory {
            set_actual(requests, "memory", Some(memory), 0, None);
        }
    }
    reported
}

type QuantityList = BTreeMap<String, Quantity>;

/// Replaces the allocated amount by the actual one; without one, by that of the previous status. CPU
/// amounts up to `min` are not distinguished.
fn set_actual(
    list: &mut QuantityList,
    name: &str,
    actual: Option<Amount>,
    min: i64,
    old: Option<&QuantityList>,
) {
    let allocated = crate::quantity::parse_entry(Some(list), name);
    match actual {
        // Keeps the form in the manifest if the amount is the same.
        Some(actual) if allocated == Some(actual) => {}
        Some(actual) => {
            let is_minimal = |amount: Amount| amount.millis() <= min;
            if name == "cpu" && is_minimal(actual) && is_minimal(allocated.unwrap_or_default()) {
                return;
            }
            if actual.is_zero() {
                return;
            }
            let text = if name == "memory" {
                actual.to_stored_binary()
            } else {
                actual.to_decimal()
            };
            list.insert(name.to_owned(), Quantity(text));
        }
        None => {
            if let Some(old) = old.and_then(|old| old.get(name)) {
                list.insert(name.to_owned(), old.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conversion_of_kernel_values() {
        for (kernel, expected) in [
            (
                (102, 50_000, 100_000, 64 << 20),
                (Some(100), Some(500), Some(64 << 20)),
            ),
            ((2, -1, 100_000, 0), (Some(2), None, None)),
            ((1024, 0, 0, 0), (Some(1000), None, None)),
        ] {
            let (shares, quota, period, memory) = kernel;
            let actual = ActualResources::from_kernel(shares, quota, period, memory).unwrap();
            assert_eq!(
                (actual.cpu_request, actual.cpu_limit, actual.memory_limit),
                expected
            );
        }
        assert_eq!(ActualResources::from_kernel(0, 0, 0, 0), None);
    }

    #[test]
    fn small_and_unknown_amounts_keep_their_form() {
        let list = |cpu: &str| QuantityList::from([("cpu".to_owned(), Quantity(cpu.to_owned()))]);
        for (allocated, actual, published) in [
            ("5m", Some(10), "5m"),
            ("0.5", Some(500), "0.5"),
            ("500m", Some(400), "400m"),
            ("500m", None, "300m"),
        ] {
            let mut limits = list(allocated);
            let old = list("300m");
            set_actual(
                &mut limits,
                "cpu",
                actual.map(Amount::from_millis),
                10,
                Some(&old),
            );
            assert_eq!(limits["cpu"].0, published, "{allocated} {actual:?}");
        }
    }
}
