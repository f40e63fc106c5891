//! Rotation of container logs: which logs to check when, and what to do with each.
//!
//! A log without writes costs nothing: inotify reports the next write. A log that is written to is
//! polled, at one interval for all logs, until its size stays the same between two polls.

pub mod files;

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};

/// The limits of a container's logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogLimits {
    /// `containerLogMaxSize` in bytes.
    pub max_size: u64,
    /// `containerLogMaxFiles`, including the current log.
    pub max_files: usize,
}

/// What a log needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RotationNeed {
    /// Nothing to do.
    None,
    /// The runtime must reopen it: it was moved or removed, or a rotation was interrupted.
    Reopen,
    /// The log exceeds its size limit.
    Rotate,
    /// Interrupted rotations of the previous instance may have left files behind.
    CleanUp,
}

/// What a log of this size needs; `None` when it does not exist.
pub fn rotation_need(limits: LogLimits, size: Option<u64>, is_first: bool) -> RotationNeed {
    match size {
        None => RotationNeed::Reopen,
        Some(size) if size >= limits.max_size => RotationNeed::Rotate,
        Some(_) if is_first => RotationNeed::CleanUp,
        Some(_) => RotationNeed::None,
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// inotify reports the next write.
    Watched,
    /// Polled; of this size at the last poll.
    Polled(Option<u64>),
    /// Being rotated or reopened.
    Busy,
}

#[derive(Debug)]
struct TrackedLog<L> {
    log: L,
    state: State,
    polled_before: bool,
    failing: bool,
}

/// A log to check now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatRequest<L> {
    /// The container's id.
    pub id: String,
    /// The log.
    pub log: L,
    /// Whether it is the first check by this instance.
    pub is_first: bool,
}

/// The logs of all running containers, by container id.
#[derive(Debug)]
pub struct RotationSchedule<L> {
    logs: BTreeMap<String, TrackedLog<L>>,
    /// IDs of the containers of each pod, by its UID.
    ids_by_pod: BTreeMap<String, Vec<String>>,
    /// IDs of the containers whose logs are polled or busy.
    unwatched: BTreeSet<String>,
    interval: SignedDuration,
    due: Option<Timestamp>,
}

impl<L: Clone> RotationSchedule<L> {
    /// An empty schedule with this polling interval.
    pub fn new(interval: SignedDuration) -> Self {
        RotationSchedule {
            logs: BTreeMap::new(),
            ids_by_pod: BTreeMap::new(),
            unwatched: BTreeSet::new(),
            interval,
            due: None,
        }
    }

    /// Sets the running containers of a pod. New ones are polled next time. Returns the ids of those
    /// that no longer run.
    pub fn set_running(
        &mut self,
        uid: &str,
        running: Vec<(String, L)>,
        now: Timestamp,
    ) -> Vec<String> {
        let has_exited = |id: &String| running.iter().all(|(other, _)| other != id);
        let known = self.ids_by_pod.remove(uid).unwrap_or_default();
        let (exited, mut ids): (Vec<_>, Vec<_>) = known.into_iter().partition(has_exited);
        for id in &exited {
            self.logs.remove(id);
            self.unwatched.remove(id);
        }
        for (id, log) in running {
            if self.insert(&id, log) {
                ids.push(id);
            }
        }
        if !ids.is_empty() {
            self.ids_by_pod.insert(uid.to_owned(), ids);
        }
        self.schedule(now);
        exited
    }

    /// Adds a log, to be polled. False if it is known.
    fn insert(&mut self, id: &str, log: L) -> bool {
        let Entry::Vacant(entry) = self.logs.entry(id.to_owned()) else {
            return false;
        };
        entry.insert(TrackedLog {
            log,
            state: State::Polled(None),
            polled_before: false,
            failing: false,
        });
        self.unwatched.insert(id.to_owned());
        true
    }

    /// Polls a watched log again after a write.
    pub fn on_written(&mut self, id: &str, now: Timestamp) {
        let log = self.logs.get(id);
        if log.is_some_and(|log| log.state == State::Watched) {
            self.set_state(id, State::Polled(None));
            self.schedule(now);
        }
    }

    /// Polls every log: inotify is unavailable or has lost events.
    pub fn poll_all(&mut self, now: Timestamp) {
        for (id, log) in &mut self.logs {
            if log.state == State::Watched {
                log.state = State::Polled(None);
                self.unwatched.insert(id.clone());
            }
        }
        self.schedule(now);
    }

    /// When the next poll is due; `None` while all logs are watched.
    pub fn due(&self) -> Option<Timestamp> {
        self.due
    }

    /// The logs to check, if a poll is due.
    pub fn poll(&mut self, now: Timestamp) -> Vec<StatRequest<L>> {
        if self.due.is_none_or(|due| due > now) {
            return Vec::new();
        }
        self.due = None;
        let mut requests = Vec::new();
        for id in &self.unwatched {
            let log = self.logs.get_mut(id);
            let is_polled = |log: &&mut TrackedLog<L>| matches!(log.state, State::Polled(_));
            if let Some(log) = log.filter(is_polled) {
                requests.push(StatRequest {
                    id: id.clone(),
                    log: log.log.clone(),
                    is_first: !std::mem::replace(&mut log.polled_before, true),
                });
            }
        }
        // Busy logs are polled later.
        self.schedule(now);
        requests
    }

    /// Records that a log of this size needs nothing. True when its size has not changed since the
    /// last poll: it is to be watched now.
    pub fn on_unchanged(&mut self, id: &str, size: u64) -> bool {
        let Some(log) = self.logs.get_mut(id) else {
            return false;
        };
        // The answer to an earlier poll may be late.
        let State::Polled(before) = log.state else {
            return false;
        };
        log.failing = false;
        let is_idle = before == Some(size);
        let state = if is_idle {
            State::Watched
        } else {
            State::Polled(Some(size))
        };
        self.set_state(id, state);
        is_idle
    }

    /// Skips a log until [`RotationSchedule::on_done`].
    pub fn set_busy(&mut self, id: &str) {
        self.set_state(id, State::Busy);
    }

    /// Ends the work on a log. True for the first failure in a row, which is then logged.
    pub fn on_done(&mut self, id: &str, failed: bool, now: Timestamp) -> bool {
        let Some(log) = self.logs.get_mut(id) else {
            return false;
        };
        let is_first_failure = failed && !log.failing;
        log.failing = failed;
        self.set_state(id, State::Polled(None));
        self.schedule(now);
        is_first_failure
    }

    /// Changes the state of a log, if it is known.
    fn set_state(&mut self, id: &str, state: State) {
        let Some(log) = self.logs.get_mut(id) else {
            return;
        };
        log.state = state;
        if state == State::Watched {
            self.unwatched.remove(id);
        } else if !self.unwatched.contains(id) {
            self.unwatched.insert(id.to_owned());
        }
    }

    /// Sets when the next poll is due; none is while all logs are watched.
    fn schedule(&mut self, now: Timestamp) {
        if self.unwatched.is_empty() {
            self.due = None;
        } else if self.due.is_none() {
            self.due = now.checked_add(self.interval).ok();
        }
    }
}

#[cfg(test)]
mod tests;
