use std::time::Duration;

use sd_notify::NotifyState;

/// Tells the service manager; without one it costs nothing.
fn tell(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::debug!(%error, "the service manager was not told");
    }
}

pub(crate) fn ready() {
    tell(&[NotifyState::Ready, NotifyState::MainPid(std::process::id())]);
}

pub(crate) fn stopping() {
    tell(&[NotifyState::Stopping]);
}

/// Pings for ever at half the interval that the service manager asked for; ends at once when it
/// did not ask. The pings come from the same thread as all work, so a stuck process is silent.
pub(crate) async fn watchdog() {
    let Some(interval) = sd_notify::watchdog_enabled() else {
        return;
    };
    let mut timer = tokio::time::interval((interval / 2).max(Duration::from_millis(1)));
    loop {
        timer.tick().await;
        tell(&[NotifyState::Watchdog]);
    }
}
