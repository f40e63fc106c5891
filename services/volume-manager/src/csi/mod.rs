//! CSI drivers: their registration, and the calls to them.

pub mod allocatable_refresh;
mod call_span;
pub mod client;
pub mod data;
pub mod device;
mod expand;
mod identity;
pub mod registry;
pub mod stats;
pub mod volume;
