//! Decisions and views: pure, no clock, no I/O.

pub mod critical_path;
pub mod order;
mod packed;
pub mod pods;
pub mod restart;
pub mod ring;
pub mod text;
pub mod waterfall;
