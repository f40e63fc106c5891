//! Decisions of eviction: pure. A round goes signals -> thresholds met -> conditions, then room by
//! image-gc, then one pod by rank.

pub(crate) mod facts;
pub(crate) mod limits;
pub(crate) mod message;
pub(crate) mod oom;
pub(crate) mod pressure;
pub(crate) mod rank;
pub(crate) mod round;
pub(crate) mod signal;
pub(crate) mod summary;
#[cfg(test)]
mod tests;
pub(crate) mod threshold;
