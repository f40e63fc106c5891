//! What a node of upstream would do at the configuration's word, and this one does not yet: people are
//! told, rather than left to believe that their pods have it.

use super::{KubeletConfiguration, gates};

/// Fields that ask for something and count for nothing.
pub(super) fn warnings(config: &KubeletConfiguration) -> Vec<String> {
    let managed = |policy: &str| !policy.eq_ignore_ascii_case("none");
    let by_priority = &config.shutdown_grace_period_by_pod_priority;
    let shuts_down = !config.shutdown_grace_period.is_zero() || !by_priority.is_empty();
    let asked = [
        (
            managed(&config.cpu_manager_policy),
            "cpuManagerPolicy",
            "no container has CPUs of its own",
        ),
        (
            managed(&config.memory_manager_policy) || !config.reserved_memory.is_empty(),
            "memoryManagerPolicy",
            "memory is not given out by NUMA node",
        ),
        (
            managed(&config.topology_manager_policy),
            "topologyManagerPolicy",
            "no container is kept on one NUMA node",
        ),
        (
            shuts_down,
            "shutdownGracePeriod",
            "pods are not ended in order when the machine shuts down",
        ),
        (
            config.protect_kernel_defaults,
            "protectKernelDefaults",
            "the kernel's settings are neither checked nor changed",
        ),
        (
            config.logging.format == "json",
            "logging.format",
            "services log in lines of text",
        ),
        (
            config.tracing.is_some(),
            "tracing",
            "traces go where OTEL_EXPORTER_OTLP_ENDPOINT says",
        ),
    ];
    let asked = asked.into_iter().filter(|(asked, ..)| *asked);
    asked
        .map(|(_, field, instead)| format!("{field} counts for nothing yet: {instead}"))
        .chain(gates::warnings(&config.feature_gates))
        .collect()
}
