//! Traces of pods: their spans, what the end of a trace waited for, and whose time that was. Pure.
//!
//! - [`SpanRecord`], [`Trace`]: what services have recorded.
//! - [`critical_path()`]: disjoint segments that last as long as the trace, over [`PathNode`]s.
//! - [`TraceSummary`]: what a trace comes to, for comparisons of many.
//! - [`TraceFilter`]: which traces are meant.
//! - [`path_statistics()`], [`what_if`], [`slow_steps()`]: where the time of many traces went, and why one took longer.
//! - [`attribute_differences()`]: in which attributes a trace differs from others.
//! - [`diff`]: which steps became slower from one set of traces to another.
//! - [`mod@format`]: traces in the formats of other tools.
//! - [`stats`]: whether two samples differ, and by how much.
//! - [`StepOwner`]: who has to be asked why a step took its time.

#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::indexing_slicing
    )
)]

pub mod diff;
pub mod format;
pub mod stats;

mod attribute_differences;
mod critical_path;
mod filter;
mod path_statistics;
mod path_tree;
mod slow_steps;
mod span;
mod step_owner;
mod summary;
#[cfg(test)]
mod test_support;
mod text;
mod trace;

pub use attribute_differences::{AttributeDifference, attribute_differences};
pub use critical_path::{PathSegment, critical_path};
pub use filter::TraceFilter;
pub use path_statistics::{
    ChangeEffect, GroupStatistics, PathStatistics, StepChange, StepGrouping, TimeQuantiles,
    path_statistics, what_if,
};
pub use path_tree::{PathNode, PathTree, depth_first};
pub use slow_steps::{SlowSteps, TimeAmongOthers, VersionDifference, slow_steps};
pub use span::{
    KERNEL_VERSION, NODE_NAME, POD_NAME, POD_NAMESPACE, POD_UID, ROOT_FACTS, RUNTIME_NAME,
    RUNTIME_VERSION, SpanId, SpanRecord, TraceId, hex, is_own_service, parse_span_id,
    parse_trace_id,
};
pub use step_owner::StepOwner;
pub use summary::{INCOMPLETE, KERNEL, NODE, StepName, TraceSummary, shape, versions};
pub use trace::Trace;
