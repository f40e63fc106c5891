//! Waiting for wall-clock times. `tokio::time` measures the monotonic clock: a wait computed as
//! "due minus now" ends late after the wall clock is set forward (or the machine was suspended), and
//! early after it is set back.
//!
//! [`sleep_until`] follows the wall clock. [`ClockSteps`] reports that the clock was set, for due
//! times that were derived from `now` and must be derived again. Periodic work belongs to
//! `tokio::time`: after a step of the wall clock back by an hour it would pause for that hour.
//!
//! One timerfd on `CLOCK_REALTIME` with `TFD_TIMER_CANCEL_ON_SET` per runtime, shared by all
//! sleepers, reports the steps; the waits themselves are tokio's timers. At rest neither wakes the
//! process.

use std::cell::RefCell;
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use jiff::Timestamp;
use rustix::io::Errno;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::runtime;
use tokio::sync::watch;

/// Interval of clock readings where the kernel does not report steps.
const POLL: Duration = Duration::from_secs(60);

/// The time since the machine has booted, suspends included: the same in all processes, and never set.
pub fn since_boot() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let seconds = u64::try_from(now.tv_sec).unwrap_or_default();
    let nanoseconds = u32::try_from(now.tv_nsec).unwrap_or_default();
    Duration::new(seconds, nanoseconds)
}

/// Waits until the wall clock shows `due` or later. Returns without delay when the clock is set
/// forward past it, and waits on when the clock is set back.
///
/// # Panics
/// Outside of a tokio runtime with timers and I/O.
pub async fn sleep_until(due: Timestamp) {
    let mut left = until(due);
    if left.is_zero() {
        return;
    }
    let mut steps = ClockSteps::subscribe();
    // The clock may have been set before the subscription.
    left = until(due);
    while !left.is_zero() {
        let wait = if steps.are_reported() {
            left
        } else {
            left.min(POLL)
        };
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = steps.next() => {}
        }
        left = until(due);
    }
}

/// The same; without a due time, for ever. Made for a branch of `select!`.
pub async fn sleep_until_opt(due: Option<Timestamp>) {
    match due {
        Some(due) => sleep_until(due).await,
        None => std::future::pending().await,
    }
}

fn until(due: Timestamp) -> Duration {
    Duration::try_from(due.duration_since(Timestamp::now())).unwrap_or_default()
}

/// Steps of the wall clock since the subscription: by `clock_settime` and the like, and by a resume
/// after suspend. A clock that is only slewed does not step.
#[derive(Clone, Debug)]
pub struct ClockSteps {
    /// `None` where the kernel does not report steps.
    steps: Option<watch::Receiver<u64>>,
}

impl ClockSteps {
    /// Subscribes in the present runtime.
    ///
    /// # Panics
    /// Outside of a tokio runtime with I/O.
    pub fn subscribe() -> ClockSteps {
        thread_local! {
            // A runtime's tasks end with it; in tests there are several, one after the other.
            static STEPS: RefCell<Option<(runtime::Id, ClockSteps)>> = const { RefCell::new(None) };
        }
        let id = runtime::Handle::current().id();
        STEPS.with_borrow_mut(|steps| match steps {
            Some((of, steps)) if *of == id => steps.fresh(),
            _ => steps.insert((id, ClockSteps::start())).1.fresh(),
        })
    }

    /// Waits for the next step; several since the last call count as one.
    pub async fn next(&mut self) {
        let changed = match &mut self.steps {
            Some(steps) => steps.changed().await.is_ok(),
            None => false,
        };
        if !changed {
            std::future::pending().await
        }
    }

    /// Whether the kernel reports steps at all.
    fn are_reported(&self) -> bool {
        let steps = self.steps.as_ref();
        steps.is_some_and(|steps| steps.has_changed().is_ok())
    }

    /// The same source, without the steps so far.
    fn fresh(&self) -> ClockSteps {
        let mut fresh = self.clone();
        if let Some(steps) = &mut fresh.steps {
            steps.mark_unchanged();
        }
        fresh
    }

    fn start() -> ClockSteps {
        match step_timer() {
            Ok(timer) => {
                let (sender, receiver) = watch::channel(0);
                tokio::spawn(report_steps(timer, sender));
                ClockSteps {
                    steps: Some(receiver),
                }
            }
            Err(error) => {
                tracing::warn!(%error, "clock steps are not reported by the kernel; polling the clock");
                ClockSteps { steps: None }
            }
        }
    }
}

/// Counts steps until the runtime ends.
async fn report_steps(timer: AsyncFd<OwnedFd>, steps: watch::Sender<u64>) {
    let watched = async {
        loop {
            let mut ready = timer.readable().await?;
            let mut expirations = [0; 8];
            let read = ready.try_io(|timer| Ok(rustix::io::read(timer, &mut expirations)?));
            match read {
                Ok(Err(error)) if error.raw_os_error() == Some(Errno::CANCELED.raw_os_error()) => {
                    arm(timer.get_ref())?;
                    steps.send_modify(|count| *count += 1);
                }
                Ok(Err(error)) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
                _ => {}
            }
        }
    };
    let ended: io::Result<()> = watched.await;
    if let Err(error) = ended {
        tracing::warn!(%error, "clock steps are no longer reported by the kernel; polling the clock");
    }
}

/// A timer that never expires and is cancelled by each step of the clock.
fn step_timer() -> io::Result<AsyncFd<OwnedFd>> {
    let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
    let timer = timerfd_create(TimerfdClockId::Realtime, flags)?;
    arm(&timer)?;
    #[allow(
        unsafe_code,
        reason = "a registration promises that the descriptor stays open"
    )]
    // SAFETY: the timer owns its descriptor and is moved in: it stays open and the same until dropped.
    let timer = unsafe { AsyncFd::register_with_interest(timer, Interest::READABLE) };
    Ok(timer?)
}

fn arm(timer: &OwnedFd) -> io::Result<()> {
    let zero = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    let never = Itimerspec {
        it_interval: zero,
        it_value: Timespec {
            tv_sec: i64::MAX,
            ..zero
        },
    };
    let flags = TimerfdTimerFlags::ABSTIME | TimerfdTimerFlags::CANCEL_ON_SET;
    timerfd_settime(timer, flags, &never)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use futures::FutureExt;
    use jiff::ToSpan;

    use super::*;

    #[tokio::test]
    async fn wakes_at_the_due_time_and_not_before() {
        let due = Timestamp::now() + 50.milliseconds();
        sleep_until(due).await;
        assert!(Timestamp::now() >= due);
        // What is past is due.
        let begun = Instant::now();
        sleep_until(Timestamp::now() - 1.hour()).await;
        sleep_until(Timestamp::MIN).await;
        assert!(begun.elapsed() < Duration::from_secs(1));
    }

    #[tokio::test]
    async fn never_due_is_never_woken() {
        let never = sleep_until_opt(None);
        let far = sleep_until(Timestamp::MAX);
        let pause = tokio::time::sleep(Duration::from_millis(50));
        tokio::select! {
            () = never => panic!("woken without a due time"),
            () = far => panic!("woken early"),
            () = pause => {}
        }
        assert!(ClockSteps::subscribe().next().now_or_never().is_none());
    }

    #[test]
    fn each_runtime_has_its_own_subscription() {
        for _ in 0..3 {
            let runtime = runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(async {
                sleep_until(Timestamp::now() + 5.milliseconds()).await;
                assert!(ClockSteps::subscribe().are_reported());
            });
        }
    }
}
