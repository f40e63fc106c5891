//! Decisions of eviction. Pure.
//!
//! A sync iteration goes from observed signals to the thresholds met, to node conditions, then frees
//! image space through image-gc, then evicts one pod by rank.

pub(crate) mod exposition;
pub(crate) mod limits;
pub(crate) mod message;
pub(crate) mod oom;
pub(crate) mod pods;
pub(crate) mod pressure;
pub(crate) mod rank;
pub(crate) mod signal;
pub(crate) mod stats;
pub(crate) mod summary;
pub(crate) mod synchronize;
#[cfg(test)]
mod tests;
pub(crate) mod threshold;
