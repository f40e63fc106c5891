//! Fixtures: a root directory, a volume manager without its socket, and pods.
#![allow(dead_code, missing_docs, unreachable_pub, unused_imports)]

mod manager;
mod pods;
mod root;

use std::time::Duration;

pub use manager::Manager;
pub use pods::{all_mounted, cluster_pod, message_is, pod, pod_name};
pub use root::Root;

/// How long to wait for a condition.
pub const TIMEOUT: Duration = Duration::from_secs(20);

/// Waits for a condition of the file system or of another thread.
pub async fn eventually(what: &str, condition: impl Fn() -> bool) {
    let deadline = tokio::time::Instant::now() + TIMEOUT;
    while !condition() {
        assert!(tokio::time::Instant::now() < deadline, "timeout: {what}");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Runs a test on a single-threaded runtime, as the service.
pub fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(16)
        .build()
        .unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, test);
}

/// Whether the tests run as root: mounting needs it.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}
