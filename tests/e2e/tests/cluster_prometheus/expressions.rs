//! What the rules, alerts and dashboards of kubernetes-mixin ask of a node agent, after commit aa38e2bf
//! of <https://github.com/kubernetes-monitoring/kubernetes-mixin>. Their thresholds are left out, so that
//! a healthy node has results, and so are factors of other exporters.

use serde_json::{Value, json};

/// The name of the recorded quantile.
const RELIST: &str = "node_quantile:kubelet_pleg_relist_duration_seconds:histogram_quantile";

/// Alerts and panels by name, and what they compute.
const EXPRESSIONS: [(&str, &str); 66] = [
    (
        "KubeletTooManyPods",
        "max by (cluster, instance) (kubelet_running_pods{job=\"kubelet\"}) * on (cluster, instance) group_left (node) max by (cluster, instance, node) (kubelet_node_name{job=\"kubelet\"})",
    ),
    (
        "KubeNodeEviction",
        "sum(rate(kubelet_evictions{job=\"kubelet\"}[15m])) by (cluster, eviction_signal, instance) * on (cluster, instance) group_left (node) max by (cluster, instance, node) (kubelet_node_name{job=\"kubelet\"})",
    ),
    (
        "KubeletPlegDurationHigh",
        "node_quantile:kubelet_pleg_relist_duration_seconds:histogram_quantile{quantile=\"0.99\"}",
    ),
    (
        "KubeletPodStartUpLatencyHigh",
        "histogram_quantile(0.99, sum by (cluster, instance, le) (topk by (cluster, instance, le, operation_type) (1, rate(kubelet_pod_worker_duration_seconds_bucket{job=\"kubelet\"}[5m])))) * on (cluster, instance) group_left (node) topk by (cluster, instance, node) (1, kubelet_node_name{job=\"kubelet\"})",
    ),
    (
        "KubeletClientCertificateExpiration",
        "kubelet_certificate_manager_client_ttl_seconds",
    ),
    (
        "KubeletServerCertificateExpiration",
        "kubelet_certificate_manager_server_ttl_seconds",
    ),
    (
        "KubeletClientCertificateRenewalErrors",
        "increase(kubelet_certificate_manager_client_expiration_renew_errors[5m])",
    ),
    (
        "KubeletServerCertificateRenewalErrors",
        "increase(kubelet_server_expiration_renew_errors[5m])",
    ),
    (
        "KubeletDown",
        "count by (cluster) (up{job=\"kubelet\"} == 1)",
    ),
    (
        "KubePersistentVolumeFillingUp",
        "kubelet_volume_stats_available_bytes{job=\"kubelet\"} / kubelet_volume_stats_capacity_bytes{job=\"kubelet\"} and kubelet_volume_stats_used_bytes{job=\"kubelet\"} > 0",
    ),
    (
        "KubePersistentVolumeInodesFillingUp",
        "kubelet_volume_stats_inodes_free{job=\"kubelet\"} / kubelet_volume_stats_inodes{job=\"kubelet\"} and kubelet_volume_stats_inodes_used{job=\"kubelet\"} > 0",
    ),
    (
        "KubeVersionMismatch",
        "count by (cluster) (count by (git_version, cluster) (label_replace(kubernetes_build_info{job!~\"kube-dns|coredns\"}, \"git_version\", \"$1\", \"git_version\", \"(v[0-9]*.[0-9]*).*\")))",
    ),
    (
        "KubeClientErrors",
        "sum(rate(rest_client_requests_total{job=\"kubelet\"}[5m])) by (cluster, instance, job)",
    ),
    (
        "Running Kubelets",
        "sum(kubelet_node_name{cluster=\"test\", job=\"kubelet\"})",
    ),
    (
        "Running Pods",
        "sum(kubelet_running_pods{cluster=\"test\", job=\"kubelet\"})",
    ),
    (
        "Running Containers",
        "sum(kubelet_running_containers{cluster=\"test\", job=\"kubelet\", container_state=\"running\"})",
    ),
    (
        "Actual Volume Count",
        "sum(volume_manager_total_volumes{cluster=\"test\", job=\"kubelet\", state=\"actual_state_of_world\"})",
    ),
    (
        "Desired Volume Count",
        "sum(volume_manager_total_volumes{cluster=\"test\", job=\"kubelet\", state=\"desired_state_of_world\"})",
    ),
    (
        "Config Error Count",
        "sum(rate(kubelet_node_config_error{cluster=\"test\", job=\"kubelet\"}[5m]))",
    ),
    (
        "Operation Rate",
        "sum(rate(kubelet_runtime_operations_total{cluster=\"test\", job=\"kubelet\"}[5m])) by (operation_type, instance)",
    ),
    (
        "Operation Error Rate",
        "sum(rate(kubelet_runtime_operations_errors_total{cluster=\"test\", job=\"kubelet\"}[5m])) by (instance, operation_type)",
    ),
    (
        "Operation Duration",
        "histogram_quantile(0.99, sum(rate(kubelet_runtime_operations_duration_seconds_bucket{cluster=\"test\", job=\"kubelet\"}[5m])) by (instance, operation_type, le))",
    ),
    (
        "Pod Start Rate",
        "sum(rate(kubelet_pod_start_duration_seconds_count{cluster=\"test\", job=\"kubelet\"}[5m])) by (instance)",
    ),
    (
        "Pod Worker Rate",
        "sum(rate(kubelet_pod_worker_duration_seconds_count{cluster=\"test\", job=\"kubelet\"}[5m])) by (instance)",
    ),
    (
        "Pod Start Duration",
        "histogram_quantile(0.99, sum(rate(kubelet_pod_start_duration_seconds_bucket{cluster=\"test\", job=\"kubelet\"}[5m])) by (instance, le))",
    ),
    (
        "Pod Worker Duration",
        "histogram_quantile(0.99, sum(rate(kubelet_pod_worker_duration_seconds_bucket{cluster=\"test\", job=\"kubelet\"}[5m])) by (instance, le))",
    ),
    (
        "Storage Operation Rate",
        "sum(rate(storage_operation_duration_seconds_count{cluster=\"test\", job=\"kubelet\"}[5m])) by (instance, operation_name, volume_plugin)",
    ),
    (
        "Storage Operation Error Rate",
        "sum(rate(storage_operation_errors_total{cluster=\"test\", job=\"kubelet\"}[5m])) by (instance, operation_name, volume_plugin)",
    ),
    (
        "Storage Operation Duration",
        "histogram_quantile(0.99, sum(rate(storage_operation_duration_seconds_bucket{cluster=\"test\", job=\"kubelet\"}[5m])) by (instance, operation_name, volume_plugin, le))",
    ),
    (
        "Cgroup Manager Rate",
        "sum(rate(kubelet_cgroup_manager_duration_seconds_count{cluster=\"test\", job=\"kubelet\"}[5m])) by (instance, operation_type)",
    ),
    (
        "Cgroup Manager Duration",
        "histogram_quantile(0.99, sum(rate(kubelet_cgroup_manager_duration_seconds_bucket{cluster=\"test\", job=\"kubelet\"}[5m])) by (instance, operation_type, le))",
    ),
    (
        "PLEG Relist Rate",
        "sum(rate(kubelet_pleg_relist_duration_seconds_count{cluster=\"test\", job=\"kubelet\"}[5m])) by (instance)",
    ),
    (
        "PLEG Relist Interval",
        "histogram_quantile(0.99, sum(rate(kubelet_pleg_relist_interval_seconds_bucket{cluster=\"test\", job=\"kubelet\"}[5m])) by (instance, le))",
    ),
    (
        "PLEG Relist Duration",
        "histogram_quantile(0.99, sum(rate(kubelet_pleg_relist_duration_seconds_bucket{cluster=\"test\", job=\"kubelet\"}[5m])) by (instance, le))",
    ),
    (
        "RPC Rate",
        "sum(rate(rest_client_requests_total{cluster=\"test\", job=\"kubelet\", code=~\"2..\"}[5m]))",
    ),
    (
        "RPC Rate of Errors",
        "sum(rate(rest_client_requests_total{cluster=\"test\", job=\"kubelet\", code=~\"4..\"}[5m]))",
    ),
    (
        "Request Duration",
        "histogram_quantile(0.99, sum(rate(rest_client_request_duration_seconds_bucket{cluster=\"test\", job=\"kubelet\"}[5m])) by (instance, verb, le))",
    ),
    (
        "Memory",
        "process_resident_memory_bytes{cluster=\"test\", job=\"kubelet\"}",
    ),
    (
        "CPU Usage",
        "rate(process_cpu_seconds_total{cluster=\"test\", job=\"kubelet\"}[5m])",
    ),
    (
        "Container CPU",
        "sum by (cluster, namespace, pod, container) (rate(container_cpu_usage_seconds_total{job=\"cadvisor\", image!=\"\"}[5m]))",
    ),
    (
        "Container Working Set",
        "container_memory_working_set_bytes{job=\"cadvisor\", image!=\"\", container!=\"\"}",
    ),
    (
        "Container RSS",
        "container_memory_rss{job=\"cadvisor\", image!=\"\", container!=\"\"}",
    ),
    (
        "Container Cache",
        "container_memory_cache{job=\"cadvisor\", image!=\"\", container!=\"\"}",
    ),
    (
        "Container Swap",
        "container_memory_swap{job=\"cadvisor\", image!=\"\", container!=\"\"}",
    ),
    (
        "CPU Throttling",
        "sum(increase(container_cpu_cfs_throttled_periods_total{job=\"cadvisor\", container!=\"\"}[5m])) by (container) / sum(increase(container_cpu_cfs_periods_total{job=\"cadvisor\", container!=\"\"}[5m])) by (container)",
    ),
    (
        "Receive Bandwidth",
        "sum(irate(container_network_receive_bytes_total{job=\"cadvisor\", namespace!=\"\"}[5m])) by (pod)",
    ),
    (
        "Transmit Bandwidth",
        "sum(irate(container_network_transmit_bytes_total{job=\"cadvisor\", namespace!=\"\"}[5m])) by (pod)",
    ),
    (
        "Received Packets",
        "sum(rate(container_network_receive_packets_total{job=\"cadvisor\", namespace!=\"\"}[5m])) by (pod)",
    ),
    (
        "Transmitted Packets",
        "sum(rate(container_network_transmit_packets_total{job=\"cadvisor\", namespace!=\"\"}[5m])) by (pod)",
    ),
    (
        "Received Packets Dropped",
        "sum(rate(container_network_receive_packets_dropped_total{job=\"cadvisor\", namespace!=\"\"}[5m])) by (pod)",
    ),
    (
        "Transmitted Packets Dropped",
        "sum(rate(container_network_transmit_packets_dropped_total{job=\"cadvisor\", namespace!=\"\"}[5m])) by (pod)",
    ),
    (
        "Storage Operations",
        "ceil(sum by (pod) (rate(container_fs_reads_total{job=\"cadvisor\", container!=\"\"}[5m]) + rate(container_fs_writes_total{job=\"cadvisor\", container!=\"\"}[5m])))",
    ),
    (
        "Storage Throughput",
        "sum by (pod) (rate(container_fs_reads_bytes_total{job=\"cadvisor\", container!=\"\"}[5m]) + rate(container_fs_writes_bytes_total{job=\"cadvisor\", container!=\"\"}[5m]))",
    ),
    // Not of the mixin: what is counted is counted.
    (
        "Starts of Pods",
        "kubelet_pod_start_duration_seconds_count > 0",
    ),
    (
        "Total Starts of Pods",
        "kubelet_pod_start_total_duration_seconds_count > 0",
    ),
    (
        "Service Level of Starts",
        "kubelet_pod_start_sli_duration_seconds_count > 0",
    ),
    (
        "First Network Pod",
        "kubelet_first_network_pod_start_sli_duration_seconds > 0",
    ),
    (
        "Synced Statuses",
        "kubelet_pod_status_sync_duration_seconds_count > 0",
    ),
    (
        "New Workers",
        "kubelet_pod_worker_start_duration_seconds_count > 0",
    ),
    (
        "Created Pods",
        "kubelet_pod_worker_duration_seconds_count{operation_type=\"create\"} > 0",
    ),
    (
        "Terminated Containers",
        "kubelet_terminated_containers_total{container_type=\"container\", exit_code=\"1\", reason=\"Error\"} > 0",
    ),
    ("Active Pods", "kubelet_active_pods{static=\"\"} > 0"),
    (
        "Working Pods",
        "kubelet_working_pods{lifecycle=\"sync\", config=\"desired\", static=\"\"} > 0",
    ),
    (
        "Ensured Images",
        "kubelet_image_manager_ensure_image_requests_total > 0",
    ),
    (
        "Served Requests",
        "kubelet_http_requests_total{path=\"metrics/cadvisor\", server_type=\"readwrite\", long_running=\"false\"} > 0",
    ),
    (
        "Response Sizes",
        "rest_client_response_size_bytes_count > 0",
    ),
];

/// Expressions without results on a node of Polylet, and why.
pub(crate) const MISSING: [(&str, &str); 0] = [];

/// All expressions by name.
pub(crate) fn all() -> impl Iterator<Item = (&'static str, &'static str)> {
    EXPRESSIONS.into_iter()
}

/// The rules that record, for Prometheus.
pub(crate) fn groups() -> Value {
    let rule = |quantile: &str| {
        let relist = "sum(rate(kubelet_pleg_relist_duration_seconds_bucket{job=\"kubelet\"}[5m])) by (cluster, instance, le)";
        let node = "max by (cluster, instance, node) (kubelet_node_name{job=\"kubelet\"})";
        let expr = format!(
            "histogram_quantile({quantile}, {relist} * on (cluster, instance) group_left (node) {node})"
        );
        json!({ "record": RELIST, "expr": expr, "labels": { "quantile": quantile } })
    };
    let rules = ["0.99", "0.9", "0.5"].map(rule);
    json!([{ "name": "kubelet.rules", "rules": rules }])
}
