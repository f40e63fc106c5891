//! Counts of certificates and of their renewals, under upstream's names.

use jiff::Timestamp;
use polylet_metrics::{Metric, register};

use crate::core::certificates::Validity;

/// A minute to four years.
const LIFETIME_SECONDS: [f64; 10] = [
    60.0,
    3600.0,
    14400.0,
    86400.0,
    604_800.0,
    2_592_000.0,
    7_776_000.0,
    15_552_000.0,
    31_104_000.0,
    124_416_000.0,
];

static CLIENT_TTL: Metric = Metric::seconds_until(
    "kubelet_certificate_manager_client_ttl_seconds",
    "[ALPHA] Gauge of the TTL (time-to-live) of the Kubelet's client certificate. The value is in seconds until certificate expiry (negative if already expired). If client certificate is invalid or unused, the value will be +INF.",
);
static CLIENT_ERRORS: Metric = Metric::counter(
    "kubelet_certificate_manager_client_expiration_renew_errors",
    "[ALPHA] Counter of certificate renewal errors.",
    &[],
);
static SERVER_TTL: Metric = Metric::seconds_until(
    "kubelet_certificate_manager_server_ttl_seconds",
    "[ALPHA] Gauge of the shortest TTL (time-to-live) of the Kubelet's serving certificate. The value is in seconds until certificate expiry (negative if already expired). If serving certificate is invalid or unused, the value will be +INF.",
);
static SERVER_LIFETIME: Metric = Metric::histogram(
    "kubelet_certificate_manager_server_rotation_seconds",
    "[ALPHA] Histogram of the number of seconds the previous certificate lived before being rotated.",
    &[],
    &LIFETIME_SECONDS,
);
static SERVER_ERRORS: Metric = Metric::counter(
    "kubelet_server_expiration_renew_errors",
    "[ALPHA] Counter of certificate renewal errors.",
    &[],
);

/// Makes the counts of the client certificate those of this process.
pub(super) fn register_client_counts() {
    register(&[&CLIENT_TTL, &CLIENT_ERRORS]);
}

/// Makes the counts of the serving certificate those of this process.
pub(super) fn register_server_counts() {
    register(&[&SERVER_TTL, &SERVER_LIFETIME, &SERVER_ERRORS]);
}

/// Sets the client certificate in use.
pub(super) fn set_client(validity: Option<Validity>) {
    CLIENT_TTL.set_time(validity.map(|validity| validity.until.as_second()));
}

/// Counts a client certificate that could not be had.
pub(super) fn count_client_error() {
    CLIENT_ERRORS.increment(&[]);
}

/// Sets the serving certificate in use.
pub(super) fn set_server(validity: Option<Validity>) {
    SERVER_TTL.set_time(validity.map(|validity| validity.until.as_second()));
}

/// Counts a serving certificate that another one replaces now.
pub(super) fn count_server_rotation(replaced: Validity, now: Timestamp) {
    SERVER_LIFETIME.observe(&[], now.duration_since(replaced.from).as_secs_f64());
}

/// Counts a serving certificate that could not be had.
pub(super) fn count_server_error() {
    SERVER_ERRORS.increment(&[]);
}
