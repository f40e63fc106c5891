//! Traces of pods: their spans, what the end of a trace waited for, and whose time that was. Pure.
//!
//! - [`SpanRecord`], [`Trace`]: what services have recorded.
//! - [`critical_path()`]: disjoint segments that last as long as the trace, over [`PathNode`]s.
//! - [`TraceSummary`]: what a trace comes to, for comparisons of many.
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

mod critical_path;
mod path_tree;
mod span;
mod step_owner;
mod summary;
mod text;
mod trace;

pub use critical_path::{PathSegment, critical_path};
pub use path_tree::{PathNode, PathTree, depth_first};
pub use span::{
    POD_NAME, POD_NAMESPACE, POD_UID, SpanId, SpanRecord, TraceId, hex, parse_span_id,
    parse_trace_id,
};
pub use step_owner::StepOwner;
pub use summary::{StepName, TraceSummary, shape};
pub use trace::Trace;
