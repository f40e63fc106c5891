use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use jiff::Timestamp;
use polylet_wire::pleg::v1::PodState;

use super::ended::Ended;
use super::later;
use super::pace::Pace;
use super::pod::{self, Known, Seen};
use super::view::{Listing, PodView};

mod looks;

/// Looks at once that nobody waits for: the runtime answers from memory, but one that hangs for
/// some pods must still be asked about the others.
const LOOKS: usize = 40;
/// Who acts on a pod refreshes it next. A hint of such an act waits so long for the refresh, whose
/// trace the change belongs to.
const GRACE: Duration = Duration::from_millis(100);

/// What is to be done next.
#[derive(Debug)]
pub enum Step {
    /// List everything.
    Relist { turn: u64 },
    /// Look at one pod; without a view, list it first.
    Look {
        uid: String,
        view: Option<PodView>,
        known: Known,
    },
    /// The pod changed, or is gone. `tokens` are the callers whose refresh found it; without any,
    /// nobody asked.
    Publish {
        uid: String,
        state: Option<Box<PodState>>,
        tokens: Vec<u64>,
    },
    /// What was published of the pod just now without a cause belongs to these callers.
    Adopt { uid: String, tokens: Vec<u64> },
    /// These callers have their answer.
    Answer {
        uid: String,
        tokens: Vec<u64>,
        result: Result<(), String>,
    },
    /// Everything has been seen once.
    Whole,
}

/// Something happened to a sandbox or container; a look will tell what.
#[derive(Debug, Clone)]
pub struct Hint {
    pub uid: Option<String>,
    /// The sandbox or container.
    pub id: String,
    pub kind: HintKind,
    pub at: Option<Timestamp>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HintKind {
    /// Made or started: somebody of ours did that.
    Begun,
    /// Stopped.
    Ended,
    /// Its record is gone.
    Removed,
}

/// Everything known of the runtime's pods, and who wants to know what.
#[derive(Debug)]
pub struct Desk {
    pods: BTreeMap<String, Entry>,
    /// Sandboxes and containers by id, for hints that name no pod.
    owners: BTreeMap<String, String>,
    /// Pods to be looked at, in order.
    ready: VecDeque<String>,
    /// Pods to be looked at later.
    timers: BTreeMap<String, Timestamp>,
    /// Counts looks and lists in the order in which they begin.
    turn: u64,
    running: usize,
    listing: bool,
    /// Something was missed since the present list began.
    relist_again: bool,
    relist_due: Timestamp,
    pace: Pace,
    whole: Whole,
    steps: Vec<Step>,
    /// The latest moment so far.
    latest: Timestamp,
}

#[derive(Debug, Default)]
struct Entry {
    state: Option<PodState>,
    look: Option<Running>,
    /// The beginning of the last look that ended well.
    looked: Option<(u64, Timestamp)>,
    wish: Wish,
    /// The last look failed; only a new one helps.
    suspect: bool,
    failures: u32,
    ended: Ended,
    /// When a change was published that nobody had asked for.
    unasked: Option<Timestamp>,
}

#[derive(Debug)]
struct Running {
    turn: u64,
    began: Timestamp,
    tokens: Vec<u64>,
}

/// The next look at a pod, as wanted so far.
#[derive(Debug, Default)]
struct Wish {
    queued: bool,
    /// From a full list; good enough when nobody wants a newer one.
    listed: Option<(u64, PodView)>,
    fresh: bool,
    /// Nothing counts as known.
    anew: bool,
    tokens: Vec<u64>,
}

#[derive(Debug)]
enum Whole {
    No,
    /// Listed; these pods have not been looked at yet.
    Listed(BTreeSet<String>),
    Yes,
}

/// A clock that is so much earlier than before was set.
const CLOCK_STEP: Duration = Duration::from_secs(1);

fn earlier(at: Timestamp, by: Duration) -> Timestamp {
    at.checked_sub(by).unwrap_or(Timestamp::MIN)
}

impl Desk {
    pub fn new(now: Timestamp) -> Self {
        Self {
            pods: BTreeMap::new(),
            owners: BTreeMap::new(),
            ready: VecDeque::new(),
            timers: BTreeMap::new(),
            turn: 0,
            running: 0,
            listing: false,
            relist_again: false,
            relist_due: now,
            pace: Pace::default(),
            whole: Whole::No,
            steps: Vec::new(),
            latest: now,
        }
    }

    /// A clock that was set back must not put off what is due, nor make old looks newer than hints.
    fn mind_the_clock(&mut self, now: Timestamp) {
        if now < earlier(self.latest, CLOCK_STEP) {
            self.relist_due = now;
            for at in self.timers.values_mut() {
                *at = now;
            }
            for entry in self.pods.values_mut() {
                entry.looked = None;
            }
            self.latest = now;
        }
        self.latest = self.latest.max(now);
    }

