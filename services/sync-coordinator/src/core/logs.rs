//! Logs of running containers: which of them to look at when, and what to do with one.
//!
//! A log that nobody writes to costs nothing: the kernel tells of the next write. One that is being
//! written to is looked at in rounds, one round for all of them, until it was still for a round.

pub mod files;

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

/// What the configuration allows a container's logs to take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// From this size on, in bytes, a log is rotated.
    pub size: u64,
    /// How many files one container may have, the one being written among them.
    pub files: usize,
}

/// What a log needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Nothing.
    Nothing,
    /// The runtime is to make it: somebody moved or removed it, or a rotation was cut short.
    Reopen,
    /// To be rotated.
    Rotate,
    /// What rotations of a former life may have left is to be put in order.
    Tidy,
}

/// What a log of this size (`None`: it is not there) needs.
pub fn need(limits: Limits, size: Option<u64>, first_look: bool) -> Need {
    match size {
        None => Need::Reopen,
        Some(size) if size >= limits.size => Need::Rotate,
        Some(_) if first_look => Need::Tidy,
        Some(_) => Need::Nothing,
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The kernel tells of the next write.
    Asleep,
    /// Looked at in the next round; of this size at the last look.
    Awake(Option<u64>),
    /// Being looked at.
    Busy,
}

#[derive(Debug)]
struct Entry<L> {
    uid: String,
    log: L,
    state: State,
    looked_at: bool,
    troubled: bool,
}

/// A log whose turn it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Look<L> {
    /// The container.
    pub id: String,
    /// Its log.
    pub log: L,
    /// The first look in this life of the process.
    pub first: bool,
}

/// All logs of running containers, by the container's id.
#[derive(Debug)]
pub struct Rounds<L> {
    logs: BTreeMap<String, Entry<L>>,
    interval: SignedDuration,
    next: Option<Timestamp>,
}

impl<L: Clone> Rounds<L> {
    /// No logs; rounds are so far apart.
    pub fn new(interval: SignedDuration) -> Self {
        Rounds {
            logs: BTreeMap::new(),
            interval,
            next: None,
        }
    }

    /// These containers of a pod run now, and no others of it. New ones join the next round.
    /// Gives those that no longer run.
    pub fn runs(&mut self, uid: &str, running: Vec<(String, L)>, now: Timestamp) -> Vec<String> {
        let is_gone = |id: &&String| running.iter().all(|(other, _)| other != *id);
        let mine = self.logs.iter().filter(|(_, entry)| entry.uid == uid);
        let gone: Vec<String> = mine.map(|(id, _)| id).filter(is_gone).cloned().collect();
        for id in &gone {
            self.logs.remove(id);
        }
        for (id, log) in running {
            let entry = Entry {
                uid: uid.to_owned(),
                log,
                state: State::Awake(None),
                looked_at: false,
                troubled: false,
            };
            self.logs.entry(id).or_insert(entry);
        }
        self.plan_round(now);
        gone
    }

    /// A log that slept is being written to.
    pub fn written(&mut self, id: &str, now: Timestamp) {
        if let Some(entry) = self.logs.get_mut(id)
            && entry.state == State::Asleep
        {
            entry.state = State::Awake(None);
            self.plan_round(now);
        }
    }

    /// Nothing tells of writes any more: every log is looked at.
    pub fn all_written(&mut self, now: Timestamp) {
        let ids: Vec<String> = self.logs.keys().cloned().collect();
        for id in ids {
            self.written(&id, now);
        }
    }

    /// When the next round is due; never while all logs sleep.
    pub fn due(&self) -> Option<Timestamp> {
        self.next
    }

    /// The logs whose turn it is, if it is time.
    pub fn round(&mut self, now: Timestamp) -> Vec<Look<L>> {
        if self.next.is_none_or(|due| due > now) {
            return Vec::new();
        }
        self.next = None;
        let awake = |entry: &&mut Entry<L>| matches!(entry.state, State::Awake(_));
        let mut turn = Vec::new();
        for (id, entry) in &mut self.logs {
            if let Some(entry) = Some(entry).filter(awake) {
                turn.push(Look {
                    id: id.clone(),
                    log: entry.log.clone(),
                    first: !std::mem::replace(&mut entry.looked_at, true),
                });
            }
        }
        // Those that are busy come back into a later one.
        self.plan_round(now);
        turn
    }

    /// A look showed nothing to do at this size. True when the log has been still since the last
    /// look: it is to be watched now, and sleeps.
    pub fn unchanged(&mut self, id: &str, size: u64) -> bool {
        let Some(entry) = self.logs.get_mut(id) else {
            return false;
        };
        entry.troubled = false;
        let still = entry.state == State::Awake(Some(size));
        entry.state = if still {
            State::Asleep
        } else {
            State::Awake(Some(size))
        };
        still
    }

    /// Something is being done with the log: it is left alone until [`Rounds::done`].
    pub fn busy(&mut self, id: &str) {
        if let Some(entry) = self.logs.get_mut(id) {
            entry.state = State::Busy;
        }
    }

    /// That is over; with `failed`, true when it is news.
    pub fn done(&mut self, id: &str, failed: bool, now: Timestamp) -> bool {
        let Some(entry) = self.logs.get_mut(id) else {
            return false;
        };
        entry.state = State::Awake(None);
        let news = failed && !entry.troubled;
        entry.troubled = failed;
        self.plan_round(now);
        news
    }

    fn plan_round(&mut self, now: Timestamp) {
        if self.logs.values().all(|e| e.state == State::Asleep) {
            self.next = None;
        } else if self.next.is_none() {
            self.next = now.checked_add(self.interval).ok();
        }
    }
}

#[cfg(test)]
mod tests;
