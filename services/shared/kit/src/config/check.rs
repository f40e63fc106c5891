use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::load::ConfigProblem;
use super::{KubeletConfiguration, PolyletConfiguration, go_duration};

/// Problems of one file, in the order found.
pub(super) struct Problems {
    file: PathBuf,
    pub(super) found: Vec<ConfigProblem>,
}

impl Problems {
    pub(super) fn new(file: &Path) -> Problems {
        Problems {
            file: file.to_owned(),
            found: Vec::new(),
        }
    }

    pub(super) fn add(&mut self, field: &str, message: String) {
        let (file, field) = (self.file.clone(), field.to_owned());
        self.found.push(ConfigProblem {
            file,
            field,
            message,
        });
    }

    fn wrong(&mut self, field: &str, value: impl Display, allowed: &str) {
        self.add(field, format!("{value} is not allowed; {allowed}"));
    }

    fn at_least<T: PartialOrd + Display>(&mut self, field: &str, value: T, least: T) {
        if value < least {
            let allowed = format!("allowed is {least} or more");
            self.wrong(field, value, &allowed);
        }
    }

    fn within<T: PartialOrd + Display>(&mut self, field: &str, value: T, from: T, to: T) {
        if value < from || value > to {
            let allowed = format!("allowed is {from} to {to}");
            self.wrong(field, value, &allowed);
        }
    }

    fn one_of(&mut self, field: &str, value: &str, allowed: &[&str]) {
        if !allowed.contains(&value) {
            self.wrong(
                field,
                format!("{value:?}"),
                &format!("allowed are {}", allowed.join(", ")),
            );
        }
    }

    fn duration(&mut self, field: &str, value: Duration, from: Duration, to: Duration) {
        if value < from || value > to {
            let [value, from, to] = [value, from, to].map(go_duration::write);
            self.wrong(field, value, &format!("allowed is {from} to {to}"));
        }
    }
}

/// When eviction begins: what is left, absolutely or in parts of the capacity.
#[derive(Debug, Clone, PartialEq)]
pub struct EvictionThreshold {
    /// For example `memory.available`.
    pub signal: String,
    /// How much must be left.
    pub value: ThresholdValue,
}

/// The value of a threshold.
#[derive(Debug, Clone, PartialEq)]
pub enum ThresholdValue {
    /// Between 0 and 1.
    Fraction(f64),
    /// A Kubernetes quantity, as written.
    Quantity(String),
}

/// The signals that upstream knows.
const SIGNALS: &[&str] = &[
    "memory.available",
    "allocatableMemory.available",
    "nodefs.available",
    "nodefs.inodesFree",
    "imagefs.available",
    "imagefs.inodesFree",
    "containerfs.available",
    "containerfs.inodesFree",
    "pid.available",
];

/// Reads one entry of `evictionHard` and its kin. `None` means a threshold that is turned off
/// (`0%` and `100%`, as upstream has it).
pub fn parse_threshold(signal: &str, value: &str) -> Result<Option<EvictionThreshold>, String> {
    if !SIGNALS.contains(&signal) {
        return Err(format!(
            "no such signal; allowed are {}",
            SIGNALS.join(", ")
        ));
    }
    let of = |value| {
        Ok(Some(EvictionThreshold {
            signal: signal.to_owned(),
            value,
        }))
    };
    let Some(percent) = value.strip_suffix('%') else {
        return if is_positive_quantity(value) {
            of(ThresholdValue::Quantity(value.to_owned()))
        } else {
            Err(format!(
                "{value:?} is neither a percentage nor a quantity above zero"
            ))
        };
    };
    match percent.parse::<f64>() {
        Ok(percent) if percent == 0.0 || percent == 100.0 => Ok(None),
        Ok(percent) if percent > 0.0 && percent < 100.0 => {
            of(ThresholdValue::Fraction(percent / 100.0))
        }
        _ => Err(format!("{value:?} is not a percentage from 0% to 100%")),
    }
}

