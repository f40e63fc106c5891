//! Tells the status line of changes, whoever makes them.

use std::sync::LazyLock;

use tokio::sync::Notify;

/// Notified when peers or conditions of this process, which runs one service, have changed.
static CHANGED: LazyLock<Notify> = LazyLock::new(Notify::new);

/// Peers or conditions have changed.
pub(crate) fn notify() {
    CHANGED.notify_one();
}

/// Waits for the next change, or returns at once if there was one since the last call.
pub(crate) async fn notified() {
    CHANGED.notified().await;
}
