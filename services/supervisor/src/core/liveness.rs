//! Deadlines of a service's process: for becoming ready, for its watchdog pings, and for the kernel
//! to end it once it was killed.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

/// How long a service may take from its start until it is ready. Generous: it may wait for a lock
/// or load state from a slow disk.
pub const START_TIMEOUT: Duration = Duration::from_secs(90);
/// The watchdog timeout: a ready service that does not ping for this long is killed.
pub const WATCHDOG_TIMEOUT: Duration = Duration::from_secs(30);
/// How long the kernel usually takes to end a killed process. One that waits in an uninterruptible
/// system call lives on until that returns.
pub const EXIT_TIMEOUT: Duration = Duration::from_secs(10);

/// The deadlines of one process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Liveness {
    stage: LivenessStage,
    deadline: Option<Instant>,
    has_been_ready: bool,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum LivenessStage {
    Starting,
    #[default]
    Ready,
    Killed,
}

/// The deadlines of a process for another program that continues to supervise it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SavedLiveness {
    stage: LivenessStage,
    has_been_ready: bool,
    unkillable: bool,
}

/// A missed deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Expiry {
    /// It did not become ready: to be killed.
    NotReady,
    /// It does not ping: to be killed.
    NoPing,
    /// It was killed and is still there.
    NotExited,
}

impl Expiry {
    /// The reason of the condition of a service that was killed for it.
    pub fn condition(self) -> &'static str {
        match self {
            Expiry::NotReady => "ServiceStartTimeout",
            Expiry::NoPing => "ServiceWatchdogExpired",
            Expiry::NotExited => "ServiceNotExiting",
        }
    }

    /// What the process did not do in time.
    pub fn describe(self) -> String {
        match self {
            Expiry::NotReady => format!("not ready within {START_TIMEOUT:?}"),
            Expiry::NoPing => format!("no watchdog ping within {WATCHDOG_TIMEOUT:?}"),
            Expiry::NotExited => format!("not ended within {EXIT_TIMEOUT:?}"),
        }
    }
}

impl Liveness {
    /// Of a process that starts now.
    pub fn started(now: Instant) -> Liveness {
        Liveness {
            stage: LivenessStage::Starting,
            deadline: Some(now + START_TIMEOUT),
            has_been_ready: false,
        }
    }

    /// For another program.
    pub fn save(&self) -> SavedLiveness {
        SavedLiveness {
            stage: self.stage,
            has_been_ready: self.has_been_ready,
            unkillable: self.is_unkillable(),
        }
    }

    /// Continued by another program. Deadlines begin anew: messages may be unread.
    pub fn continued(saved: SavedLiveness, now: Instant) -> Liveness {
        let mut liveness = Liveness {
            stage: saved.stage,
            deadline: (!saved.unkillable).then_some(now),
            has_been_ready: saved.has_been_ready,
        };
        liveness.postpone(now);
        liveness
    }

    /// Whether the process has reported that it is ready, and was not killed since.
    pub fn is_ready(&self) -> bool {
        self.stage == LivenessStage::Ready
    }

    /// Whether the process has ever been ready.
    pub fn has_been_ready(&self) -> bool {
        self.has_been_ready
    }

    /// Whether the process outlives its kill.
    pub fn is_unkillable(&self) -> bool {
        self.stage == LivenessStage::Killed && self.deadline.is_none()
    }

    /// When to call [`Liveness::expire`].
    pub fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// The process has reported that it is ready.
    pub fn ready(&mut self, now: Instant) {
        if self.stage == LivenessStage::Starting {
            self.stage = LivenessStage::Ready;
            self.has_been_ready = true;
        }
        self.ping(now);
    }

    /// The process has sent any message. Before it is ready, messages do not extend its start.
    pub fn ping(&mut self, now: Instant) {
        if self.stage == LivenessStage::Ready {
            self.deadline = Some(now + WATCHDOG_TIMEOUT);
        }
    }

