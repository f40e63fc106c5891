//! Authorization, queries and content of responses. Pure.

pub(crate) mod access;
pub(crate) mod checkpoint;
pub(crate) mod configz;
pub(crate) mod connections;
pub(crate) mod file_server;
pub(crate) mod health;
pub(crate) mod log_query;
pub(crate) mod log_target;
pub(crate) mod metrics;
pub(crate) mod node_log_query;
pub(crate) mod not_served;
pub(crate) mod page_form;
pub(crate) mod pods;
pub(crate) mod pprof;
pub(crate) mod probes;
pub(crate) mod request_labels;
pub(crate) mod review_limit;
pub(crate) mod streaming;
#[cfg(test)]
mod tests;
pub(crate) mod ttl_cache;
pub(crate) mod verbosity;
pub(crate) mod zpages;
