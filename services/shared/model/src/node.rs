//! What a node has, and how much of it pods may ask for.

use core::net::IpAddr;
use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{NodeStatus, PodSpec};

use crate::quantity::Amount;
use crate::resources::{self, is_huge_pages};

/// How many pods there may be, where resources are counted.
pub const PODS: &str = "pods";
/// Disk that a pod's containers, logs and emptyDirs fill.
pub const EPHEMERAL_STORAGE: &str = "ephemeral-storage";

/// Resources by name, in the numbers that the API compares: thousandths of a CPU,
/// whole units of all else.
pub type Numbers = BTreeMap<String, i64>;

/// A configured list of resources (`systemReserved`), or thresholds by signal.
type Settings = BTreeMap<String, String>;

/// An amount as a number of its resource.
pub fn number(name: &str, amount: Amount) -> i64 {
    if name == "cpu" {
        amount.millis()
    } else {
        amount.value()
    }
}

/// What a pod asks for, with its overhead.
pub fn requests(spec: &PodSpec) -> Numbers {
    resources::pod_requests(spec)
        .into_iter()
        .map(|(name, amount)| {
            let number = number(&name, amount);
            (name, number)
        })
        .collect()
}

/// What is left of a node's capacity after the given reservations; nothing is below zero.
pub fn without_reserved(capacity: &Numbers, reserved: &[&Settings]) -> Numbers {
    let held = |name: &str| -> i64 {
        let amounts = reserved
            .iter()
            .filter_map(|list| Amount::parse(list.get(name)?).ok());
        number(name, amounts.sum())
    };
    capacity
        .iter()
        .map(|(name, all)| (name.clone(), all.saturating_sub(held(name)).max(0)))
        .collect()
}

/// What pods may ask for together: capacity less reservations, less what the hard
/// eviction thresholds keep free; memory set aside as huge pages is no other memory.
pub fn allocatable(
    capacity: &Numbers,
    reserved: &[&Settings],
    eviction_hard: &Settings,
) -> Numbers {
    let mut left = without_reserved(capacity, reserved);
    for (name, signal) in [
        ("memory", "memory.available"),
        (EPHEMERAL_STORAGE, "nodefs.available"),
    ] {
        let (Some(whole), Some(threshold)) = (capacity.get(name), eviction_hard.get(signal)) else {
            continue;
        };
        let free = kept_free(threshold, *whole);
        if let Some(left) = left.get_mut(name) {
            *left = left.saturating_sub(free).max(0);
        }
    }
    let huge: i64 = capacity
        .iter()
        .filter(|(name, _)| is_huge_pages(name))
        .map(|(_, bytes)| *bytes)
        .sum();
    if let Some(memory) = left.get_mut("memory") {
        *memory = memory.saturating_sub(huge).max(0);
    }
    left
}

/// What a threshold, absolute or in percent of the whole, keeps free.
fn kept_free(threshold: &str, whole: i64) -> i64 {
    match threshold.strip_suffix('%').map(str::parse::<f64>) {
        Some(Ok(percent)) => (whole as f64 * (percent / 100.0)) as i64,
        Some(Err(_)) => 0,
        None => Amount::parse(threshold).map_or(0, Amount::value),
    }
}

/// A node's addresses as pods tell them as their host's: the first that is internal, or else external,
/// and the first of the other family.
pub fn host_ips(status: &NodeStatus) -> Vec<String> {
    let all = status.addresses.as_deref().unwrap_or_default();
    let of = |kind: &'static str| {
        let of_kind = all.iter().filter(move |address| address.type_ == kind);
        of_kind.filter_map(|address| address.address.parse::<IpAddr>().ok())
    };
    let ips: Vec<IpAddr> = of("InternalIP").chain(of("ExternalIP")).collect();
    let Some(first) = ips.first() else {
        return Vec::new();
    };
    let second = ips.iter().find(|ip| ip.is_ipv6() != first.is_ipv6());
    let both = [Some(first), second].into_iter().flatten();
    both.map(ToString::to_string).collect()
}

/// The Kubernetes release whose node behaviour and API this build follows.
pub const KUBERNETES: &str = "1.36.3";

/// What a node says its kubelet is. Whoever compares versions reads the Kubernetes release that this
/// node is like, as with the builds of distributions; what follows the plus sign counts for nothing in
/// comparisons and tells people what really runs.
pub fn kubelet_version(build: &str) -> String {
    format!("v{KUBERNETES}+polylet.{build}")
}

/// Labels that a node puts right when they are found otherwise; all others that it is given count
/// only when it is made.
pub const OWN_LABELS: [&str; 11] = [
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

/// The labels that a node has by itself, with those it is given.
pub fn labels(
    name: &str,
    architecture: &str,
    given: &BTreeMap<String, String>,
) -> BTreeMap<String, String> {
    let own = [
        ("kubernetes.io/hostname", name),
        ("kubernetes.io/os", "linux"),
        ("kubernetes.io/arch", architecture),
        ("beta.kubernetes.io/os", "linux"),
        ("beta.kubernetes.io/arch", architecture),
    ];
    let mut labels: BTreeMap<String, String> = own
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into();
    labels.extend(given.clone());
    labels
}

/// How many pods a node takes: `maxPods`, and no more than `podsPerCore` for each core
/// where that is set.
pub fn most_pods(max_pods: i32, pods_per_core: i32, cores: u64) -> i64 {
    let most = i64::from(max_pods.max(0));
    if pods_per_core <= 0 {
        return most;
    }
    let cores = i64::try_from(cores).unwrap_or(i64::MAX);
    most.min(i64::from(pods_per_core).saturating_mul(cores))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(entries: &[(&str, &str)]) -> Settings {
        entries
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect()
    }

    fn capacity() -> Numbers {
        [
            ("cpu", 4000),
            ("memory", 10 << 30),
            (EPHEMERAL_STORAGE, 1000),
            ("hugepages-2Mi", 1 << 30),
            (PODS, 110),
        ]
        .map(|(name, number)| (name.to_owned(), number))
        .into()
    }

    #[test]
    fn reserved_thresholds_and_huge_pages_are_not_for_pods() {
        let kube = list(&[("cpu", "500m"), ("memory", "1Gi")]);
        let system = list(&[("cpu", "0.25"), ("ephemeral-storage", "100")]);
        let hard = list(&[("memory.available", "1Gi"), ("nodefs.available", "10%")]);
        let left = allocatable(&capacity(), &[&kube, &system], &hard);
        assert_eq!(left["cpu"], 3250);
        assert_eq!(left["memory"], 7 << 30);
        assert_eq!(left[EPHEMERAL_STORAGE], 800);
        assert_eq!(left["hugepages-2Mi"], 1 << 30);
        assert_eq!(left[PODS], 110);
        assert_eq!(without_reserved(&capacity(), &[&kube])["memory"], 9 << 30);
        let all = list(&[("cpu", "100")]);
        assert_eq!(
            allocatable(&capacity(), &[&all], &Settings::new())["cpu"],
            0
        );
    }

    #[test]
    fn one_address_of_each_family() {
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
        type Told = &'static [(&'static str, &'static str)];
        let cases: [(Told, &[&str]); 4] = [
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
    fn pods_per_core_only_lowers() {
        assert_eq!(most_pods(110, 0, 2), 110);
        assert_eq!(most_pods(110, 10, 2), 20);
        assert_eq!(most_pods(110, 100, 2), 110);
    }
}
