//! Decisions: what devices there are, which containers have them, and which ones a container gets.

pub mod allocation;
pub mod allocations;
pub mod checkpoint;
pub mod inventory;
pub mod plugin_records;
pub mod pod_allocation;
pub mod registration;
pub mod run_options;

#[cfg(test)]
mod tests;
