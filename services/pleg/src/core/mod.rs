//! Decisions of pleg: which pods to inspect and when, and the status that results. Pure.

mod exit_poll;
mod inspection;
mod late_events;
mod listing;
mod pod_cache;
mod record_change;
mod relist_period;
mod runtime_health;
mod status;

pub use inspection::{CachedStatuses, FreshStatuses, Inspected, inspect_targets};
pub use listing::{ListedContainer, ListedPod, ListedSandbox, PodListing};
pub use pod_cache::{Action, PodCache, RuntimeEvent};
pub use record_change::{RecordChange, RuntimeEventKind};
pub use runtime_health::{HealthCheck, RuntimeHandler, RuntimeHealth, RuntimeStatus};
pub use status::{
    ContainerStatus, ContainerUser, LinuxResources, PodIdentity, PodStatus, SandboxStatus,
};
