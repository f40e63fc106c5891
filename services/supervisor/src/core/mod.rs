//! Decisions and views. Pure.

mod buffered_trace;
mod encoded_span;
pub mod handover;
pub mod liveness;
pub mod order;
pub mod path_table;
pub mod pods;
pub mod restart;
pub mod takeover;
pub mod text;
pub mod trace_buffer;
pub mod trace_root;
pub mod unit_state;
pub mod upgrade;
pub mod waterfall;
