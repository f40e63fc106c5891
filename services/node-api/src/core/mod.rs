//! Decisions of node-api: pure.

pub(crate) mod access;
pub(crate) mod cache;
pub(crate) mod log_query;
pub(crate) mod metrics;
pub(crate) mod pods;
pub(crate) mod probes;
#[cfg(test)]
mod tests;
