//! Differences that are right, and why.

use super::words::looks_like;

/// What people are told.
mod events;
/// What the cluster holds of pods, and what their containers see.
mod states;

/// A difference that is right. In each pattern `*` stands for anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Right {
    /// The pod's name.
    pub pod: &'static str,
    /// The name of the checkpoint.
    pub at: &'static str,
    /// The line, behind who says it: `-` the kubelet, `+` Polylet.
    pub line: &'static str,
    /// Why.
    pub why: &'static str,
}

impl Right {
    /// Whether it is this difference.
    pub fn is(&self, pod: &str, at: &str, line: &str) -> bool {
        looks_like(pod, self.pod) && looks_like(at, self.at) && looks_like(line, self.line)
    }
}

/// All of them.
pub fn all() -> Vec<Right> {
    [states::RIGHT, events::RIGHT].concat()
}

const fn right(
    pod: &'static str,
    at: &'static str,
    line: &'static str,
    why: &'static str,
) -> Right {
    Right { pod, at, line, why }
}
