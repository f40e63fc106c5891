//! Crash points of calls that change something.

use std::future::Future;

/// Calls that change nothing, besides those whose name says so.
const READING: [&str; 6] = [
    "Attach",
    "Exec",
    "ImageFsInfo",
    "PortForward",
    "RuntimeConfig",
    "Version",
];

fn is_reading(name: &str) -> bool {
    ["List", "Get"].iter().any(|start| name.starts_with(start))
        || ["Status", "Stats"].iter().any(|end| name.ends_with(end))
        || READING.contains(&name)
}

/// The call with its points.
pub(super) async fn around<T>(name: &str, call: impl Future<Output = T>) -> T {
    if is_reading(name) {
        return call.await;
    }
    polylet_crash_points::around(format!("cri.{name}"), call).await
}
