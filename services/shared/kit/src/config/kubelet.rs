use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::go_duration;
use super::sections::*;

macro_rules! kubelet_configuration {
    ($($(#[$attr:meta])* $field:ident: $type:ty = $default:expr;)*) => {
        /// `kubelet.config.k8s.io/v1beta1`, kind `KubeletConfiguration`. Names, defaults and
        /// meaning are upstream's.
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
        #[serde(default, rename_all = "camelCase")]
        #[allow(missing_docs)]
        pub struct KubeletConfiguration { $($(#[$attr])* pub $field: $type,)* }

        impl Default for KubeletConfiguration {
            fn default() -> KubeletConfiguration {
                KubeletConfiguration { $($field: $default,)* }
            }
        }
    };
}

const fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

kubelet_configuration! {
    enable_server: bool = true;
    static_pod_path: String = String::new();
    #[serde(with = "go_duration")]
    sync_frequency: Duration = secs(60);
    #[serde(with = "go_duration")]
    file_check_frequency: Duration = secs(20);
    #[serde(with = "go_duration")]
    http_check_frequency: Duration = secs(20);
    #[serde(rename = "staticPodURL")]
    static_pod_url: String = String::new();
    #[serde(rename = "staticPodURLHeader")]
    static_pod_url_header: BTreeMap<String, Vec<String>> = BTreeMap::new();
    pod_logs_dir: String = "/var/log/pods".to_owned();
    address: String = "0.0.0.0".to_owned();
    port: u16 = 10250;
    read_only_port: u16 = 0;
    tls_cert_file: String = String::new();
    tls_private_key_file: String = String::new();
    tls_cipher_suites: Vec<String> = Vec::new();
    tls_curve_preferences: Vec<i32> = Vec::new();
    tls_min_version: String = String::new();
    rotate_certificates: bool = false;
    #[serde(rename = "serverTLSBootstrap")]
    server_tls_bootstrap: bool = false;
    authentication: Authentication = Authentication::default();
    authorization: Authorization = Authorization::default();
    #[serde(rename = "registryPullQPS")]
    registry_pull_qps: i32 = 5;
    registry_burst: i32 = 10;
    image_pull_credentials_verification_policy: String = "NeverVerifyPreloadedImages".to_owned();
    preloaded_images_verification_allowlist: Vec<String> = Vec::new();
    #[serde(rename = "eventRecordQPS")]
    event_record_qps: i32 = 50;
    event_burst: i32 = 100;
    enable_debugging_handlers: bool = true;
    enable_contention_profiling: bool = false;
    healthz_port: u16 = 10248;
    healthz_bind_address: String = "127.0.0.1".to_owned();
    oom_score_adj: i32 = -999;
    cluster_domain: String = String::new();
    #[serde(rename = "clusterDNS")]
    cluster_dns: Vec<String> = Vec::new();
    #[serde(with = "go_duration")]
    streaming_connection_idle_timeout: Duration = secs(4 * 3600);
    #[serde(with = "go_duration")]
    node_status_update_frequency: Duration = secs(10);
    #[serde(with = "go_duration")]
    node_status_report_frequency: Duration = secs(300);
    node_lease_duration_seconds: i32 = 40;
    #[serde(rename = "imageMinimumGCAge", with = "go_duration")]
    image_minimum_gc_age: Duration = secs(120);
    #[serde(rename = "imageMaximumGCAge", with = "go_duration")]
    image_maximum_gc_age: Duration = secs(0);
    #[serde(rename = "imageGCHighThresholdPercent")]
    image_gc_high_threshold_percent: i32 = 85;
    #[serde(rename = "imageGCLowThresholdPercent")]
    image_gc_low_threshold_percent: i32 = 80;
    #[serde(with = "go_duration")]
    volume_stats_agg_period: Duration = secs(60);
    kubelet_cgroups: String = String::new();
    system_cgroups: String = String::new();
    cgroup_root: String = String::new();
    #[serde(rename = "cgroupsPerQOS")]
    cgroups_per_qos: bool = true;
    cgroup_driver: String = "cgroupfs".to_owned();
    cpu_manager_policy: String = "none".to_owned();
    #[serde(rename = "singleProcessOOMKill")]
    single_process_oom_kill: Option<bool> = None;
    cpu_manager_policy_options: BTreeMap<String, String> = BTreeMap::new();
    #[serde(with = "go_duration")]
    cpu_manager_reconcile_period: Duration = secs(10);
    memory_manager_policy: String = "None".to_owned();
    topology_manager_policy: String = "none".to_owned();
    topology_manager_scope: String = "container".to_owned();
    topology_manager_policy_options: BTreeMap<String, String> = BTreeMap::new();
    qos_reserved: BTreeMap<String, String> = BTreeMap::new();
    #[serde(with = "go_duration")]
    runtime_request_timeout: Duration = secs(120);
    hairpin_mode: String = "promiscuous-bridge".to_owned();
    max_pods: i32 = 110;
    #[serde(rename = "podCIDR")]
    pod_cidr: String = String::new();
    pod_pids_limit: i64 = -1;
    resolv_conf: String = "/etc/resolv.conf".to_owned();
    run_once: bool = false;
    #[serde(rename = "cpuCFSQuota")]
    cpu_cfs_quota: bool = true;
    #[serde(rename = "cpuCFSQuotaPeriod", with = "go_duration")]
    cpu_cfs_quota_period: Duration = Duration::from_millis(100);
    node_status_max_images: i32 = 50;
    max_open_files: i64 = 1_000_000;
    content_type: String = "application/vnd.kubernetes.protobuf".to_owned();
    #[serde(rename = "kubeAPIQPS")]
    kube_api_qps: i32 = 50;
    #[serde(rename = "kubeAPIBurst")]
    kube_api_burst: i32 = 100;
    serialize_image_pulls: Option<bool> = None;
    max_parallel_image_pulls: Option<i32> = None;
    eviction_hard: BTreeMap<String, String> = BTreeMap::new();
    eviction_soft: BTreeMap<String, String> = BTreeMap::new();
    eviction_soft_grace_period: BTreeMap<String, String> = BTreeMap::new();
    #[serde(with = "go_duration")]
    eviction_pressure_transition_period: Duration = secs(300);
    eviction_max_pod_grace_period: i32 = 0;
    eviction_minimum_reclaim: BTreeMap<String, String> = BTreeMap::new();
    merge_default_eviction_settings: bool = false;
    pods_per_core: i32 = 0;
    enable_controller_attach_detach: bool = true;
    protect_kernel_defaults: bool = false;
    #[serde(rename = "makeIPTablesUtilChains")]
    make_ip_tables_util_chains: bool = true;
    iptables_masquerade_bit: i32 = 14;
    iptables_drop_bit: i32 = 15;
    feature_gates: BTreeMap<String, bool> = BTreeMap::new();
    fail_swap_on: bool = true;
    memory_swap: MemorySwap = MemorySwap::default();
    #[serde(rename = "failCgroupV1")]
    fail_cgroup_v1: bool = true;
    container_log_max_size: String = "10Mi".to_owned();
    container_log_max_files: i32 = 5;
    container_log_max_workers: i32 = 1;
    #[serde(with = "go_duration")]
    container_log_monitor_interval: Duration = secs(10);
    config_map_and_secret_change_detection_strategy: String = "Watch".to_owned();
    system_reserved: BTreeMap<String, String> = BTreeMap::new();
    kube_reserved: BTreeMap<String, String> = BTreeMap::new();
    #[serde(rename = "reservedSystemCPUs")]
    reserved_system_cpus: String = String::new();
    show_hidden_metrics_for_version: String = String::new();
    system_reserved_cgroup: String = String::new();
    kube_reserved_cgroup: String = String::new();
    enforce_node_allocatable: Vec<String> = vec!["pods".to_owned()];
    allowed_unsafe_sysctls: Vec<String> = Vec::new();
    volume_plugin_dir: String = "/usr/libexec/kubernetes/kubelet-plugins/volume/exec/".to_owned();
    #[serde(rename = "providerID")]
    provider_id: String = String::new();
    kernel_memcg_notification: bool = false;
    logging: Logging = Logging::default();
    enable_system_log_handler: bool = true;
    enable_system_log_query: bool = false;
    #[serde(with = "go_duration")]
    shutdown_grace_period: Duration = secs(0);
    #[serde(with = "go_duration")]
    shutdown_grace_period_critical_pods: Duration = secs(0);
    shutdown_grace_period_by_pod_priority: Vec<ShutdownGracePeriodByPodPriority> = Vec::new();
    crash_loop_back_off: CrashLoopBackOff = CrashLoopBackOff::default();
    reserved_memory: Vec<MemoryReservation> = Vec::new();
    enable_profiling_handler: bool = true;
    enable_debug_flags_handler: bool = true;
    seccomp_default: bool = false;
    memory_throttling_factor: f64 = 0.9;
    memory_reservation_policy: String = "None".to_owned();
    register_with_taints: Vec<Taint> = Vec::new();
    register_node: bool = true;
    tracing: Option<Tracing> = None;
    local_storage_capacity_isolation: bool = true;
    container_runtime_endpoint: String = "unix:///run/containerd/containerd.sock".to_owned();
    image_service_endpoint: String = String::new();
    user_namespaces: UserNamespaces = UserNamespaces::default();
}

impl KubeletConfiguration {
    /// The image service's endpoint; by default the runtime's.
    pub fn image_endpoint(&self) -> &str {
        if self.image_service_endpoint.is_empty() {
            &self.container_runtime_endpoint
        } else {
            &self.image_service_endpoint
        }
    }

    /// Whether a feature gate that is off by default is set to true.
    pub fn has_gate(&self, name: &str) -> bool {
        self.feature_gates.get(name) == Some(&true)
    }

    /// `qosReserved.memory`: share of the memory requests of higher QoS classes that lower ones cannot
    /// use, in percent.
    pub fn qos_reserved_memory(&self) -> Option<i64> {
        percentage(self.qos_reserved.get("memory")?)
    }

    /// Most concurrent image pulls; `None` is no limit. As upstream, except for the default: one there,
    /// ten here.
    pub fn parallel_image_pulls(&self) -> Option<usize> {
        let most = self
            .max_parallel_image_pulls
            .map(|most| usize::try_from(most).unwrap_or(1).max(1));
        match self.serialize_image_pulls {
            Some(true) => Some(1),
            Some(false) => most,
            None => Some(most.unwrap_or(10)),
        }
    }

    /// Upstream's hard eviction thresholds on Linux.
    pub fn default_eviction_hard() -> BTreeMap<String, String> {
        [
            ("memory.available", "100Mi"),
            ("nodefs.available", "10%"),
            ("nodefs.inodesFree", "5%"),
            ("imagefs.available", "15%"),
            ("imagefs.inodesFree", "5%"),
        ]
        .map(|(signal, value)| (signal.to_owned(), value.to_owned()))
        .into()
    }

    /// Applies upstream's defaults to fields at their zero value. `given` returns whether the document
    /// has a field.
    pub(super) fn fill_in(&mut self, given: impl Fn(&str) -> bool) {
        let standard = KubeletConfiguration::default();
        if self.node_status_report_frequency.is_zero() || !given("nodeStatusReportFrequency") {
            // Upstream: without a report frequency, a given update frequency applies to reports.
            let update = self.node_status_update_frequency;
            let own = given("nodeStatusUpdateFrequency") && !update.is_zero();
            self.node_status_report_frequency = if own {
                update
            } else {
                standard.node_status_report_frequency
            };
        }
        macro_rules! when_empty {
            ($($field:ident: $empty:expr,)*) => {
                $(if self.$field == $empty { self.$field.clone_from(&standard.$field); })*
            };
        }
        when_empty! {
            sync_frequency: Duration::ZERO,
            file_check_frequency: Duration::ZERO,
            http_check_frequency: Duration::ZERO,
            streaming_connection_idle_timeout: Duration::ZERO,
            node_status_update_frequency: Duration::ZERO,
            image_minimum_gc_age: Duration::ZERO,
            volume_stats_agg_period: Duration::ZERO,
            cpu_manager_reconcile_period: Duration::ZERO,
            runtime_request_timeout: Duration::ZERO,
            eviction_pressure_transition_period: Duration::ZERO,
            cpu_cfs_quota_period: Duration::ZERO,
            container_log_monitor_interval: Duration::ZERO,
            port: 0,
            node_lease_duration_seconds: 0,
            max_pods: 0,
            kube_api_qps: 0,
            kube_api_burst: 0,
            event_burst: 0,
            registry_burst: 0,
            max_open_files: 0,
            address: "",
            healthz_bind_address: "",
            pod_logs_dir: "",
            cgroup_driver: "",
            cpu_manager_policy: "",
            memory_manager_policy: "",
            topology_manager_policy: "",
            topology_manager_scope: "",
            hairpin_mode: "",
            content_type: "",
            container_log_max_size: "",
            config_map_and_secret_change_detection_strategy: "",
            image_pull_credentials_verification_policy: "",
            memory_reservation_policy: "",
            volume_plugin_dir: "",
            container_runtime_endpoint: "",
        }
        // Listed CPUs replace reserved amounts.
        if let Some(cpus) = cpus(&self.reserved_system_cpus).filter(|cpus| *cpus > 0) {
            self.kube_reserved.remove("cpu");
            self.system_reserved
                .insert("cpu".to_owned(), cpus.to_string());
        }
        if self.eviction_hard.is_empty() && !given("evictionHard") {
            self.eviction_hard = Self::default_eviction_hard();
        } else if self.merge_default_eviction_settings {
            for (signal, value) in Self::default_eviction_hard() {
                self.eviction_hard.entry(signal).or_insert(value);
            }
        }
    }
}

/// Parses a percentage of `qosReserved`.
pub(super) fn percentage(text: &str) -> Option<i64> {
    let number = text.strip_suffix('%')?.parse().ok()?;
    (0..=100).contains(&number).then_some(number)
}

/// Number of CPUs in a list such as `0-2,5`; `None` for an invalid list.
pub(super) fn cpus(text: &str) -> Option<usize> {
    let mut listed = std::collections::BTreeSet::new();
    for part in text.split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (first.parse::<u16>().ok()?, last.parse::<u16>().ok()?);
        if last < first {
            return None;
        }
        listed.extend(first..=last);
    }
    Some(listed.len())
}
