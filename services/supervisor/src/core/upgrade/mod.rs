//! Decisions of upgrades and rollbacks: whether a program is compatible with what runs, what is done next,
//! and whether a service is in step with its peers. Pure.

pub mod compatibility;
pub mod in_step;
pub mod journal;
pub mod next;
pub mod own;
pub mod program;
pub mod starts_after;
