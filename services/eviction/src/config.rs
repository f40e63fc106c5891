//! The settings of eviction in the configuration.

use std::collections::BTreeMap;
use std::path::PathBuf;

use polylet_kit::config::go_duration;
use polylet_kit::{BoxError, Ctx};

use crate::core::synchronize::EvictionConfig;
use crate::core::threshold::{self, ThresholdSettings};

/// The settings.
pub(crate) struct Config {
    pub(crate) eviction: EvictionConfig,
    pub(crate) cgroup_root: String,
    /// `kubeletCgroups`, or empty.
    pub(crate) agent_cgroup: String,
    /// `systemCgroups`, or empty.
    pub(crate) system_cgroup: String,
    /// The directory of pods and their volumes: `nodefs`.
    pub(crate) root_directory: PathBuf,
    pub(crate) pod_logs: PathBuf,
    pub(crate) runtime_endpoint: String,
    pub(crate) evict_static_pods: bool,
    /// Whether pods are evicted for their local storage limits.
    pub(crate) local_storage_limits: bool,
}

impl Config {
    /// Reads the settings.
    ///
    /// # Errors
    /// Invalid thresholds, all of them.
    pub(crate) fn new(ctx: &Ctx) -> Result<Self, BoxError> {
        let config = ctx.config();
        let (kubelet, polylet) = (&config.kubelet, &config.polylet);
        let mut grace_periods = BTreeMap::new();
        for (signal, text) in &kubelet.eviction_soft_grace_period {
            let grace = go_duration::parse(text)
                .map_err(|error| format!("evictionSoftGracePeriod.{signal}: {error}"))?;
            grace_periods.insert(signal.clone(), grace);
        }
        let enforced = &kubelet.enforce_node_allocatable;
        let (thresholds, errors) = threshold::parse(ThresholdSettings {
            hard: &kubelet.eviction_hard,
            soft: &kubelet.eviction_soft,
            soft_grace: &grace_periods,
            minimum_reclaim: &kubelet.eviction_minimum_reclaim,
            pods_are_limited: enforced.iter().any(|name| name == "pods"),
        });
        if !errors.is_empty() {
            let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
            return Err(errors.join("; ").into());
        }
        let max_pod_grace = kubelet.eviction_max_pod_grace_period;
        Ok(Self {
            eviction: EvictionConfig {
                thresholds,
                pressure_transition_period: kubelet.eviction_pressure_transition_period,
                max_pod_grace_seconds: u32::try_from(max_pod_grace).unwrap_or(0),
                // Until the runtime reports its image file system.
                one_filesystem: true,
            },
            cgroup_root: kubelet.cgroup_root.clone(),
            agent_cgroup: kubelet.kubelet_cgroups.clone(),
            system_cgroup: kubelet.system_cgroups.clone(),
            root_directory: polylet.root_directory.clone(),
            pod_logs: PathBuf::from(&kubelet.pod_logs_dir),
            runtime_endpoint: kubelet.container_runtime_endpoint.clone(),
            evict_static_pods: polylet.evict_static_pods,
            local_storage_limits: kubelet.local_storage_capacity_isolation,
        })
    }
}
