//! A runtime that takes half a minute for each call of some pods.

use std::sync::Arc;
use std::time::Duration;

use polylet_e2e::RUNS;
use polylet_e2e::runtime_proxy::CallDelay;
use serde_json::json;
use tokio::sync::Notify;

use crate::faulty_node::{FaultyNode, bound};

/// Calls whose message contains this name are delayed.
const SLOW: &[u8] = b"slow-runtime";
/// The delay.
const DELAY: Duration = Duration::from_secs(30);

/// Which calls are delayed.
pub(crate) fn delay() -> CallDelay {
    Arc::new(
        |_, message| match message.windows(SLOW.len()).any(|part| part == SLOW) {
            true => DELAY,
            false => Duration::ZERO,
        },
    )
}

/// Ends the delay of calls in progress on drop.
pub(crate) struct SlowCalls(Arc<Notify>);

impl Drop for SlowCalls {
    fn drop(&mut self) {
        self.0.notify_waiters();
    }
}

/// A pod whose start and whose probe are calls that take half a minute.
pub(crate) async fn slow_calls(node: &FaultyNode) -> SlowCalls {
    let probe = json!({ "exec": { "command": ["echo", "slow-runtime"] },
        "periodSeconds": 1, "timeoutSeconds": 2 });
    let more = json!({ "container": { "readinessProbe": probe } });
    node.create(&bound("slow-runtime", RUNS, &more)).await;
    SlowCalls(node.proxy.over())
}
