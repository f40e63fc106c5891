//! Eviction thresholds and reserved resources.

use crate::config::KubeletConfiguration;
use crate::config::go_duration;
use crate::config::kubelet::{cpus, percentage};
use crate::config::problems::Problems;
use crate::config::threshold::{SIGNALS, is_quantity, parse_threshold};

pub(super) fn eviction(config: &KubeletConfiguration, problems: &mut Problems) {
    for (name, thresholds) in [
        ("evictionHard", &config.eviction_hard),
        ("evictionSoft", &config.eviction_soft),
    ] {
        for (signal, value) in thresholds {
            if let Err(message) = parse_threshold(signal, value) {
                problems.add(&format!("{name}[{signal}]"), message);
            }
        }
    }
    for signal in config.eviction_soft.keys() {
        if !config.eviction_soft_grace_period.contains_key(signal) {
            let field = format!("evictionSoftGracePeriod[{signal}]");
            problems.add(
                &field,
                "missing; each soft threshold needs a grace period".to_owned(),
            );
        }
    }
    for (signal, grace) in &config.eviction_soft_grace_period {
        let field = format!("evictionSoftGracePeriod[{signal}]");
        if !SIGNALS.contains(&signal.as_str()) {
            problems.add(
                &field,
                format!("no such signal; allowed are {}", SIGNALS.join(", ")),
            );
        } else if let Err(message) = go_duration::parse(grace) {
            problems.add(&field, message);
        }
    }
    for (signal, amount) in &config.eviction_minimum_reclaim {
        let percent = amount.strip_suffix('%').and_then(|p| p.parse::<f64>().ok());
        let field = format!("evictionMinimumReclaim[{signal}]");
        if !SIGNALS.contains(&signal.as_str()) {
            problems.add(
                &field,
                format!("no such signal; allowed are {}", SIGNALS.join(", ")),
            );
        } else if !percent.is_some_and(|p| (0.0..=100.0).contains(&p))
            && (!is_quantity(amount) || amount.starts_with('-'))
        {
            let allowed = "allowed is a quantity or a percentage, not negative";
            problems.not_allowed(&field, format!("{amount:?}"), allowed);
        }
    }
    let grace = config.eviction_max_pod_grace_period;
    problems.at_least("evictionMaxPodGracePeriod", grace, 0);
}

pub(super) fn resources(config: &KubeletConfiguration, problems: &mut Problems) {
    for (name, reserved) in [
        ("systemReserved", &config.system_reserved),
        ("kubeReserved", &config.kube_reserved),
    ] {
        for (resource, amount) in reserved {
            let field = format!("{name}[{resource}]");
            let known = ["cpu", "memory", "ephemeral-storage", "pid"].contains(&resource.as_str())
                || resource.starts_with("hugepages-");
            if !known {
                let allowed = "allowed are cpu, memory, ephemeral-storage, pid".to_owned();
                problems.add(&field, format!("no such resource; {allowed}"));
            } else if !is_quantity(amount) || amount.starts_with('-') {
                let allowed = "allowed is a quantity, not negative";
                problems.not_allowed(&field, format!("{amount:?}"), allowed);
            }
        }
    }
    let named = &config.reserved_system_cpus;
    if cpus(named).is_none() {
        let allowed = "allowed is a list of CPUs such as 0-2,5";
        problems.not_allowed("reservedSystemCPUs", format!("{named:?}"), allowed);
    }
    let enforced = &config.enforce_node_allocatable;
    if enforced.iter().any(|name| name == "none") && enforced.len() > 1 {
        problems.add(
            "enforceNodeAllocatable",
            "none cannot be combined with other values".to_owned(),
        );
    }
    let mut seen = std::collections::BTreeSet::new();
    for name in enforced.iter().filter(|name| !seen.insert(*name)) {
        let message = format!("{name} is listed twice");
        problems.add("enforceNodeAllocatable", message);
    }
    for (resource, share) in &config.qos_reserved {
        let field = format!("qosReserved[{resource}]");
        if resource != "memory" {
            problems.add(&field, "no such resource; allowed is memory".to_owned());
        } else if percentage(share).is_none() {
            let allowed = "allowed is a percentage from 0% to 100%";
            problems.not_allowed(&field, format!("{share:?}"), allowed);
        }
    }
    let policy = &config.memory_reservation_policy;
    if policy == "TieredReservation" && !config.has_gate("MemoryQoS") {
        let allowed = "allowed is None while the feature gate MemoryQoS is off";
        problems.not_allowed("memoryReservationPolicy", format!("{policy:?}"), allowed);
    }
    if !config.system_cgroups.is_empty() && config.cgroup_root.is_empty() {
        let message = "missing; systemCgroups is given".to_owned();
        problems.add("cgroupRoot", message);
    }
    for (name, field, cgroup) in [
        (
            "system-reserved",
            "systemReservedCgroup",
            &config.system_reserved_cgroup,
        ),
        (
            "kube-reserved",
            "kubeReservedCgroup",
            &config.kube_reserved_cgroup,
        ),
    ] {
        let compressible = format!("{name}-compressible");
        let is_enforced = |name: &str| enforced.iter().any(|enforced| enforced == name);
        if (is_enforced(name) || is_enforced(&compressible)) && cgroup.is_empty() {
            problems.add(
                field,
                format!("missing; enforceNodeAllocatable names {name}"),
            );
        }
        if is_enforced(name) && is_enforced(&compressible) {
            let message = format!("{name} and {compressible} do not go together");
            problems.add("enforceNodeAllocatable", message);
        }
        if !config.reserved_system_cpus.is_empty() && !cgroup.is_empty() {
            let message = "reservedSystemCPUs is given; the two do not go together".to_owned();
            problems.add(field, message);
        }
    }
    if !config.cgroups_per_qos && enforced.iter().any(|name| name != "none") {
        let message = "false only while enforceNodeAllocatable is empty or none".to_owned();
        problems.add("cgroupsPerQOS", message);
    }
}
