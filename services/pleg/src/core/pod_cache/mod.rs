use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use jiff::Timestamp;
use polylet_model::PodUid;
use polylet_schedule::{BackoffPolicy, DueQueue, TimePoint};

use super::exit_poll::ExitPoll;
use super::inspection::{self, CachedStatuses, Inspected, OomChecks};
use super::late_events::LateEvents;
use super::listing::{ListedPod, PodListing};
use super::record_change::{RecordChange, RecordChanges, RuntimeEventKind};
use super::relist_period::RelistPeriod;
use super::status::{PodIdentity, PodStatus, SandboxStatus};

mod changes;
mod inspect;
mod types;

pub use types::{Action, RuntimeEvent};

use changes::{DeferredChanges, REFRESH_GRACE, START_GRACE};
use types::InitialSync;

/// Concurrent inspections without a waiting caller: the runtime answers from memory, but one that
/// hangs on some pods must still be asked about the others.
const MAX_INSPECTIONS: usize = 40;
/// A clock that is this much earlier than before was set back.
const CLOCK_STEP: Duration = Duration::from_secs(1);

/// The status of every pod in the runtime, and the inspections that keep it up to date.
#[derive(Debug)]
pub struct PodCache {
    /// Boxed, as a node of the map has room for eleven.
    pods: BTreeMap<PodUid, Box<Entry>>,
    /// The pod of each sandbox and container, for events that name none.
    owners: BTreeMap<String, PodUid>,
    /// Pods to inspect now, in order.
    ready: VecDeque<PodUid>,
    /// When [`Entry::next_due`] is due, except of pods that are queued.
    delayed: DueQueue<PodUid, Timestamp>,
    /// Numbers inspections and lists in the order in which they begin.
    sequence: u64,
    in_flight: usize,
    listing: bool,
    /// A change may have been missed since the present list began.
    relist_again: bool,
    relist_due: Timestamp,
    period: RelistPeriod,
    late_events: LateEvents,
    sync: InitialSync,
    actions: Vec<Action>,
    /// The latest time seen so far.
    latest: Timestamp,
}

#[derive(Debug, Default)]
struct Entry {
    status: Option<PodStatus>,
    in_flight: Option<Inspection>,
    /// Sequence number and start of the last inspection of everything that succeeded.
    last_inspection: Option<(u64, Timestamp)>,
    /// Sequence number of the last inspection of changes that succeeded.
    last_change: u64,
    pending: PendingInspect,
    /// When everything is to be inspected again.
    due: Option<Timestamp>,
    /// Changes that wait for the refresh of the caller that made them.
    deferred: DeferredChanges,
    /// The last inspection failed; only another one can clear this.
    suspect: bool,
    failures: u32,
    exit_poll: ExitPoll,
    oom_checks: OomChecks,
    /// When a change was published that no refresh had found.
    published_without_cause: Option<Timestamp>,
}

/// An inspection in flight.
#[derive(Debug)]
struct Inspection {
    sequence: u64,
    /// Its list is not older.
    began: Timestamp,
    /// Its statuses are not older.
    statuses_at: Timestamp,
    /// The ids whose status it requests in any case; `None` when it inspects everything.
    requested: Option<BTreeSet<String>>,
    tokens: Vec<u64>,
}

/// The next inspection of a pod, as requested so far.
#[derive(Debug, Default)]
struct PendingInspect {
    queued: bool,
    /// The pod's entries in a full list, enough for a request that needs nothing newer.
    listed: Option<(u64, ListedPod)>,
    /// Changes to inspect, unless everything is inspected.
    changes: RecordChanges,
    /// The pod that the callers named, for one that is not cached.
    pod: PodIdentity,
    fresh: bool,
    /// Request every status again.
    force: bool,
    tokens: Vec<u64>,
}

fn matches_list(status: Option<&PodStatus>, listed: &ListedPod) -> bool {
    match status {
        Some(status) => listed.matches(status),
        None => listed.is_empty(),
    }
}

fn earlier(at: Timestamp, by: Duration) -> Timestamp {
    at.checked_sub(by).unwrap_or(Timestamp::MIN)
}

impl PodCache {
    /// An empty cache; the first list is due `now`.
    pub fn new(now: Timestamp) -> Self {
        Self {
            pods: BTreeMap::new(),
            owners: BTreeMap::new(),
            ready: VecDeque::new(),
            delayed: DueQueue::new(),
            sequence: 0,
            in_flight: 0,
            listing: false,
            relist_again: false,
            relist_due: now,
            period: RelistPeriod::default(),
            late_events: LateEvents::default(),
            sync: InitialSync::NotListed,
            actions: Vec::new(),
            latest: now,
        }
    }

