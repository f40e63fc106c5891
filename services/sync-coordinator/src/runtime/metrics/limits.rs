//! How many calls to the runtime may be in flight.

use polylet_metrics::{Metric, register};

static CONCURRENT_CALLS: Metric = Metric::gauge(
    "polylet_runtime_concurrent_calls_limit",
    "How many pod starts, stops of sandboxes or removals are under way in the container runtime at most: measured, or as configured.",
    &["calls"],
);

/// Calls that share a limit.
#[derive(Clone, Copy, Debug)]
pub enum LimitedCalls {
    /// Creating and starting sandboxes and containers.
    Start,
    /// Stopping sandboxes.
    StopSandbox,
    /// Removing sandboxes and containers.
    Remove,
}

pub(super) fn register_counts() {
    register(&[&CONCURRENT_CALLS]);
}

/// Sets the present limit.
pub fn set_limit(calls: LimitedCalls, limit: usize) {
    let name = match calls {
        LimitedCalls::Start => "start",
        LimitedCalls::StopSandbox => "stop_sandbox",
        LimitedCalls::Remove => "remove",
    };
    CONCURRENT_CALLS.set(&[name], limit as f64);
}