/// Whether `text` is a Kubernetes quantity above zero; what it amounts to is the model's matter.
fn is_positive_quantity(text: &str) -> bool {
    is_quantity(text) && text.bytes().any(|b| (b'1'..=b'9').contains(&b)) && !text.starts_with('-')
}

fn is_quantity(text: &str) -> bool {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let end = unsigned
        .find(|c: char| c != '.' && !c.is_ascii_digit())
        .unwrap_or(unsigned.len());
    let (number, suffix) = unsigned.split_at(end);
    let number_is = number.bytes().any(|b| b.is_ascii_digit())
        && number.bytes().filter(|b| *b == b'.').count() < 2;
    const SUFFIXES: &[&str] = &[
        "", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei",
    ];
    let exponent = || {
        suffix
            .strip_prefix(['e', 'E'])
            .is_some_and(|power| power.parse::<i8>().is_ok())
    };
    number_is && (SUFFIXES.contains(&suffix) || exponent())
}

const HOUR: Duration = Duration::from_secs(3600);
const SECOND: Duration = Duration::from_secs(1);
const LONG: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// Upstream's validation, as far as it concerns a node on Linux.
pub(super) fn kubelet(config: &KubeletConfiguration, problems: &mut Problems) {
    images(config, problems);
    eviction(config, problems);
    numbers(config, problems);
    choices(config, problems);
    addresses(config, problems);
    shutdown(config, problems);
    resources(config, problems);
}

fn images(config: &KubeletConfiguration, problems: &mut Problems) {
    let (high, low) = (
        config.image_gc_high_threshold_percent,
        config.image_gc_low_threshold_percent,
    );
    problems.within("imageGCHighThresholdPercent", high, 0, 100);
    problems.within("imageGCLowThresholdPercent", low, 0, 100);
    if low >= high {
        let allowed = format!("allowed is less than imageGCHighThresholdPercent, which is {high}");
        problems.wrong("imageGCLowThresholdPercent", low, &allowed);
    }
    let (least, most) = (config.image_minimum_gc_age, config.image_maximum_gc_age);
    if !most.is_zero() && most <= least {
        let allowed = format!(
            "allowed is 0s or more than imageMinimumGCAge, {}",
            go_duration::write(least)
        );
        problems.wrong("imageMaximumGCAge", go_duration::write(most), &allowed);
    }
    problems.at_least("registryPullQPS", config.registry_pull_qps, 0);
    problems.at_least("registryBurst", config.registry_burst, 0);
    if let Some(pulls) = config.max_parallel_image_pulls {
        problems.at_least("maxParallelImagePulls", pulls, 1);
        if pulls > 1 && config.serialize_image_pulls == Some(true) {
            problems.wrong(
                "maxParallelImagePulls",
                pulls,
                "allowed is 1 while serializeImagePulls is true",
            );
        }
    }
    problems.one_of(
        "imagePullCredentialsVerificationPolicy",
        &config.image_pull_credentials_verification_policy,
        &[
            "NeverVerify",
            "NeverVerifyPreloadedImages",
            "NeverVerifyAllowlistedImages",
            "AlwaysVerify",
        ],
    );
}

fn eviction(config: &KubeletConfiguration, problems: &mut Problems) {
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
            problems.wrong(&field, format!("{amount:?}"), allowed);
        }
    }
    let grace = config.eviction_max_pod_grace_period;
    problems.at_least("evictionMaxPodGracePeriod", grace, 0);
}