    /// A clock that was set back must not delay what is due, nor make old inspections look newer
    /// than events.
    fn check_clock(&mut self, now: Timestamp) {
        if now < earlier(self.latest, CLOCK_STEP) {
            self.relist_due = now;
            while let Some(uid) = self.delayed.pop_due(Timestamp::MAX) {
                self.request_fresh(&uid, false);
            }
            for entry in self.pods.values_mut() {
                entry.last_inspection = None;
            }
            self.late_events = LateEvents::default();
            self.latest = now;
        }
        self.latest = self.latest.max(now);
    }

    /// The actions that follow from the inputs so far.
    pub fn take_actions(&mut self, now: Timestamp) -> Vec<Action> {
        self.check_clock(now);
        while let Some(uid) = self.delayed.pop_due(now) {
            self.on_due(&uid, now);
        }
        if self.late_events.have_missed(now) {
            self.period.on_missed_event(now);
            self.relist_due = self.relist_due.min(self.period.next(true, now));
        }
        if !self.listing && self.relist_due <= now {
            self.listing = true;
            self.sequence += 1;
            self.actions.push(Action::Relist {
                sequence: self.sequence,
            });
        }
        self.start_inspections(now);
        std::mem::take(&mut self.actions)
    }

    /// When an action is due without an input.
    pub fn next_due(&self) -> Option<Timestamp> {
        let relist = (!self.listing).then_some(self.relist_due);
        let missed = self.late_events.next_due();
        let due = [self.delayed.next_due(), relist, missed];
        due.into_iter().flatten().min()
    }

    /// The event stream has started or ended; either way, events may have been missed.
    pub fn set_event_stream(&mut self, active: bool, now: Timestamp) {
        self.late_events.expect_none();
        if active {
            self.period.on_events_started(now);
        } else {
            self.period.on_events_stopped();
        }
        self.request_relist(now);
    }

    fn request_relist(&mut self, now: Timestamp) {
        self.relist_again = self.listing;
        self.relist_due = now;
    }

    /// A caller requests the pod's status as of now; with `force`, also of what is cached.
    pub fn refresh(&mut self, uid: &PodUid, force: bool, token: u64) {
        let pending = &mut self.pods.entry(uid.clone()).or_default().pending;
        pending.tokens.push(token);
        pending.force |= force;
        self.request_fresh(uid, true);
    }

    /// A caller requests the pod's status after changes that it has made. What else is cached is not
    /// inspected, unless the cache is incomplete.
    pub fn refresh_changes(&mut self, pod: &PodIdentity, changes: Vec<RecordChange>, token: u64) {
        let entry = self.pods.entry(pod.uid.clone()).or_default();
        let pending = &mut entry.pending;
        pending.tokens.push(token);
        pending.pod.clone_from(pod);
        for change in changes {
            let sandbox = entry.deferred.take(&change.id);
            pending.changes.add(change, sandbox);
        }
        self.enqueue(&pod.uid, true);
    }

    /// Takes an event of the runtime.
    pub fn handle_event(&mut self, event: RuntimeEvent, now: Timestamp) {
        let is_end = event.kind > RuntimeEventKind::Started;
        self.late_events.on_event(is_end, now);
        self.relist_due = self.relist_due.min(self.period.on_event(now));
        let owner = || self.owners.get(&event.id).cloned();
        let uid = event.pod.as_ref().map(|pod| pod.uid.clone());
        let Some(uid) = uid.or_else(owner) else {
            // Only the end of an unknown sandbox or container can be ignored.
            if !is_end {
                self.request_relist(now);
            }
            return;
        };
        self.late_events.on_event_of(&uid);
        let synced = self.is_synced();
        // As the end of a sandbox or container of an unknown pod: a late event of one that is gone.
        if synced && is_end && !self.pods.contains_key(&uid) {
            return;
        }
        let entry = self.pods.entry(uid.clone()).or_default();
        let complete = entry.in_flight.as_ref().filter(|i| i.requested.is_none());
        let began = complete.map(|inspection| inspection.began);
        let began = began.max(entry.last_inspection.map(|(_, began)| began));
        // An inspection that began after the event has seen the change.
        if event.at.is_some_and(|at| began.is_some_and(|b| b > at)) {
            return;
        }
        match entry.change_of(&event) {
            Some(change) if synced && !entry.suspect => {
                self.on_change_event(&uid, change, event.sandbox, now);
            }
            _ if !is_end => {
                self.inspect_at(&uid, now.plus(REFRESH_GRACE));
            }
            _ => self.request_fresh(&uid, true),
        }
    }

