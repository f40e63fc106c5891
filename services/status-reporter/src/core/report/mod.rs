//! Pod status patches: what this node publishes against what the API server has.

pub(crate) mod desired;
pub(crate) mod merge;
pub(crate) mod patch;
mod pod_entry;
pub(crate) mod queue;
pub(crate) mod request;

#[cfg(test)]
mod tests;
