//! What containers have: what the runtime says, over what was allocated.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container as Spec, ContainerStatus, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::{Container, ContainerPhase, StatusFacts, state};
use crate::Amounts;
use crate::quantity::Amount;

/// Below these the kernel makes no difference.
const LEAST_CPU_LIMIT: i64 = 10;
const LEAST_CPU_REQUEST: i64 = 2;

/// What the runtime says that a container has; absent where it says nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Actual {
    /// Thousandths of a CPU.
    pub cpu_request: Option<i64>,
    /// Thousandths of a CPU.
    pub cpu_limit: Option<i64>,
    /// Bytes.
    pub memory_limit: Option<i64>,
}

impl Actual {
    /// In the kernel's terms: weight, and microseconds in each period.
    pub fn of_kernel(shares: i64, quota: i64, period: i64, memory: i64) -> Option<Self> {
        let positive = |value: i64| (value > 0).then_some(value);
        let rounded_up = |shares: i64| shares.saturating_mul(1000).saturating_add(1023) / 1024;
        let of_quota = |period: i64| positive(quota.saturating_mul(1000) / period);
        let actual = Actual {
            cpu_request: positive(shares).filter(|s| *s >= 2).map(rounded_up),
            cpu_limit: positive(period).and_then(of_quota),
            memory_limit: positive(memory),
        };
        (actual != Actual::default()).then_some(actual)
    }
}

/// `resources` of a container that the runtime holds.
pub(super) fn of(
    facts: &StatusFacts<'_>,
    spec: &Spec,
    container: &Container,
    old: Option<&ContainerStatus>,
) -> ResourceRequirements {
    let mut told = spec.resources.clone().unwrap_or_default();
    if container.phase != ContainerPhase::Running {
        return told;
    }
    let id = state::full_id(facts, container);
    let old = old.filter(|old| state::is_running(old) && old.container_id.as_ref() == Some(&id));
    let before = old.and_then(|old| old.resources.as_ref());
    // Not yet what was allocated, where a resize is under way.
    let had = facts.resizing.and_then(|r| r.actual.get(&spec.name));
    let had = had.map(|had| Amounts::of(None, had));
    let actual = container.actual.or_else(|| {
        had.map(|had| Actual {
            cpu_request: Some(had.cpu_request),
            cpu_limit: Some(had.cpu_limit),
            memory_limit: Some(had.memory_limit),
        })
    });
    if let Some(limits) = &mut told.limits {
        let old = before.and_then(|before| before.limits.as_ref());
        let cpu = actual.and_then(|a| a.cpu_limit);
        let cpu = cpu.map(Amount::from_millis);
        put(limits, "cpu", cpu, LEAST_CPU_LIMIT, old);
        let memory = actual.and_then(|a| a.memory_limit);
        put(limits, "memory", memory.map(Amount::from_units), 0, old);
    }
    if let Some(requests) = &mut told.requests {
        let old = before.and_then(|before| before.requests.as_ref());
        let cpu = actual.and_then(|a| a.cpu_request);
        let cpu = cpu.map(Amount::from_millis);
        put(requests, "cpu", cpu, LEAST_CPU_REQUEST, old);
        // The kernel knows nothing of memory requests.
        let memory = had.map(|had| Amount::from_units(had.memory_request));
        if let Some(memory) = memory {
            put(requests, "memory", Some(memory), 0, None);
        }
    }
    told
}

type List = BTreeMap<String, Quantity>;

/// Puts what is so in place of what was allocated; what nobody tells stays as it was told.
fn put(list: &mut List, name: &str, actual: Option<Amount>, least: i64, old: Option<&List>) {
    let given = crate::quantity::get(Some(list), name);
    match actual {
        // As it was written, where it is the same amount.
        Some(actual) if given == Some(actual) => {}
        Some(actual) => {
            let few = |amount: Amount| amount.millis() <= least;
            if name == "cpu" && few(actual) && few(given.unwrap_or_default()) {
                return;
            }
            if actual.is_zero() {
                return;
            }
            let text = if name == "memory" {
                actual.to_binary()
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
    fn kernels_terms() {
        for (kernel, is) in [
            (
                (102, 50_000, 100_000, 64 << 20),
                (Some(100), Some(500), Some(64 << 20)),
            ),
            ((2, -1, 100_000, 0), (Some(2), None, None)),
            ((1024, 0, 0, 0), (Some(1000), None, None)),
        ] {
            let (shares, quota, period, memory) = kernel;
            let actual = Actual::of_kernel(shares, quota, period, memory).unwrap();
            assert_eq!(
                (actual.cpu_request, actual.cpu_limit, actual.memory_limit),
                is
            );
        }
        assert_eq!(Actual::of_kernel(0, 0, 0, 0), None);
    }

    #[test]
    fn small_amounts_are_told_as_they_were_allocated() {
        let list = |cpu: &str| List::from([("cpu".to_owned(), Quantity(cpu.to_owned()))]);
        for (given, actual, told) in [
            ("5m", Some(10), "5m"),
            ("0.5", Some(500), "0.5"),
            ("500m", Some(400), "400m"),
            ("500m", None, "300m"),
        ] {
            let mut limits = list(given);
            let old = list("300m");
            put(
                &mut limits,
                "cpu",
                actual.map(Amount::from_millis),
                10,
                Some(&old),
            );
            assert_eq!(limits["cpu"].0, told, "{given} {actual:?}");
        }
    }
}
