//! CSI drivers: how they make themselves known, and what they are asked to do.

pub mod client;
pub mod registry;
pub mod volume;