    /// What to do after the inputs so far.
    pub fn steps(&mut self, now: Timestamp) -> Vec<Step> {
        self.mind_the_clock(now);
        let due: Vec<_> = self
            .timers
            .iter()
            .filter(|(_, at)| **at <= now)
            .map(|(uid, _)| uid.clone())
            .collect();
        for uid in due {
            self.want_fresh(&uid, false);
        }
        if !self.listing && self.relist_due <= now {
            self.listing = true;
            self.turn += 1;
            self.steps.push(Step::Relist { turn: self.turn });
        }
        self.start_looks(now);
        std::mem::take(&mut self.steps)
    }

    /// When there is something to do without an input.
    pub fn due(&self) -> Option<Timestamp> {
        let relist = (!self.listing).then_some(self.relist_due);
        self.timers.values().copied().chain(relist).min()
    }

    /// Events flow from now on, or no longer; either way some may have been missed.
    pub fn events(&mut self, flow: bool, now: Timestamp) {
        if flow {
            self.pace.events_began(now);
        } else {
            self.pace.events_ended();
        }
        self.relist_soon(now);
    }

    fn relist_soon(&mut self, now: Timestamp) {
        self.relist_again = self.listing;
        self.relist_due = now;
    }

    /// Somebody wants to know the pod as it is from now on; `anew`, also what is known of it.
    pub fn refresh(&mut self, uid: &str, anew: bool, token: u64) {
        let wish = &mut self.pods.entry(uid.to_owned()).or_default().wish;
        wish.tokens.push(token);
        wish.anew |= anew;
        self.want_fresh(uid, true);
    }

    /// The runtime told that something happened.
    pub fn hint(&mut self, hint: Hint, now: Timestamp) {
        let Some(uid) = hint.uid.or_else(|| self.owners.get(&hint.id).cloned()) else {
            // Of something unknown only the end may be passed over.
            if hint.kind == HintKind::Begun {
                self.relist_soon(now);
            }
            return;
        };
        let entry = self.pods.entry(uid.clone()).or_default();
        let began = entry.look.as_ref().map(|look| look.began);
        let began = began.max(entry.looked.map(|(_, began)| began));
        // A look that began later has seen it.
        if hint.at.is_some_and(|at| began.is_some_and(|b| b > at)) {
            return;
        }
        if hint.kind == HintKind::Begun {
            let at = later(now, GRACE);
            self.wake_at(&uid, at);
        } else {
            self.want_fresh(&uid, true);
        }
    }

    /// The kernel told that the process of a container ended; the runtime will know soon.
    pub fn process_ended(&mut self, id: &str, now: Timestamp) {
        let Some(uid) = self.owners.get(id).cloned() else {
            return;
        };
        let Some(entry) = self.pods.get_mut(&uid) else {
            return;
        };
        let state = entry.state.as_ref();
        if state.is_some_and(|state| entry.ended.add(state, id, now)) {
            self.want_fresh(&uid, true);
        }
    }

    /// A full list ended. Only pods of which it says something new are looked at.
    pub fn relisted(&mut self, turn: u64, result: Result<Listing, String>, now: Timestamp) {
        self.listing = false;
        if !std::mem::take(&mut self.relist_again) {
            self.relist_due = self.pace.next(result.is_ok(), now);
        }
        let Ok(mut listing) = result else { return };
        let mut changed = BTreeSet::new();
        let known: Vec<_> = self.pods.keys().cloned().collect();
        for uid in known {
            let view = listing.remove(&uid).unwrap_or_default();
            if self.compare(&uid, turn, view) {
                changed.insert(uid);
            }
        }
        for (uid, view) in listing {
            self.pods.entry(uid.clone()).or_default();
            if self.compare(&uid, turn, view) {
                changed.insert(uid);
            }
        }
        let first = !matches!(self.whole, Whole::Yes);
        if !changed.is_empty() && !first && self.pace.events() {
            self.pace.surprised(now);
            self.relist_due = self.relist_due.min(self.pace.next(true, now));
        }
        if matches!(self.whole, Whole::No) {
            self.whole = Whole::Listed(changed);
            self.see_whether_whole();
        }
    }

    // Whether the list tells something of the pod that is neither known nor being looked at.
    fn compare(&mut self, uid: &str, turn: u64, view: PodView) -> bool {
        let Some(entry) = self.pods.get_mut(uid) else {
            return false;
        };
        let first = !matches!(self.whole, Whole::Yes);
        if entry.look.as_ref().is_some_and(|look| look.turn > turn) {
            return first;
        }
        if entry.looked.is_some_and(|(looked, _)| looked > turn) {
            return false;
        }
        let waits = self.timers.contains_key(uid);
        // A look that failed is tried again in its own time.
        if entry.suspect && waits && !first {
            return false;
        }
        let idle = entry.look.is_none() && !entry.wish.queued;
        let same = match &entry.state {
            Some(state) => view.agrees_with(state),
            None => view.is_empty(),
        };
        if same && idle {
            if entry.state.is_none() && !waits {
                self.pods.remove(uid);
            }
            return false;
        }
        entry.wish.listed = Some((turn, view));
        self.queue(uid, false);
        first || (idle && !waits)
    }

    fn see_whether_whole(&mut self) {
        if matches!(&self.whole, Whole::Listed(left) if left.is_empty()) {
            self.whole = Whole::Yes;
            self.steps.push(Step::Whole);
        }
    }
}

#[cfg(test)]
mod tests;
