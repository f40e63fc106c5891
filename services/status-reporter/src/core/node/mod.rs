//! The Node, its CSINode and claims of resized volumes: their content, and when it is written. Pure.

pub(crate) mod claim_resize;
pub(crate) mod conditions;
pub(crate) mod csi_node;
pub(crate) mod events;
mod extended_resources;
pub(crate) mod facts;
pub(crate) mod object;
pub(crate) mod patch;
pub(crate) mod report_schedule;
pub(crate) mod status;
#[cfg(test)]
mod tests;
pub(crate) mod tracker;
