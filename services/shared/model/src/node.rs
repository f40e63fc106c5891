//! A node's capacity, allocatable resources, addresses, labels and version.

use core::net::IpAddr;
use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{NodeStatus, PodSpec};

use crate::quantity::Amount;
use crate::resources::{self, is_huge_pages};

/// The resource that counts pods.
pub const PODS: &str = "pods";
/// The resource of container layers, logs and emptyDirs on disk.
pub const EPHEMERAL_STORAGE: &str = "ephemeral-storage";

/// Resources by name, in the units that the scheduler compares: thousandths of a CPU, whole units of
/// all others.
pub type ResourceList = BTreeMap<String, i64>;

/// Quantities in a configuration: by resource (`systemReserved`), or by eviction signal.
type ConfiguredList = BTreeMap<String, String>;

/// An amount in the unit of its resource.
pub fn resource_value(name: &str, amount: Amount) -> i64 {
    if name == "cpu" {
        amount.millis()
    } else {
        amount.value()
    }
}

/// The requests of a pod, including its overhead.
pub fn requests(spec: &PodSpec) -> ResourceList {
    resources::pod_requests(spec)
        .into_iter()
        .map(|(name, amount)| {
            let value = resource_value(&name, amount);
            (name, value)
        })
        .collect()
}

/// A node's capacity less the given reservations, at least zero.
pub fn without_reserved(capacity: &ResourceList, reserved: &[&ConfiguredList]) -> ResourceList {
    let reserved = |name: &str| -> i64 {
        let amounts = reserved
            .iter()
            .filter_map(|list| Amount::parse(list.get(name)?).ok());
        resource_value(name, amounts.sum())
    };
    capacity
        .iter()
        .map(|(name, all)| (name.clone(), all.saturating_sub(reserved(name)).max(0)))
        .collect()
}

/// A node's allocatable resources: capacity less reservations and hard eviction thresholds. Memory
/// reserved as huge pages is not available as other memory.
pub fn allocatable(
    capacity: &ResourceList,
    reserved: &[&ConfiguredList],
    eviction_hard: &ConfiguredList,
) -> ResourceList {
    let mut allocatable = without_reserved(capacity, reserved);
    for (name, signal) in [
        ("memory", "memory.available"),
        (EPHEMERAL_STORAGE, "nodefs.available"),
    ] {
        let (Some(total), Some(threshold)) = (capacity.get(name), eviction_hard.get(signal)) else {
            continue;
        };
        let reservation = hard_eviction_reservation(threshold, *total);
        if let Some(value) = allocatable.get_mut(name) {
            *value = value.saturating_sub(reservation).max(0);
        }
    }
    let huge_pages: i64 = capacity
        .iter()
        .filter(|(name, _)| is_huge_pages(name))
        .map(|(_, bytes)| *bytes)
        .sum();
    if let Some(memory) = allocatable.get_mut("memory") {
        *memory = memory.saturating_sub(huge_pages).max(0);
    }
    allocatable
}

/// The reservation of a hard eviction threshold, absolute or in percent of the total.
fn hard_eviction_reservation(threshold: &str, total: i64) -> i64 {
    match threshold.strip_suffix('%').map(str::parse::<f64>) {
        Some(Ok(percent)) => (total as f64 * (percent / 100.0)) as i64,
        Some(Err(_)) => 0,
        None => Amount::parse(threshold).map_or(0, Amount::value),
    }
}

/// The host IPs of a node's pods: the first internal, else external address, and the first one of the
/// other IP family.
pub fn host_ips(status: &NodeStatus) -> Vec<String> {
    let all = status.addresses.as_deref().unwrap_or_default();
    let of_type = |type_: &'static str| {
        let addresses = all.iter().filter(move |address| address.type_ == type_);
        addresses.filter_map(|address| address.address.parse::<IpAddr>().ok())
    };
    let ips: Vec<IpAddr> = of_type("InternalIP").chain(of_type("ExternalIP")).collect();
    let Some(first) = ips.first() else {
        return Vec::new();
    };
    let second = ips.iter().find(|ip| ip.is_ipv6() != first.is_ipv6());
    let both = [Some(first), second].into_iter().flatten();
    both.map(ToString::to_string).collect()
}

/// The Kubernetes release whose kubelet this build follows.
pub const KUBERNETES_VERSION: &str = "1.36.3";

/// The kubelet version that a node reports. Version comparisons see the Kubernetes release; the build
/// metadata after the plus sign, as distributions use it, names Polylet.
pub fn kubelet_version(build: &str) -> String {
    format!("v{KUBERNETES_VERSION}+polylet.{build}")
}

