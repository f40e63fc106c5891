//! Decisions of the prober: which probes run, when each is due, and what its results mean. Pure.

pub(crate) mod engine;
pub(crate) mod metrics;
pub(crate) mod plan;
#[cfg(test)]
pub(crate) mod test_support;
pub mod types;
pub(crate) mod worker;
