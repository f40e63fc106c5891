//! Expected differences from the kubelet, with their reasons.

use super::patterns::matches;

/// Differences of events.
mod events;
/// Differences of pod objects and of what containers see.
mod states;

/// An expected difference. In each pattern `*` matches any text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExpectedDifference {
    /// Pattern of the pod's name.
    pub pod: &'static str,
    /// Pattern of the checkpoint's name.
    pub checkpoint: &'static str,
    /// Pattern of the line, prefixed by its source: `-` the kubelet, `+` Polylet.
    pub line: &'static str,
    /// Reason for the difference.
    pub reason: &'static str,
}

impl ExpectedDifference {
    /// Whether this difference covers the line.
    pub fn covers(&self, pod: &str, checkpoint: &str, line: &str) -> bool {
        matches(pod, self.pod) && matches(checkpoint, self.checkpoint) && matches(line, self.line)
    }
}

/// All expected differences.
pub fn all() -> Vec<ExpectedDifference> {
    [states::EXPECTED, events::EXPECTED].concat()
}

const fn expected(
    pod: &'static str,
    checkpoint: &'static str,
    line: &'static str,
    reason: &'static str,
) -> ExpectedDifference {
    ExpectedDifference {
        pod,
        checkpoint,
        line,
        reason,
    }
}
