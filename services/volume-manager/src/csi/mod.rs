//! CSI drivers: how they make themselves known, and what they are asked to do.

pub mod client;
pub mod data;
pub mod device;
pub mod recount;
pub mod registry;
pub mod stats;
pub mod volume;
