//! Authorization, queries and content of responses. Pure.

pub(crate) mod access;
pub(crate) mod log_query;
pub(crate) mod metrics;
pub(crate) mod pods;
pub(crate) mod probes;
#[cfg(test)]
mod tests;
pub(crate) mod ttl_cache;
