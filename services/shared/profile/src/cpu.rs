//! Samples of processor time, by a timer and its signal.

use std::ffi::{c_int, c_void};
use std::io;
use std::time::Duration;

use crate::ProfileError;
use crate::periods::CPU_PERIOD;
use crate::recorder::{Recorder, Recording};
use crate::samples::{ProfileSamples, SampleKind};
use crate::stack::{Stack, program_counter};

static RECORDER: Recorder = Recorder::new();

/// Samples the processor time of all threads until it is finished or dropped.
#[derive(Debug)]
pub struct CpuSampling {
    /// Dropped after the timer has stopped.
    recording: Option<Recording>,
}

impl CpuSampling {
    /// Starts to sample.
    ///
    /// # Errors
    /// When another one exists, or the kernel refuses the timer.
    pub fn start() -> Result<Self, ProfileError> {
        let recording = RECORDER.start()?;
        // What the unwinder does only once is not left to the handler.
        std::hint::black_box(Stack::of_caller());
        let sampling = Self {
            recording: Some(recording),
        };
        install_handler().map_err(ProfileError::Timer)?;
        set_timer(CPU_PERIOD).map_err(ProfileError::Timer)?;
        Ok(sampling)
    }

    /// Stops, and returns the samples.
    pub fn finish(mut self) -> ProfileSamples {
        stop_timer();
        let recorded = self.recording.take().map(Recording::finish);
        ProfileSamples::new(SampleKind::Cpu, recorded)
    }
}

impl Drop for CpuSampling {
    fn drop(&mut self) {
        stop_timer();
    }
}

/// Records the stack that the timer interrupted. Nothing here allocates, waits, or changes what it interrupts.
extern "C" fn on_timer(_: c_int, _: *mut libc::siginfo_t, context: *mut c_void) {
    #[allow(
        unsafe_code,
        reason = "a handler must leave the error number as it was"
    )]
    // SAFETY: the address of the calling thread's own error number.
    let (errno, before) = unsafe {
        let errno = libc::__errno_location();
        (errno, *errno)
    };
    RECORDER.record(|buffer| {
        let stack = Stack::interrupted_at(program_counter(context));
        buffer.push([0, 0], stack.frames());
    });
    #[allow(unsafe_code, reason = "as above")]
    // SAFETY: as above.
    unsafe {
        *errno = before;
    }
}

/// The handler stays: a signal may be on its way when the timer is stopped, and without one it ends the process.
/// Other programs that this one starts do not inherit it.
fn install_handler() -> io::Result<()> {
    #[allow(unsafe_code, reason = "the standard library sets no handlers")]
    // SAFETY: the action is valid once its fields are set; the handler has the signature of SA_SIGINFO, and does
    // only what a handler may do.
    let result = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_timer as *const () as libc::sighandler_t;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
        libc::sigemptyset(&raw mut action.sa_mask);
        libc::sigaction(libc::SIGPROF, &raw const action, std::ptr::null_mut())
    };
    checked(result)
}

/// Stops the timer of the profile that is being taken, if there is one. For a process that becomes another program,
/// which would inherit the timer without the handler, and end by its signal.
pub fn stop_timer() {
    // A timer that was set can be stopped.
    let _ = set_timer(Duration::ZERO);
}

/// Sets the timer of the processor time of all threads; zero stops it.
fn set_timer(period: Duration) -> io::Result<()> {
    let period = libc::timeval {
        tv_sec: 0,
        tv_usec: libc::suseconds_t::from(period.subsec_micros()),
    };
    let timer = libc::itimerval {
        it_interval: period,
        it_value: period,
    };
    #[allow(unsafe_code, reason = "no crate in use sets interval timers")]
    // SAFETY: both pointers are valid for the call.
    let result =
        unsafe { libc::setitimer(libc::ITIMER_PROF, &raw const timer, std::ptr::null_mut()) };
    checked(result)
}

fn checked(result: c_int) -> io::Result<()> {
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
