//! Words of the domain: pods, ids, quantities, QoS, probes, restarts, phases.
//!
//! Pure functions over the API's own types. Nothing here waits, reads a clock,
//! touches a file or knows the wire: a moment that matters comes in as an argument.

pub mod allocation;
pub mod apparmor;
pub mod cgroup;
pub mod constants;
pub mod defaults;
pub mod env;
pub mod env_file;
pub mod hash;
pub mod hook;
pub mod ids;
pub mod image;
pub mod names;
pub mod node;
pub mod pod;
pub mod ports;
pub mod probe;
pub mod qos;
pub mod quantity;
pub mod resources;
pub mod restart;
pub mod selector;
pub mod status;
pub mod sysctl;
pub mod taint;
pub mod userns;

pub use allocation::{Allocation, Amounts};
pub use ids::{ContainerId, PodUid, SandboxId};
pub use pod::{ContainerKind, Manifest, ManifestError, RestartPolicy};
