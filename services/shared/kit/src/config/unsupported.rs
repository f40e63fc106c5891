//! Settings that have an effect in the kubelet and not yet here: users are warned, so that they do not
//! rely on them.

use super::{KubeletConfiguration, gates};

/// Warnings about fields that are set and have no effect.
pub(super) fn warnings(config: &KubeletConfiguration) -> Vec<String> {
    let managed = |policy: &str| !policy.eq_ignore_ascii_case("none");
    let by_priority = &config.shutdown_grace_period_by_pod_priority;
    let shuts_down = !config.shutdown_grace_period.is_zero() || !by_priority.is_empty();
    let unsupported = [
        (
            managed(&config.cpu_manager_policy),
            "cpuManagerPolicy",
            "no container gets exclusive CPUs",
        ),
        (
            managed(&config.memory_manager_policy) || !config.reserved_memory.is_empty(),
            "memoryManagerPolicy",
            "memory is not allocated by NUMA node",
        ),
        (
            managed(&config.topology_manager_policy),
            "topologyManagerPolicy",
            "containers are not aligned to NUMA nodes",
        ),
        (
            shuts_down,
            "shutdownGracePeriod",
            "pods are not terminated in order at node shutdown",
        ),
        (
            config.protect_kernel_defaults,
            "protectKernelDefaults",
            "kernel settings are neither checked nor changed",
        ),
        (
            config.logging.format == "json",
            "logging.format",
            "services log in text format",
        ),
        (
            config.tracing.is_some(),
            "tracing",
            "traces are exported to OTEL_EXPORTER_OTLP_ENDPOINT",
        ),
    ];
    let set = unsupported.into_iter().filter(|(is_set, ..)| *is_set);
    set.map(|(_, field, effect)| format!("{field} is not supported yet and is ignored: {effect}"))
        .chain(gates::warnings(&config.feature_gates))
        .collect()
}
