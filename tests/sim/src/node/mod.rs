//! The services: each one's real decisions, with the little around them that makes them a process.

pub mod config;
pub mod coordinator;
pub mod eviction;
pub mod images;
pub mod pleg;
pub mod prober;
pub mod status;
pub mod volumes;
