//! The services: the real decisions of each, in a simulated process.

pub mod config;
pub mod coordinator;
pub mod devices;
pub mod eviction;
pub mod images;
pub mod pleg;
pub mod prober;
pub mod status;
pub mod volumes;
