//! Signals and the timer that stay with a process when another program continues in it.

use std::time::Duration;

/// Holds back SIGTERM and SIGINT on the calling thread, or lets them through again. Those that arrive
/// meanwhile are kept for the next program.
#[allow(unsafe_code, reason = "rustix does not change signal masks")]
fn mask(how: libc::c_int) {
    // SAFETY: the set is initialised before it is read, and outlives the calls.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGTERM);
        libc::sigaddset(&raw mut set, libc::SIGINT);
        libc::pthread_sigmask(how, &raw const set, std::ptr::null_mut());
    }
}

/// Holds back the signals that stop the supervisor.
pub(crate) fn block() {
    mask(libc::SIG_BLOCK);
}

/// Lets them through.
pub(crate) fn unblock() {
    mask(libc::SIG_UNBLOCK);
}

/// Ends the process after a time, unless it is set again; zero cancels that. The timer survives the start of
/// another program, which may hang.
#[allow(unsafe_code, reason = "rustix has no such timer")]
pub(crate) fn set_alarm(after: Duration) {
    let zero = libc::timeval {
        tv_sec: 0,
        tv_usec: 0,
    };
    let timer = libc::itimerval {
        it_interval: zero,
        it_value: libc::timeval {
            tv_sec: libc::time_t::try_from(after.as_secs()).unwrap_or(libc::time_t::MAX),
            tv_usec: libc::suseconds_t::from(after.subsec_micros()),
        },
    };
    // SAFETY: a call with a pointer to an initialised structure.
    unsafe {
        libc::setitimer(libc::ITIMER_REAL, &raw const timer, std::ptr::null_mut());
    }
}
