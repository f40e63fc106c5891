//! Decisions and views. Pure.

mod buffered_trace;
mod encoded_span;
mod encoded_summary;
pub mod export_sampling;
pub mod handover;
pub mod liveness;
pub mod order;
mod packed_spans;
pub mod path_table;
pub mod pods;
pub mod restart;
pub mod start_steps;
mod string_table;
pub mod summary_buffer;
pub mod takeover;
pub mod text;
pub mod trace_buffer;
#[cfg(test)]
mod trace_fixture;
mod trace_labels;
pub mod trace_list;
pub mod trace_root;
pub mod trace_top;
pub mod trace_why;
pub mod unit_state;
pub mod upgrade;
pub mod waterfall;
