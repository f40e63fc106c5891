//! Whether traces became slower from one set to another, and which of their steps did.

mod comparison;
mod groups;
mod judge;
mod table;
mod warnings;

use crate::summary::TraceSummary;

pub use comparison::{
    Comparison, DiffOptions, GroupComparison, ShiftVerdict, StepComparison, VersionChange,
};
pub use table::table;

/// Compares two sets of traces: within each shape, and if there are several shapes, over all of them. Only traces of the
/// same root, shape and outcome are compared with each other.
///
/// A step's samples are its times on the critical path, zero in a trace that lacks it.
pub fn compare(a: &[TraceSummary], b: &[TraceSummary], options: &DiffOptions) -> Comparison {
    let groups = groups::groups(a, b);
    let (shapes, pooled) = judge::judge(&groups, options);
    Comparison {
        names: options.names.clone(),
        traces: [a.len(), b.len()],
        version_changes: warnings::version_changes(a, b),
        warnings: warnings::warnings(a, b, &groups, options),
        shapes,
        pooled,
    }
}

#[cfg(test)]
mod tests;
