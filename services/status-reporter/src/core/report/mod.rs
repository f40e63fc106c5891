//! What the cluster is told of pods: what is said here against what it holds.

pub(crate) mod merge;
pub(crate) mod patch;
mod pod;
pub(crate) mod pods;
pub(crate) mod want;

#[cfg(test)]
mod tests;
