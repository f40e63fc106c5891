//! What the coordinator begins with: settings, and what former lives of it left.

use std::collections::BTreeMap;
use std::time::Duration;

use polylet_kit::config::Config;
use polylet_model::Allocation;
use polylet_model::restart::BackOff;

use crate::core::hooks::Lifecycle;
use crate::core::room::Room;
use crate::core::view::Journal;

/// What the configuration decides.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How many pods start at once.
    pub parallel_starts: usize,
    /// The longest pause between two starts of a crashing container.
    pub crash_cap: Duration,
    /// Patterns of kernel parameters that pods may set beyond the safe ones.
    pub allowed_unsafe_sysctls: Vec<String>,
    /// What the node has to give; nothing is counted unless somebody says so.
    pub room: Room,
}

impl Settings {
    /// As configured, or upstream's defaults.
    pub fn of(config: &Config) -> Self {
        let kubelet = &config.kubelet;
        let cap = kubelet.crash_loop_back_off.max_container_restart_period;
        Settings {
            parallel_starts: usize::try_from(config.polylet.parallel_starts).unwrap_or(10),
            crash_cap: cap.unwrap_or(BackOff::default().cap),
            allowed_unsafe_sysctls: kubelet.allowed_unsafe_sysctls.clone(),
            room: Room::default(),
        }
    }
}

/// What former lives of the process left on disk, by pod.
#[derive(Clone, Debug, Default)]
pub struct Kept {
    /// The journal.
    pub entries: BTreeMap<String, Journal>,
    /// Sandbox numbers that were asked for without hearing the end.
    pub intents: BTreeMap<String, u32>,
    /// Stops and hooks under way.
    pub lifecycles: BTreeMap<String, Lifecycle>,
    /// What pods of a kubelet that held the node before had of it.
    pub taken_over: BTreeMap<String, Allocation>,
}
