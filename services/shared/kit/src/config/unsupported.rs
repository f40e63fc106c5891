//! Settings that have an effect in the kubelet and not here: users are warned, so that they do not rely on
//! them.

use super::{KubeletConfiguration, gates, tls};

/// Fields that have an effect in the kubelet and none here, with the consequence. Each one that is set has
/// a warning at start.
pub const UNSUPPORTED_FIELDS: &[(&str, &str)] = &[
    ("syncFrequency", "pods are synced when something changes"),
    ("enableContentionProfiling", "profiles are not served"),
    (
        "enableControllerAttachDetach",
        "volumes are attached by the controller alone, and the Node says so",
    ),
    (
        "kubeletCgroups",
        "the services stay in the cgroup that they were started in; the usage of this one is measured",
    ),
    (
        "systemCgroups",
        "no process is moved there; its usage is measured",
    ),
    ("cpuManagerPolicy", "no container gets exclusive CPUs"),
    (
        "cpuManagerPolicyOptions",
        "no container gets exclusive CPUs",
    ),
    (
        "cpuManagerReconcilePeriod",
        "no container gets exclusive CPUs",
    ),
    (
        "memoryManagerPolicy",
        "memory is not allocated by NUMA node",
    ),
    ("reservedMemory", "memory is not allocated by NUMA node"),
    (
        "topologyManagerPolicy",
        "containers are not aligned to NUMA nodes",
    ),
    (
        "topologyManagerScope",
        "containers are not aligned to NUMA nodes",
    ),
    (
        "topologyManagerPolicyOptions",
        "containers are not aligned to NUMA nodes",
    ),
    ("podCIDR", "the runtime's network configuration applies"),
    ("contentType", "requests to the API server are in JSON"),
    (
        "protectKernelDefaults",
        "kernel settings are neither checked nor changed",
    ),
    ("makeIPTablesUtilChains", "no iptables chains are made"),
    (
        "configMapAndSecretChangeDetectionStrategy",
        "referenced objects are watched",
    ),
    ("showHiddenMetricsForVersion", "there are no hidden metrics"),
    ("volumePluginDir", "flexVolume is not supported"),
    ("kernelMemcgNotification", "memory is measured at intervals"),
    (
        "shutdownGracePeriod",
        "pods are not terminated in order at node shutdown",
    ),
    (
        "shutdownGracePeriodCriticalPods",
        "pods are not terminated in order at node shutdown",
    ),
    (
        "shutdownGracePeriodByPodPriority",
        "pods are not terminated in order at node shutdown",
    ),
    ("logging.format", "services log in text format"),
    ("logging.verbosity", "Polylet's logLevel applies"),
    ("logging.vmodule", "Polylet's logLevel applies"),
];

/// Fields without effect in a kubelet of this version on Linux, or with none that could be missed.
pub const INEFFECTIVE_FIELDS: &[(&str, &str)] = &[
    ("hairpinMode", "container runtimes configure their networks"),
    (
        "iptablesMasqueradeBit",
        "the chain it is about is made no more",
    ),
    ("iptablesDropBit", "the chain it is about is made no more"),
    ("runOnce", "the kubelet does not start with it"),
    ("logging.flushFrequency", "every line is written at once"),
    (
        "logging.options",
        "buffers of log lines, which are written at once",
    ),
];

/// Warnings about fields that are set and have no effect. `given` returns whether the document has a field.
pub(super) fn warnings(config: &KubeletConfiguration, given: impl Fn(&str) -> bool) -> Vec<String> {
    let set = UNSUPPORTED_FIELDS
        .iter()
        .filter(|(field, _)| is_set(field, config, &given));
    set.map(|(field, effect)| format!("{field} is not supported yet and is ignored: {effect}"))
        .chain(tls::warnings(config))
        .chain(gates::warnings(&config.feature_gates))
        .collect()
}

/// Whether a field asks for what is missing here. Most do when they are not at their default.
fn is_set(field: &str, config: &KubeletConfiguration, given: impl Fn(&str) -> bool) -> bool {
    let changed = || {
        let all = |config: &KubeletConfiguration| serde_json::to_value(config).unwrap_or_default();
        let pointer = format!("/{}", field.replace('.', "/"));
        all(config).pointer(&pointer) != all(&KubeletConfiguration::default()).pointer(&pointer)
    };
    match field {
        "cpuManagerPolicy" => !config.cpu_manager_policy.eq_ignore_ascii_case("none"),
        "memoryManagerPolicy" => !config.memory_manager_policy.eq_ignore_ascii_case("none"),
        "topologyManagerPolicy" => !config.topology_manager_policy.eq_ignore_ascii_case("none"),
        "contentType" => changed() && config.content_type != "application/json",
        // On by default: only who asks for them misses them.
        "makeIPTablesUtilChains" => given(field) && !changed(),
        _ => changed(),
    }
}
