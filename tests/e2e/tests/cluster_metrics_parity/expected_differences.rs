//! Families that differ from the kubelet's, with the reasons.

use std::collections::BTreeMap;

use super::families::FamilyShape;

/// Families by the beginning of their names, and why Polylet does not serve them.
const MISSING: [(&str, &str, &str); 30] = [
    (
        "/metrics",
        "aggregator_",
        "of the library for API servers, not about nodes",
    ),
    (
        "/metrics",
        "apiserver_",
        "of the library for API servers, not about nodes",
    ),
    (
        "/metrics",
        "cardinality_enforcement_",
        "about the metrics library itself",
    ),
    (
        "/metrics",
        "disabled_metrics_total",
        "about the metrics library itself",
    ),
    (
        "/metrics",
        "dra_",
        "dynamic resource allocation is not implemented",
    ),
    (
        "/metrics",
        "force_cleaned_failed_volume_",
        "there is no forced clean-up of volumes",
    ),
    (
        "/metrics",
        "go_",
        "Go's runtime, which Polylet does not have",
    ),
    (
        "/metrics",
        "hidden_metrics_total",
        "about the metrics library itself",
    ),
    (
        "/metrics",
        "kubelet_cpu_manager_",
        "the CPU manager is not implemented",
    ),
    (
        "/metrics",
        "kubelet_evented_pleg_",
        "of an alpha feature that is off",
    ),
    (
        "/metrics",
        "kubelet_graceful_shutdown_",
        "graceful node shutdown is not implemented",
    ),
    (
        "/metrics",
        "kubelet_imagemanager_inmemory_",
        "all records are in memory: there is no cache to fill",
    ),
    (
        "/metrics",
        "kubelet_lifecycle_handler_",
        "there is no fallback of hooks from HTTPS to HTTP",
    ),
    (
        "/metrics",
        "kubelet_memory_manager_",
        "the memory manager is not implemented",
    ),
    (
        "/metrics",
        "kubelet_node_startup_",
        "the start of eleven processes has other stages",
    ),
    (
        "/metrics",
        "kubelet_orphan_pod_cleaned_volumes",
        "there are no periodic sweeps of volumes",
    ),
    (
        "/metrics",
        "kubelet_pod_watch_events_dropped_total",
        "no state stream drops events",
    ),
    (
        "/metrics",
        "kubelet_topology_manager_",
        "the topology manager is not implemented",
    ),
    (
        "/metrics",
        "kubelet_volume_metric_collection_",
        "not counted yet",
    ),
    ("/metrics", "kubernetes_feature_enabled", "not listed yet"),
    (
        "/metrics",
        "process_network_",
        "not of the process, but of its network namespace",
    ),
    (
        "/metrics",
        "process_virtual_memory_max_bytes",
        "no process has a limit of addresses",
    ),
    (
        "/metrics",
        "reconstruct_volume_operations_",
        "not counted yet",
    ),
    (
        "/metrics",
        "registered_metrics_total",
        "about the metrics library itself",
    ),
    (
        "/metrics",
        "rest_client_exec_plugin_",
        "runs of credential plugins are not counted yet",
    ),
    (
        "/metrics",
        "rest_client_rate_limiter_",
        "statuses wait for the limit before they are requests",
    ),
    (
        "/metrics",
        "rest_client_transport_",
        "of client-go's cache of connections, which there is none of",
    ),
    (
        "/metrics",
        "volume_operation_total_seconds",
        "not counted yet",
    ),
    (
        "/metrics",
        "workqueue_",
        "there are no work queues of that library",
    ),
    (
        "/metrics/probes",
        "process_start_time_seconds",
        "of the process of another service",
    ),
];

/// Differences that are not expected.
pub(crate) fn unexpected(
    endpoint: &str,
    kubelet: &BTreeMap<String, FamilyShape>,
    polylet: &BTreeMap<String, FamilyShape>,
) -> Vec<String> {
    let mut lines = Vec::new();
    for (name, family) in kubelet {
        let is_expected =
            |(at, prefix, _): &(&str, &str, &str)| *at == endpoint && name.starts_with(prefix);
        match polylet.get(name) {
            None if MISSING.iter().any(is_expected) => {}
            None => lines.push(format!("{endpoint}: no {name}")),
            Some(found) if found != family => {
                lines.push(format!(
                    "{endpoint}: {name} is {found:?} instead of {family:?}"
                ));
            }
            Some(_) => {}
        }
    }
    lines
}

/// Exceptions that have become unnecessary.
pub(crate) fn unused(
    kubelet: &BTreeMap<&'static str, BTreeMap<String, FamilyShape>>,
    polylet: &BTreeMap<&'static str, BTreeMap<String, FamilyShape>>,
) -> Vec<String> {
    let is_unused = |(endpoint, prefix, _): &&(&str, &str, &str)| {
        let has = |side: &BTreeMap<&'static str, BTreeMap<String, FamilyShape>>| {
            side.get(*endpoint)
                .is_some_and(|families| families.keys().any(|name| name.starts_with(prefix)))
        };
        !has(kubelet) || has(polylet)
    };
    let unused = MISSING.iter().filter(is_unused);
    unused
        .map(|(endpoint, prefix, _)| format!("{endpoint}: {prefix} is no longer missing"))
        .collect()
}