/// Labels that a node corrects on an existing Node object, as upstream. All others are set only when
/// the object is created.
pub const DEFAULT_LABELS: [&str; 11] = [
    "kubernetes.io/hostname",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "node.kubernetes.io/instance-type",
    "beta.kubernetes.io/instance-type",
    "kubernetes.io/os",
    "kubernetes.io/arch",
    "beta.kubernetes.io/os",
    "beta.kubernetes.io/arch",
];

/// The labels of a new Node object: the default ones and the configured ones.
pub fn initial_labels(
    name: &str,
    architecture: &str,
    configured: &BTreeMap<String, String>,
) -> BTreeMap<String, String> {
    let default = [
        ("kubernetes.io/hostname", name),
        ("kubernetes.io/os", "linux"),
        ("kubernetes.io/arch", architecture),
        ("beta.kubernetes.io/os", "linux"),
        ("beta.kubernetes.io/arch", architecture),
    ];
    let mut labels: BTreeMap<String, String> = default
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into();
    labels.extend(configured.clone());
    labels
}

/// The maximum of pods: `maxPods`, and at most `podsPerCore` per core if that is set.
pub fn pod_capacity(max_pods: i32, pods_per_core: i32, cores: u64) -> i64 {
    let max_pods = i64::from(max_pods.max(0));
    if pods_per_core <= 0 {
        return max_pods;
    }
    let cores = i64::try_from(cores).unwrap_or(i64::MAX);
    max_pods.min(i64::from(pods_per_core).saturating_mul(cores))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(entries: &[(&str, &str)]) -> ConfiguredList {
        entries
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect()
    }

    fn capacity() -> ResourceList {
        [
            ("cpu", 4000),
            ("memory", 10 << 30),
            (EPHEMERAL_STORAGE, 1000),
            ("hugepages-2Mi", 1 << 30),
            (PODS, 110),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into()
    }

    #[test]
    fn reservations_thresholds_and_huge_pages_are_not_allocatable() {
        let kube = list(&[("cpu", "500m"), ("memory", "1Gi")]);
        let system = list(&[("cpu", "0.25"), ("ephemeral-storage", "100")]);
        let hard = list(&[("memory.available", "1Gi"), ("nodefs.available", "10%")]);
        let result = allocatable(&capacity(), &[&kube, &system], &hard);
        assert_eq!(result["cpu"], 3250);
        assert_eq!(result["memory"], 7 << 30);
        assert_eq!(result[EPHEMERAL_STORAGE], 800);
        assert_eq!(result["hugepages-2Mi"], 1 << 30);
        assert_eq!(result[PODS], 110);
        assert_eq!(without_reserved(&capacity(), &[&kube])["memory"], 9 << 30);
        let all = list(&[("cpu", "100")]);
        assert_eq!(
            allocatable(&capacity(), &[&all], &ConfiguredList::new())["cpu"],
            0
        );
    }

    #[test]
    fn host_ips_have_one_address_per_family() {
        let status = |addresses: &[(&str, &str)]| {
            let all =
                addresses
                    .iter()
                    .map(|(kind, address)| k8s_openapi::api::core::v1::NodeAddress {
                        type_: (*kind).to_owned(),
                        address: (*address).to_owned(),
                    });
            NodeStatus {
                addresses: Some(all.collect()),
                ..NodeStatus::default()
            }
        };
        type AddressList = &'static [(&'static str, &'static str)];
        let cases: [(AddressList, &[&str]); 4] = [
            (&[("Hostname", "192.0.2.1")], &[]),
            (
                &[("ExternalIP", "203.0.113.1"), ("InternalIP", "192.0.2.1")],
                &["192.0.2.1"],
            ),
            (
                &[
                    ("InternalIP", "192.0.2.1"),
                    ("InternalIP", "192.0.2.2"),
                    ("ExternalIP", "2001:db8::1"),
                ],
                &["192.0.2.1", "2001:db8::1"],
            ),
            (
                &[("InternalIP", "no"), ("ExternalIP", "203.0.113.1")],
                &["203.0.113.1"],
            ),
        ];
        for (addresses, expected) in cases {
            assert_eq!(host_ips(&status(addresses)), expected, "{addresses:?}");
        }
    }

    #[test]
    fn pods_per_core_lowers_max_pods() {
        assert_eq!(pod_capacity(110, 0, 2), 110);
        assert_eq!(pod_capacity(110, 10, 2), 20);
        assert_eq!(pod_capacity(110, 100, 2), 110);
    }
}
