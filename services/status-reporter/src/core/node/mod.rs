//! This node in the cluster: what its object says, what of it has to be written, and when. Pure.

pub(crate) mod claims;
pub(crate) mod conditions;
pub(crate) mod csi;
pub(crate) mod events;
pub(crate) mod facts;
pub(crate) mod features;
pub(crate) mod object;
pub(crate) mod patch;
pub(crate) mod report;
pub(crate) mod status;
#[cfg(test)]
mod tests;
