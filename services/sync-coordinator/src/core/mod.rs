//! Decisions: no wire type, no clock, no I/O.
//!
//! Everything known of one pod is a [`view::PodSyncStatus`]. [`pod_worker::plan`] takes it, with the
//! state of the node, as a [`view::View`] and returns a [`plan::Plan`]: the steps to start now, when
//! to decide again, and what to publish. Results of steps and reports of other services are applied
//! by [`apply_result`].
//!
//! Imports point downwards, in this order: [`events`], [`apply_result`], [`clock_step`]; [`pod_worker`]; [`resize`];
//! [`admission`]; [`plan`]; [`start_limiter`], [`concurrency_limit`]; [`view`]; [`step`]; [`checkpoint`]; [`pod_spec`]; [`devices`],
//! [`node_resources`], [`runtime_state`], [`volume_state`]. `pod_counts` and `pod_syncs` are above [`plan`]. The other modules stand alone.

pub mod admission;
pub mod apply_result;
pub mod checkpoint;
pub mod clock_step;
pub mod concurrency_limit;
pub mod credentials;
pub mod devices;
pub mod events;
pub mod log_rotation;
pub mod node_resources;
pub mod orphans;
pub mod plan;
pub(crate) mod pod_counts;
pub mod pod_spec;
pub(crate) mod pod_syncs;
pub mod pod_worker;
pub mod resize;
pub mod runtime_state;
pub mod sandbox_annotations;
pub mod start_limiter;
pub mod step;
#[cfg(test)]
mod test_support;
pub mod view;
pub mod volume_mount;
pub mod volume_state;
