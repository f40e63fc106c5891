//! Sleeps on the wall clock while the machine's clock is really set. A binary of its own: no other
//! test runs in the process meanwhile.

use std::time::{Duration, Instant};

use jiff::{Timestamp, ToSpan};
use polylet_kit::clock::{ClockSteps, sleep_until};
use rustix::time::{ClockId, Timespec, clock_gettime, clock_settime};

/// The size of a step in seconds: distinguishes a sleep on the wall clock from a monotonic one.
const STEP: i64 = 60;

/// An offset of the wall clock, undone when dropped.
struct Offset {
    seconds: i64,
}

impl Offset {
    /// `None` without the permission to set the clock.
    fn new(seconds: i64) -> Option<Offset> {
        shift(seconds).then_some(Offset { seconds })
    }
}

impl Drop for Offset {
    fn drop(&mut self) {
        assert!(shift(-self.seconds), "the clock could not be restored");
    }
}

fn shift(seconds: i64) -> bool {
    let now = clock_gettime(ClockId::Realtime);
    let shifted = Timespec {
        tv_sec: now.tv_sec + seconds,
        ..now
    };
    clock_settime(ClockId::Realtime, shifted).is_ok()
}

#[tokio::test]
#[ignore = "needs root, sets the machine's clock for a second: cargo verify"]
async fn sleeps_follow_a_clock_that_is_set() {
    if Offset::new(0).is_none() {
        println!("skipped: no permission to set the clock");
        return;
    }
    let mut steps = ClockSteps::subscribe();

    println!("== forward past the due time");
    let due = Timestamp::now() + (STEP / 2).seconds();
    let sleeper = tokio::spawn(sleep_until(due));
    // Not due yet.
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(!sleeper.is_finished());
    let stepped = Instant::now();
    let ahead = Offset::new(STEP).unwrap();
    sleeper.await.unwrap();
    let late = stepped.elapsed();
    drop(ahead);
    assert!(late < Duration::from_secs(10), "woke {late:?} late");
    steps.next().await;

    println!("== backward during a sleep of 300 ms");
    let due = Timestamp::now() + 300.milliseconds();
    let sleeper = tokio::spawn(sleep_until(due));
    tokio::time::sleep(Duration::from_millis(100)).await;
    let behind = Offset::new(-STEP).unwrap();
    tokio::time::sleep(Duration::from_millis(600)).await;
    assert!(!sleeper.is_finished(), "woke a minute early");
    // Restored, the clock is past the due time.
    let stepped = Instant::now();
    drop(behind);
    sleeper.await.unwrap();
    let late = stepped.elapsed();
    assert!(late < Duration::from_secs(10), "woke {late:?} late");
    steps.next().await;
}
