//! Decisions and views. Pure.

pub mod critical_path;
mod encoded_span;
pub mod handover;
pub mod liveness;
pub mod order;
pub mod pods;
pub mod restart;
pub mod ring;
pub mod span;
pub mod takeover;
pub mod text;
pub mod unit_state;
pub mod upgrade;
pub mod waterfall;
