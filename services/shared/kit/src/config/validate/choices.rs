//! Words of a fixed choice, addresses and paths.

use crate::config::KubeletConfiguration;
use crate::config::problems::Problems;

pub(super) fn choices(config: &KubeletConfiguration, problems: &mut Problems) {
    if config.enable_system_log_query && !config.enable_system_log_handler {
        let field = "enableSystemLogQuery";
        problems.add(
            field,
            "enableSystemLogHandler is required for enableSystemLogQuery".to_owned(),
        );
    }
    problems.one_of(
        "cgroupDriver",
        &config.cgroup_driver,
        &["cgroupfs", "systemd"],
    );
    problems.one_of(
        "cpuManagerPolicy",
        &config.cpu_manager_policy,
        &["none", "static"],
    );
    problems.one_of(
        "memoryManagerPolicy",
        &config.memory_manager_policy,
        &["None", "Static"],
    );
    problems.one_of(
        "topologyManagerPolicy",
        &config.topology_manager_policy,
        &["none", "best-effort", "restricted", "single-numa-node"],
    );
    let scope = &config.topology_manager_scope;
    problems.one_of("topologyManagerScope", scope, &["container", "pod"]);
    let behavior = &config.memory_swap.swap_behavior;
    problems.one_of(
        "memorySwap.swapBehavior",
        behavior,
        &["", "NoSwap", "LimitedSwap"],
    );
    problems.one_of(
        "configMapAndSecretChangeDetectionStrategy",
        &config.config_map_and_secret_change_detection_strategy,
        &["Watch", "Cache", "Get"],
    );
    problems.one_of(
        "authorization.mode",
        &config.authorization.mode,
        &["Webhook", "AlwaysAllow"],
    );
    problems.one_of(
        "memoryReservationPolicy",
        &config.memory_reservation_policy,
        &["None", "TieredReservation"],
    );
    problems.one_of(
        "hairpinMode",
        &config.hairpin_mode,
        &["promiscuous-bridge", "hairpin-veth", "none"],
    );
    problems.one_of("logging.format", &config.logging.format, &["text", "json"]);
    for name in &config.enforce_node_allocatable {
        problems.one_of(
            "enforceNodeAllocatable",
            name,
            &[
                "pods",
                "system-reserved",
                "kube-reserved",
                "system-reserved-compressible",
                "kube-reserved-compressible",
                "none",
            ],
        );
    }
    for taint in &config.register_with_taints {
        let effects = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
        problems.one_of("registerWithTaints.effect", &taint.effect, &effects);
    }
}

pub(super) fn addresses(config: &KubeletConfiguration, problems: &mut Problems) {
    for (field, value) in [
        ("address", &config.address),
        ("healthzBindAddress", &config.healthz_bind_address),
    ] {
        if value.parse::<std::net::IpAddr>().is_err() {
            problems.not_allowed(field, format!("{value:?}"), "allowed is an IP address");
        }
    }
    for (at, value) in config.cluster_dns.iter().enumerate() {
        if value.parse::<std::net::IpAddr>().is_err() {
            let field = format!("clusterDNS[{at}]");
            problems.not_allowed(&field, format!("{value:?}"), "allowed is an IP address");
        }
    }
    for (field, value) in [
        (
            "containerRuntimeEndpoint",
            config.container_runtime_endpoint.as_str(),
        ),
        ("imageServiceEndpoint", config.image_endpoint()),
    ] {
        if !value.starts_with("unix:///") && !value.starts_with('/') {
            let allowed = "allowed is a socket such as unix:///run/containerd/containerd.sock";
            problems.not_allowed(field, format!("{value:?}"), allowed);
        }
    }
    if !config.pod_logs_dir.starts_with('/') {
        let value = format!("{:?}", config.pod_logs_dir);
        problems.not_allowed("podLogsDir", value, "allowed is an absolute path");
    }
    let url = &config.static_pod_url;
    if !url.is_empty() && !url.starts_with("http://") && !url.starts_with("https://") {
        problems.not_allowed(
            "staticPodURL",
            format!("{url:?}"),
            "allowed is an http or https URL",
        );
    }
    if config.run_once {
        let message = "Runonce mode has been deprecated and should not be set".to_owned();
        problems.add("runOnce", message);
    }
    if config.tls_cert_file.is_empty() != config.tls_private_key_file.is_empty() {
        let message = "tlsCertFile and tlsPrivateKeyFile go together".to_owned();
        problems.add("tlsCertFile", message);
    }
    let ports = [
        ("port", config.port),
        ("readOnlyPort", config.read_only_port),
        ("healthzPort", config.healthz_port),
    ];
    for (at, (field, port)) in ports.iter().enumerate() {
        let mut before = ports.iter().take(at);
        if let Some((other, _)) = before.find(|(_, p)| p == port && *p != 0) {
            problems.not_allowed(field, port, &format!("{other} uses it already"));
        }
    }
}
