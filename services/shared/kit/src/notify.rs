//! Messages to the service manager, in the protocol of `sd_notify(3)`.

use std::time::Duration;

use polylet_watch::until_pulse;
use sd_notify::NotifyState;

use crate::HealthConditions;
use crate::watchdog::{WatchdogSocket, record_descriptors};

/// The variable with the error of a process that fails, beside `STATUS`, which also has the state of one
/// that does not. Our own: `sd_notify(3)` has the prefix `X_` for such.
pub const ERROR_VARIABLE: &str = "X_POLYLET_ERROR";

/// The variable with which a process that has drained says how many microseconds it may take to exit; our own,
/// too. Its next process may be started now: it waits for the lock.
pub const DRAINED_VARIABLE: &str = "X_POLYLET_DRAINED";

/// Set by a service manager that starts the next process of a service when the present one has drained.
pub const OVERLAP_VARIABLE: &str = "POLYLET_OVERLAP";

/// Whether a service manager receives the messages of this process.
pub(crate) fn has_manager() -> bool {
    std::env::var_os("NOTIFY_SOCKET").is_some()
}

/// Notifies the service manager, if there is one.
fn notify(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::debug!(%error, "failed to notify the service manager");
    }
}

pub(crate) fn ready() {
    notify(&[NotifyState::Ready, NotifyState::MainPid(std::process::id())]);
}

/// Publishes the state of this process in one line.
pub(crate) fn status(line: &str) {
    notify(&[NotifyState::Status(line)]);
}

/// Reports why this process fails, just before it exits.
pub(crate) fn failed(error: &str) {
    // A message is lines of variables.
    let error = error.replace(['\n', '\r'], " ");
    let own = format!("{ERROR_VARIABLE}={error}");
    notify(&[NotifyState::Status(&error), NotifyState::Custom(&own)]);
}

/// Whether the service manager starts the next process when this one has drained.
pub(crate) fn starts_next_process() -> bool {
    std::env::var_os(OVERLAP_VARIABLE).is_some()
}

/// Lets the next process be started: this one has nothing left to do but to exit, within this time.
pub(crate) fn drained(exits_within: Duration) {
    let own = format!("{DRAINED_VARIABLE}={}", exits_within.as_micros());
    notify(&[NotifyState::Custom(&own)]);
}

pub(crate) fn stopping() {
    notify(&[NotifyState::Stopping, NotifyState::Status("Stopping")]);
}

/// Sends watchdog notifications with each pulse, or at half the interval of the service manager where a
/// pulse would be late; returns at once without one. They come from the thread that does all work, so a
/// stuck process is silent.
pub async fn watchdog() {
    let Some(interval) = sd_notify::watchdog_enabled() else {
        return;
    };
    let half = (interval / 2).max(Duration::from_millis(1));
    let socket = WatchdogSocket::open();
    loop {
        if !socket.ping() {
            notify(&[NotifyState::Watchdog]);
        }
        record_descriptors(&HealthConditions::of_process());
        let pulse = until_pulse();
        let is_too_late = pulse > interval.mul_f64(2.0 / 3.0);
        tokio::time::sleep(if is_too_late { half } else { pulse }).await;
    }
}
