//! Crash points: a process of a test program kills itself at a chosen side effect.
//!
//! Every side effect has two points, before and after it; a call to another program has a third one
//! while it runs. At each point the process looks into the directory that `POLYLET_CRASH_POINTS` names:
//!
//! - `record`: if there is such a file, the point is appended as a line
//!   `<service> <before|during|after> <effect>`.
//! - `armed`: if this file has the same line, preceded by a number, the number is decremented; at 1 the
//!   file is renamed to `crashed`, and the process ends by SIGKILL: no destructor runs and nothing is
//!   written. A restarted process finds no armed point, so one line crashes once.
//!
//! Effects are named by what they change, without uids and numbers, so that two runs of a scenario have
//! the same names: `rename pods/*/etc-hosts`, `cri.StartContainer`, `api.PATCH /api/v1/…`.
//!
//! System calls are intercepted by the feature `system-calls`, for the whole program and without a line
//! in it; calls to the runtime and the API server pass through [`around`]. None of this is in a program
//! that is shipped: the features are off by default, and a build without debug assertions fails.

#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::indexing_slicing
    )
)]

#[cfg(all(feature = "system-calls", not(debug_assertions)))]
compile_error!("crash points are for tests and not for release builds");

mod control;
mod name;
#[cfg(feature = "system-calls")]
mod system_calls;

use std::future::Future;
use std::time::Duration;

use control::Phase;

/// The environment variable that names the directory of `record` and `armed`.
pub const VARIABLE: &str = "POLYLET_CRASH_POINTS";

/// When a call is interrupted after it began: long enough to have reached the other program.
const DURING: Duration = Duration::from_millis(20);

/// Makes sure that the intercepted system calls are part of the program: without a use of them the
/// linker would take those of the C library.
#[cfg(feature = "system-calls")]
pub fn install() {
    system_calls::install();
}

/// Runs a call to another program, with a point before, during and after it.
pub async fn around<T>(effect: String, call: impl Future<Output = T>) -> T {
    control::reach(Phase::Before, || effect.clone());
    if control::reach_later(&effect) {
        std::thread::spawn(|| {
            std::thread::park_timeout(DURING);
            control::kill();
        });
    }
    let result = call.await;
    control::reach(Phase::After, || effect);
    result
}

/// The path of a request to the API server as part of an effect's name.
pub fn request_name(path: &str) -> String {
    name::of_path(path)
}
