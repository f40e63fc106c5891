//! The decisions about pods' volumes, pure. From the types below to the rules above:
//!
//! - names and values: [`layout`], [`pod`], [`bytes`], [`blocked`], [`reference_key`];
//! - what manifests ask for: [`spec`], parsed by [`manifest`];
//! - what the API server reports: [`api_objects`], [`references`], [`node_info`], [`tokens`],
//!   [`certificates`];
//! - how a volume is had: [`claims`], [`csi`] and [`payload`] turn a spec into a [`mount_plan`], or
//!   into the reason why it is [`blocked`];
//! - [`desired_state`] and [`actual_state`], from which the [`reconciler`] makes operations;
//! - [`compute_status`] and [`events`]: what is published;
//! - [`state_of_world`], which composes all of it.

pub mod actual_state;
pub mod api_objects;
pub mod attach_limits;
pub mod blocked;
pub mod builtin;
pub mod bytes;
pub mod certificates;
pub mod claims;
pub mod cluster_trust_bundle;
pub mod compute_status;
pub mod csi;
mod csi_translation;
pub mod csi_volume;
pub mod desired_state;
pub mod downward;
pub mod events;
pub mod files;
pub mod layout;
pub mod lookup;
pub mod manifest;
pub mod mount_plan;
pub mod mounts;
pub mod nfs_volume;
pub mod node_info;
pub mod operation;
pub mod payload;
mod pem;
pub mod pod;
pub mod reconciler;
pub mod reference_key;
pub mod references;
pub mod resize;
pub mod spec;
pub mod state_of_world;
pub mod status;
pub mod status_messages;
pub mod sub_path;
pub mod tokens;
mod usage;
pub mod volume_counts;
pub mod warning_repeat;
pub mod warnings;

#[cfg(test)]
mod claims_tests;
#[cfg(test)]
mod csi_tests;
#[cfg(test)]
mod manifest_tests;
#[cfg(test)]
mod reconciler_tests;
#[cfg(test)]
mod state_of_world_tests;