    /// The supervisor itself did not run for a while: messages may be unread.
    pub fn postpone(&mut self, now: Instant) {
        let timeout = match self.stage {
            LivenessStage::Starting => START_TIMEOUT,
            LivenessStage::Ready => WATCHDOG_TIMEOUT,
            LivenessStage::Killed => EXIT_TIMEOUT,
        };
        self.deadline = self.deadline.map(|_| now + timeout);
    }

    /// The deadline that was missed, if one was. One that is to be killed counts as killed from now
    /// on, and is reported at most once more.
    pub fn expire(&mut self, now: Instant) -> Option<Expiry> {
        if self.deadline.is_none_or(|deadline| now < deadline) {
            return None;
        }
        let expiry = match self.stage {
            LivenessStage::Starting => Expiry::NotReady,
            LivenessStage::Ready => Expiry::NoPing,
            LivenessStage::Killed => Expiry::NotExited,
        };
        self.deadline = (expiry != Expiry::NotExited).then_some(now + EXIT_TIMEOUT);
        self.stage = LivenessStage::Killed;
        Some(expiry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOMENT: Duration = Duration::from_millis(1);

    #[test]
    fn a_start_has_a_deadline_that_pings_do_not_extend() {
        let start = Instant::now();
        let mut process = Liveness::started(start);
        process.ping(start + START_TIMEOUT - MOMENT);
        assert_eq!(process.expire(start + START_TIMEOUT - MOMENT), None);
        let late = start + START_TIMEOUT;
        assert_eq!(process.expire(late), Some(Expiry::NotReady));
        // Too late: the kill is under way.
        process.ready(late);
        assert!(!process.is_ready() && !process.is_unkillable());
        assert_eq!(process.expire(late + EXIT_TIMEOUT - MOMENT), None);
        let stuck = process.expire(late + EXIT_TIMEOUT);
        assert_eq!(stuck, Some(Expiry::NotExited));
        assert!(process.is_unkillable());
        assert_eq!(process.deadline(), None);
        assert_eq!(process.expire(late + 10 * EXIT_TIMEOUT), None);
    }

    #[test]
    fn a_ready_process_must_ping() {
        let start = Instant::now();
        let mut process = Liveness::started(start);
        process.ready(start);
        let mut last = start;
        for _ in 0..100 {
            last += WATCHDOG_TIMEOUT - MOMENT;
            assert_eq!(process.expire(last), None);
            process.ping(last);
        }
        assert!(process.is_ready());
        let expired = process.expire(last + WATCHDOG_TIMEOUT);
        assert_eq!(expired, Some(Expiry::NoPing));
    }

    #[test]
    fn another_program_continues_with_new_deadlines() {
        let start = Instant::now();
        let starting = Liveness::started(start);
        let mut ready = starting;
        ready.ready(start);
        let mut unkillable = ready;
        unkillable.expire(start + WATCHDOG_TIMEOUT);
        unkillable.expire(start + WATCHDOG_TIMEOUT + EXIT_TIMEOUT);
        let later = start + Duration::from_secs(20);
        let continued = |process: Liveness| Liveness::continued(process.save(), later);
        assert_eq!(continued(starting), Liveness::started(later));
        let still_ready = continued(ready);
        assert!(still_ready.is_ready() && still_ready.has_been_ready());
        assert_eq!(still_ready.deadline(), Some(later + WATCHDOG_TIMEOUT));
        let stuck = continued(unkillable);
        assert!(stuck.is_unkillable() && stuck.has_been_ready());
        // Of a process that is not known otherwise.
        let unknown = Liveness::continued(SavedLiveness::default(), later);
        assert!(unknown.is_ready() && !unknown.has_been_ready());
    }

    #[test]
    fn a_delay_of_the_supervisor_postpones_every_deadline() {
        let start = Instant::now();
        let mut starting = Liveness::started(start);
        let mut ready = starting;
        ready.ready(start);
        let mut unkillable = starting;
        let late = start + START_TIMEOUT;
        unkillable.expire(late);
        unkillable.expire(late + EXIT_TIMEOUT);
        for process in [&mut starting, &mut ready, &mut unkillable] {
            process.postpone(late);
            assert_eq!(process.expire(late + MOMENT), None);
        }
        assert!(unkillable.is_unkillable());
    }
}