fn numbers(config: &KubeletConfiguration, problems: &mut Problems) {
    problems.at_least("maxPods", config.max_pods, 0);
    problems.at_least("podsPerCore", config.pods_per_core, 0);
    problems.at_least("podPidsLimit", config.pod_pids_limit, -1);
    problems.at_least("maxOpenFiles", config.max_open_files, 0);
    problems.at_least("eventRecordQPS", config.event_record_qps, 0);
    problems.at_least("eventBurst", config.event_burst, 0);
    problems.at_least("kubeAPIQPS", config.kube_api_qps, -1);
    problems.at_least("kubeAPIBurst", config.kube_api_burst, 0);
    problems.at_least("nodeStatusMaxImages", config.node_status_max_images, -1);
    problems.at_least(
        "nodeLeaseDurationSeconds",
        config.node_lease_duration_seconds,
        1,
    );
    problems.at_least("containerLogMaxFiles", config.container_log_max_files, 2);
    problems.at_least(
        "containerLogMaxWorkers",
        config.container_log_max_workers,
        1,
    );
    problems.within("oomScoreAdj", config.oom_score_adj, -1000, 1000);
    problems.within(
        "iptablesMasqueradeBit",
        config.iptables_masquerade_bit,
        0,
        31,
    );
    problems.within("iptablesDropBit", config.iptables_drop_bit, 0, 31);
    let factor = config.memory_throttling_factor;
    if !(factor > 0.0 && factor <= 1.0) {
        problems.wrong(
            "memoryThrottlingFactor",
            factor,
            "allowed is above 0, up to 1.0",
        );
    }
    if !is_positive_quantity(&config.container_log_max_size) {
        let value = format!("{:?}", config.container_log_max_size);
        problems.wrong(
            "containerLogMaxSize",
            value,
            "allowed is a quantity such as 10Mi",
        );
    }
    let ids = config.user_namespaces.ids_per_pod;
    if ids < 65536 || ids % 65536 != 0 || ids > i64::from(u32::MAX) {
        problems.wrong(
            "userNamespaces.idsPerPod",
            ids,
            "allowed are multiples of 65536",
        );
    }
    let milli = Duration::from_millis(1);
    problems.duration(
        "cpuCFSQuotaPeriod",
        config.cpu_cfs_quota_period,
        milli,
        SECOND,
    );
    problems.duration(
        "containerLogMonitorInterval",
        config.container_log_monitor_interval,
        3 * SECOND,
        LONG,
    );
    if let Some(longest) = config.crash_loop_back_off.max_container_restart_period {
        let field = "crashLoopBackOff.maxContainerRestartPeriod";
        problems.duration(field, longest, SECOND, 300 * SECOND);
    }
    let idle = config.streaming_connection_idle_timeout;
    problems.duration(
        "streamingConnectionIdleTimeout",
        idle,
        SECOND,
        10_000 * HOUR,
    );
}

