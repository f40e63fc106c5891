//! Kubernetes' domain rules as pure functions: pods, resources, QoS, probes, restarts, statuses.
//!
//! The functions work on the types of the API. They do no I/O, read no clock and know nothing of
//! the wire format between services: the present time is an argument.

#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::indexing_slicing
    )
)]

pub mod allocation;
pub mod apparmor;
pub mod cgroup;
pub mod constants;
pub mod declared_features;
pub mod defaults;
pub mod env;
pub mod env_file;
pub mod extended_resource;
pub mod hash;
pub mod hook;
pub mod host_port;
pub mod ids;
pub mod image;
pub mod names;
pub mod node;
pub mod node_affinity;
pub mod pod;
pub mod pod_level;
pub mod probe;
pub mod qos;
pub mod quantity;
pub mod resources;
pub mod restart;
pub mod status;
pub mod sysctl;
pub mod taint;
pub mod userns;

pub use allocation::{PodAllocation, ResizableResources};
pub use ids::{ContainerId, PodUid, SandboxId};
pub use pod::{ContainerKind, Manifest, ManifestParseError, RestartPolicy};
