//! What the configuration says to eviction.

use std::collections::BTreeMap;
use std::path::PathBuf;

use polylet_kit::config::go_duration;
use polylet_kit::{BoxError, Ctx};

use crate::core::round::Rules;
use crate::core::threshold;

/// The settings of this service.
pub(crate) struct Settings {
    pub(crate) rules: Rules,
    pub(crate) cgroup_root: String,
    /// Pods and their volumes lie here: `nodefs`.
    pub(crate) root_directory: PathBuf,
    pub(crate) pod_logs: PathBuf,
    pub(crate) runtime_endpoint: String,
    pub(crate) evict_static: bool,
    /// Whether pods are held to the limits they set on their use of the disk.
    pub(crate) local_limits: bool,
}

impl Settings {
    /// Reads the configuration.
    ///
    /// # Errors
    /// When a threshold is not one: all of them are named.
    pub(crate) fn read(ctx: &Ctx) -> Result<Self, BoxError> {
        let config = ctx.config();
        let (kubelet, polylet) = (&config.kubelet, &config.polylet);
        let mut graces = BTreeMap::new();
        for (signal, text) in &kubelet.eviction_soft_grace_period {
            let grace = go_duration::parse(text)
                .map_err(|why| format!("evictionSoftGracePeriod.{signal}: {why}"))?;
            graces.insert(signal.clone(), grace);
        }
        let (thresholds, errors) = threshold::parse(
            &kubelet.eviction_hard,
            &kubelet.eviction_soft,
            &graces,
            &kubelet.eviction_minimum_reclaim,
        );
        if !errors.is_empty() {
            let all: Vec<String> = errors.iter().map(ToString::to_string).collect();
            return Err(all.join("; ").into());
        }
        let maximum_grace_seconds =
            u32::try_from(kubelet.eviction_max_pod_grace_period).unwrap_or(0);
        Ok(Self {
            rules: Rules {
                thresholds,
                transition: kubelet.eviction_pressure_transition_period,
                maximum_grace_seconds,
                // Until the runtime has said where its images are.
                one_filesystem: true,
            },
            cgroup_root: kubelet.cgroup_root.clone(),
            root_directory: polylet.root_directory.clone(),
            pod_logs: PathBuf::from(&kubelet.pod_logs_dir),
            runtime_endpoint: kubelet.container_runtime_endpoint.clone(),
            evict_static: polylet.evict_static_pods,
            local_limits: kubelet.local_storage_capacity_isolation,
        })
    }
}