fn choices(config: &KubeletConfiguration, problems: &mut Problems) {
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
    let version = &config.tls_min_version;
    problems.one_of(
        "tlsMinVersion",
        version,
        &["", "VersionTLS12", "VersionTLS13"],
    );
    for part in &config.enforce_node_allocatable {
        problems.one_of(
            "enforceNodeAllocatable",
            part,
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

fn addresses(config: &KubeletConfiguration, problems: &mut Problems) {
    for (field, value) in [
        ("address", &config.address),
        ("healthzBindAddress", &config.healthz_bind_address),
    ] {
        if value.parse::<std::net::IpAddr>().is_err() {
            problems.wrong(field, format!("{value:?}"), "allowed is an IP address");
        }
    }
    for (at, value) in config.cluster_dns.iter().enumerate() {
        if value.parse::<std::net::IpAddr>().is_err() {
            let field = format!("clusterDNS[{at}]");
            problems.wrong(&field, format!("{value:?}"), "allowed is an IP address");
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
            problems.wrong(field, format!("{value:?}"), allowed);
        }
    }
    if !config.pod_logs_dir.starts_with('/') {
        let value = format!("{:?}", config.pod_logs_dir);
        problems.wrong("podLogsDir", value, "allowed is an absolute path");
    }
    let url = &config.static_pod_url;
    if !url.is_empty() && !url.starts_with("http://") && !url.starts_with("https://") {
        problems.wrong(
            "staticPodURL",
            format!("{url:?}"),
            "allowed is an http or https URL",
        );
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
        if let Some((other, _)) = ports[..at].iter().find(|(_, p)| p == port && *p != 0) {
            problems.wrong(field, port, &format!("{other} has it already"));
        }
    }
}

fn shutdown(config: &KubeletConfiguration, problems: &mut Problems) {
    let (all, critical) = (
        config.shutdown_grace_period,
        config.shutdown_grace_period_critical_pods,
    );
    if critical > all {
        let allowed = format!(
            "allowed is up to shutdownGracePeriod, {}",
            go_duration::write(all)
        );
        problems.wrong(
            "shutdownGracePeriodCriticalPods",
            go_duration::write(critical),
            &allowed,
        );
    }
    for (field, value) in [
        ("shutdownGracePeriod", all),
        ("shutdownGracePeriodCriticalPods", critical),
    ] {
        if !value.is_zero() && value < SECOND {
            problems.wrong(
                field,
                go_duration::write(value),
                "allowed is 0s, or 1s or more",
            );
        }
    }
    let by_priority = &config.shutdown_grace_period_by_pod_priority;
    if !by_priority.is_empty() && !all.is_zero() {
        let message = "not together with shutdownGracePeriod".to_owned();
        problems.add("shutdownGracePeriodByPodPriority", message);
    }
    for entry in by_priority {
        let field = "shutdownGracePeriodByPodPriority.shutdownGracePeriodSeconds";
        problems.at_least(field, entry.shutdown_grace_period_seconds, 0);
    }
}

fn resources(config: &KubeletConfiguration, problems: &mut Problems) {
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
                problems.wrong(&field, format!("{amount:?}"), allowed);
            }
        }
    }
    let enforced = &config.enforce_node_allocatable;
    if enforced.iter().any(|part| part == "none") && enforced.len() > 1 {
        problems.add(
            "enforceNodeAllocatable",
            "none goes with nothing else".to_owned(),
        );
    }
    for (part, field, cgroup) in [
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
        if enforced.iter().any(|enforced| enforced == part) && cgroup.is_empty() {
            problems.add(
                field,
                format!("missing; enforceNodeAllocatable names {part}"),
            );
        }
    }
    if !config.cgroups_per_qos && enforced.iter().any(|part| part != "none") {
        let message = "false only while enforceNodeAllocatable is empty or none".to_owned();
        problems.add("cgroupsPerQOS", message);
    }
}

/// Polylet's own document.
pub(super) fn polylet(config: &PolyletConfiguration, problems: &mut Problems) {
    let name = &config.node_name;
    let fits = !name.is_empty()
        && name.len() <= 253
        && name.split('.').all(|label| {
            !label.is_empty()
                && !label.starts_with('-')
                && !label.ends_with('-')
                && label
                    .bytes()
                    .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
        });
    if !fits {
        let allowed = "allowed are lower-case letters, digits, '-' and '.', up to 253";
        problems.wrong("nodeName", format!("{name:?}"), allowed);
    }
    for (field, path) in [
        ("runDirectory", &config.run_directory),
        ("stateDirectory", &config.state_directory),
        ("rootDirectory", &config.root_directory),
        ("containerLogsDirectory", &config.container_logs_directory),
    ] {
        if !path.is_absolute() {
            problems.wrong(field, format!("{path:?}"), "allowed is an absolute path");
        }
    }
    // A Unix socket's path must fit into 108 bytes, the longest service name included.
    let longest = "/status-reporter.sock.new".len();
    if config.run_directory.as_os_str().len() + longest > 107 {
        let value = config.run_directory.display();
        problems.wrong("runDirectory", value, "allowed are up to 82 bytes");
    }
    problems.within("parallelStarts", config.parallel_starts, 1, 1000);
    problems.at_least("traceRing.maxSpans", config.trace_ring.max_spans, 1);
    problems.at_least("traceRing.maxBytes", config.trace_ring.max_bytes, 1024);
}