    fn on_change_event(
        &mut self,
        uid: &PodUid,
        change: RecordChange,
        sandbox: Option<SandboxStatus>,
        now: Timestamp,
    ) {
        let Some(entry) = self.pods.get_mut(uid) else {
            return;
        };
        let idle = entry.in_flight.is_none() && !entry.pending.queued;
        if idle && change.is_shown_by(entry.status.as_ref()) {
            entry.deferred.take(&change.id);
            self.rearm(uid);
            self.forget_if_unknown(uid);
            return;
        }
        let is_container = change.id != change.sandbox_id;
        match change.kind {
            RuntimeEventKind::Created if is_container => {
                entry.deferred.add(change, None, now.plus(START_GRACE));
                self.rearm(uid);
            }
            RuntimeEventKind::Created | RuntimeEventKind::Started => {
                entry.deferred.add(change, sandbox, now.plus(REFRESH_GRACE));
                self.rearm(uid);
            }
            RuntimeEventKind::Stopped | RuntimeEventKind::Deleted => {
                entry.deferred.take(&change.id);
                // The status of a sandbox that is not cached may be older than its removal.
                let status = entry.status.as_ref();
                let is_cached = |s: &SandboxStatus| {
                    status.is_some_and(|status| status.sandboxes.iter().any(|c| c.id == s.id))
                };
                let sandbox = sandbox.filter(is_cached);
                entry.pending.changes.add(change, sandbox);
                self.enqueue(uid, true);
            }
        }
    }

    /// A full list has ended. Only pods whose entries changed are inspected.
    pub fn on_relisted(
        &mut self,
        sequence: u64,
        result: Result<PodListing, String>,
        now: Timestamp,
    ) {
        self.listing = false;
        if !std::mem::take(&mut self.relist_again) {
            self.relist_due = self.period.on_listed(result.is_ok(), now);
        }
        let Ok(mut listing) = result else { return };
        let mut changed = BTreeSet::new();
        let cached: Vec<_> = self.pods.keys().cloned().collect();
        for uid in cached {
            let listed = listing.remove(&uid).unwrap_or_default();
            if self.compare(&uid, sequence, listed) {
                changed.insert(uid);
            }
        }
        for (uid, listed) in listing {
            self.pods.entry(uid.clone()).or_default();
            if self.compare(&uid, sequence, listed) {
                changed.insert(uid);
            }
        }
        match self.sync {
            InitialSync::NotListed => {
                self.sync = InitialSync::Listed(changed);
                self.check_initial_sync();
            }
            InitialSync::Done if self.period.has_events() => self.late_events.expect(changed, now),
            InitialSync::Listed(_) | InitialSync::Done => {}
        }
    }

    // Whether the list shows a change of the pod that is neither cached nor being inspected.
    fn compare(&mut self, uid: &PodUid, sequence: u64, listed: ListedPod) -> bool {
        let Some(entry) = self.pods.get_mut(uid) else {
            return false;
        };
        let first = !matches!(self.sync, InitialSync::Done);
        if let Some(inspection) = entry
            .in_flight
            .as_ref()
            .filter(|inspection| inspection.sequence > sequence)
        {
            // An inspection of changes says nothing about the rest.
            let same = matches_list(entry.status.as_ref(), &listed);
            if inspection.requested.is_some() && !same {
                self.request_fresh(uid, false);
            }
            return first;
        }
        if entry
            .last_inspection
            .is_some_and(|(last, _)| last > sequence)
        {
            return false;
        }
        let delayed = self.delayed.due(uid).is_some();
        // A failed inspection is retried after its backoff.
        if entry.suspect && delayed && !first {
            return false;
        }
        let idle = entry.in_flight.is_none() && !entry.pending.queued;
        let same = matches_list(entry.status.as_ref(), &listed);
        if !same && entry.last_change > sequence {
            // The list may be older than the changes, or show others.
            self.request_fresh(uid, false);
            return first;
        }
        if same && idle {
            if entry.status.is_none() && !delayed {
                self.pods.remove(uid);
            }
            return false;
        }
        entry.pending.listed = Some((sequence, listed));
        self.enqueue(uid, false);
        first || (idle && !delayed)
    }

    fn is_synced(&self) -> bool {
        matches!(self.sync, InitialSync::Done)
    }

    fn check_initial_sync(&mut self) {
        if matches!(&self.sync, InitialSync::Listed(left) if left.is_empty()) {
            self.sync = InitialSync::Done;
            self.actions.push(Action::Synced);
        }
    }
}

#[cfg(test)]
mod tests;
