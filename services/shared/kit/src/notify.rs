use std::time::Duration;

use sd_notify::NotifyState;

/// Notifies the service manager, if there is one.
fn notify(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::debug!(%error, "failed to notify the service manager");
    }
}

pub(crate) fn ready() {
    notify(&[NotifyState::Ready, NotifyState::MainPid(std::process::id())]);
}

/// Reports why this process fails, just before it exits.
pub(crate) fn failed(error: &str) {
    notify(&[NotifyState::Status(error)]);
}

pub(crate) fn stopping() {
    notify(&[NotifyState::Stopping]);
}

/// Sends watchdog notifications at half the interval of the service manager; returns at once
/// without one. They come from the thread that does all work, so a stuck process is silent.
pub(crate) async fn watchdog() {
    let Some(interval) = sd_notify::watchdog_enabled() else {
        return;
    };
    let mut timer = tokio::time::interval((interval / 2).max(Duration::from_millis(1)));
    loop {
        timer.tick().await;
        notify(&[NotifyState::Watchdog]);
    }
}
