//! Ranges of numbers and durations.

use std::time::Duration;

use crate::config::KubeletConfiguration;
use crate::config::go_duration;
use crate::config::problems::Problems;
use crate::config::threshold::is_positive_quantity;

const HOUR: Duration = Duration::from_secs(3600);
const SECOND: Duration = Duration::from_secs(1);
const LONG: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

pub(super) fn images(config: &KubeletConfiguration, problems: &mut Problems) {
    let (high, low) = (
        config.image_gc_high_threshold_percent,
        config.image_gc_low_threshold_percent,
    );
    problems.within("imageGCHighThresholdPercent", high, 0, 100);
    problems.within("imageGCLowThresholdPercent", low, 0, 100);
    if low >= high {
        let allowed = format!("allowed is less than imageGCHighThresholdPercent, which is {high}");
        problems.not_allowed("imageGCLowThresholdPercent", low, &allowed);
    }
    let (least, most) = (config.image_minimum_gc_age, config.image_maximum_gc_age);
    if !most.is_zero() && most <= least {
        let allowed = format!(
            "allowed is 0s or more than imageMinimumGCAge, {}",
            go_duration::format(least)
        );
        problems.not_allowed("imageMaximumGCAge", go_duration::format(most), &allowed);
    }
    problems.at_least("registryPullQPS", config.registry_pull_qps, 0);
    problems.at_least("registryBurst", config.registry_burst, 0);
    if let Some(pulls) = config.max_parallel_image_pulls {
        problems.at_least("maxParallelImagePulls", pulls, 1);
        if pulls > 1 && config.serialize_image_pulls == Some(true) {
            problems.not_allowed(
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

pub(super) fn numbers(config: &KubeletConfiguration, problems: &mut Problems) {
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
        problems.not_allowed(
            "memoryThrottlingFactor",
            factor,
            "allowed is above 0, up to 1.0",
        );
    }
    // A negative size disables the rotation of logs.
    let log_size = &config.container_log_max_size;
    if !is_positive_quantity(log_size.strip_prefix('-').unwrap_or(log_size)) {
        let value = format!("{:?}", config.container_log_max_size);
        problems.not_allowed(
            "containerLogMaxSize",
            value,
            "allowed is a quantity such as 10Mi",
        );
    }
    let ids = config.user_namespaces.ids_per_pod;
    if ids < 65536 || ids % 65536 != 0 || ids > i64::from(u32::MAX) {
        problems.not_allowed(
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

pub(super) fn shutdown(config: &KubeletConfiguration, problems: &mut Problems) {
    let (all, critical) = (
        config.shutdown_grace_period,
        config.shutdown_grace_period_critical_pods,
    );
    if critical > all {
        let allowed = format!(
            "allowed is up to shutdownGracePeriod, {}",
            go_duration::format(all)
        );
        problems.not_allowed(
            "shutdownGracePeriodCriticalPods",
            go_duration::format(critical),
            &allowed,
        );
    }
    for (field, value) in [
        ("shutdownGracePeriod", all),
        ("shutdownGracePeriodCriticalPods", critical),
    ] {
        if !value.is_zero() && value < SECOND {
            problems.not_allowed(
                field,
                go_duration::format(value),
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
