//! Settings of the coordinator.

use std::time::Duration;

use polylet_kit::config::Config as NodeConfig;
use polylet_model::restart::CrashLoopBackOff;

use crate::core::node_resources::NodeResources;

/// Settings derived from the node's configuration.
#[derive(Clone, Debug)]
pub struct Config {
    /// The number of pods that start at the same time; measured at the runtime if it is not set.
    pub parallel_starts: Option<u32>,
    /// The longest delay between two starts of a crashing container.
    pub max_crash_loop_backoff: Duration,
    /// Patterns of sysctls that pods may set beyond the safe ones.
    pub allowed_unsafe_sysctls: Vec<String>,
    /// The node's resources; by default without limits.
    pub node_resources: NodeResources,
}

impl Config {
    /// The configured settings, or the kubelet's defaults, with these node resources.
    pub fn new(config: &NodeConfig, node_resources: NodeResources) -> Self {
        let kubelet = &config.kubelet;
        let cap = kubelet.crash_loop_back_off.max_container_restart_period;
        Config {
            parallel_starts: config.polylet.parallel_starts,
            max_crash_loop_backoff: cap.unwrap_or(CrashLoopBackOff::default().cap),
            allowed_unsafe_sysctls: kubelet.allowed_unsafe_sysctls.clone(),
            node_resources,
        }
    }
}
