//! All workers together: inputs are sorted into them. What each input means is in `inputs`, what
//! comes of it in `looks`.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

use jiff::Timestamp;
use polylet_model::Allocation;
use polylet_wire::common::v1::PodRef;
use polylet_wire::prober::v1::Verdict;
use polylet_wire::sync::v1::PodSync;
use polylet_wire::volume::v1::PodVolumes;

use crate::act::userns::Handlers;
use crate::convert;
use crate::core::hooks::Lifecycle;
use crate::core::learn;
use crate::core::leftovers::Sweep;
use crate::core::observed::Observed;
use crate::core::room::Room;
use crate::core::view::{Journal, Node, Pressure, Terminal};
use crate::heard::{Heard, Stream};
use crate::logs::Logs;
use crate::outside::Outside;
use crate::room;
use crate::run::{Input, SOURCES};
use crate::settings::{Kept, Settings};
use crate::slots::Slots;
use crate::wakes::Wakes;
use crate::worker::Worker;

type Store = polylet_watch::Store<String, PodSync>;

/// Owner of all workers.
pub struct Coordinator {
    pub(crate) outside: Rc<dyn Outside>,
    pub(crate) store: Store,
    pub(crate) settings: Settings,
    pub(crate) workers: BTreeMap<String, Worker>,
    pub(crate) node: Node,
    pub(crate) heard: Heard,
    /// Pods to be looked at.
    pub(crate) dirty: BTreeSet<String>,
    /// Those that are looked at now, the last one next.
    pub(crate) round: Vec<String>,
    pub(crate) wakes: Wakes,
    pub(crate) slots: Slots,
    pub(crate) logs: Logs,
    /// Journal entries of pods that were not met yet in this life.
    pub(crate) entries: BTreeMap<String, Journal>,
    /// What pods had under a kubelet before.
    pub(crate) taken_over: BTreeMap<String, Allocation>,
    /// Sandbox numbers that a former life asked for.
    pub(crate) intents: BTreeMap<String, u32>,
    /// Stops and hooks that a former life had under way.
    pub(crate) lifecycles: BTreeMap<String, Lifecycle>,
    /// Standing orders, also of pods that were not met yet.
    pub(crate) orders: BTreeMap<String, Terminal>,
    /// What the prober says, also of pods that were not met yet: nothing is told twice.
    pub(crate) verdicts: BTreeMap<(String, String, i32), Verdict>,
    /// Where volumes stand, also of pods that were not met yet.
    pub(crate) volumes: BTreeMap<String, PodVolumes>,
    /// Pods of which something is on the node, until all are heard.
    pub(crate) leftovers: Vec<PodRef>,
    /// Pods that their source remembers, and has not heard of in its present life.
    pub(crate) remembered: BTreeSet<String>,
    /// When to look for them.
    pub(crate) sweep: Sweep,
    arrivals: u64,
    /// When this life began.
    pub(crate) began: Timestamp,
    pub(crate) sequence: u64,
    /// Which name of this life volume-manager knows it by.
    pub(crate) declarer: u32,
    /// Which handlers of the runtime can give a pod a user namespace.
    pub(crate) handlers: Arc<Handlers>,
    /// The node's addresses as its object in the cluster tells them.
    pub(crate) host_ips: Arc<[String]>,
    /// Pods that wait until others have made room.
    pub(crate) seekers: BTreeSet<String>,
    /// Volume-manager has heard all that is wanted.
    pub(crate) completed: bool,
    pub(crate) completing: bool,
    /// Not before this moment is it told again.
    pub(crate) complete_after: Option<Timestamp>,
    pub(crate) draining: bool,
}

impl Coordinator {
    /// With nothing heard yet in this life, which began at `now`.
    pub fn new(
        outside: Rc<dyn Outside>,
        store: Store,
        settings: Settings,
        kept: Kept,
        now: Timestamp,
    ) -> Self {
        let node = Node {
            all_heard: false,
            pleg_fresh: false,
            runtime: Err("not heard of yet".to_owned()),
            network: Err("not heard of yet".to_owned()),
            volumes_fresh: false,
            pressure: Pressure::default(),
            room: Room {
                ledger: room::remembered(&kept.entries),
                ..settings.room.clone()
            },
            crash_cap: settings.crash_cap,
        };
        Coordinator {
            outside,
            store,
            workers: BTreeMap::new(),
            node,
            heard: Heard::new(&SOURCES.map(i32::from)),
            dirty: BTreeSet::new(),
            round: Vec::new(),
            wakes: Wakes::default(),
            slots: Slots::new(settings.parallel_starts),
            logs: Logs::default(),
            settings,
            entries: kept.entries,
            taken_over: kept.taken_over,
            intents: kept.intents,
            lifecycles: kept.lifecycles,
            orders: BTreeMap::new(),
            verdicts: BTreeMap::new(),
            volumes: BTreeMap::new(),
            leftovers: Vec::new(),
            remembered: BTreeSet::new(),
            sweep: Sweep::default(),
            arrivals: 0,
            began: now,
            // Rises over lives of this process as well.
            sequence: u64::try_from(now.as_nanosecond()).unwrap_or(0),
            declarer: 0,
            handlers: Arc::default(),
            host_ips: Arc::default(),
            seekers: BTreeSet::new(),
            completed: false,
            completing: false,
            complete_after: None,
            draining: false,
        }
    }

    /// The worker of a pod, made where there is none.
    pub(crate) fn worker(&mut self, reference: &PodRef) -> &mut Worker {
        let uid = &reference.uid;
        if !self.workers.contains_key(uid) {
            self.arrivals += 1;
            let mut worker = Worker::new(reference.clone(), self.arrivals);
            if let Some(entry) = self.entries.remove(uid) {
                worker.pod.journal = entry;
                worker.pod.journalled = true;
            }
            if let Some(attempt) = self.intents.remove(uid) {
                worker.pod.sandbox_floor = attempt.saturating_add(1);
            }
            if let Some(lifecycle) = self.lifecycles.remove(uid) {
                worker.lifecycle_kept = lifecycle.clone();
                worker.pod.lifecycle = lifecycle;
            }
            worker.pod.order = self.orders.get(uid).cloned();
            if let Some(state) = self.volumes.get(uid) {
                learn::volumes_heard(&mut worker.pod, state.sequence, convert::volumes(state));
            }
            let mine = self
                .verdicts
                .range((uid.clone(), String::new(), i32::MIN)..)
                .take_while(|((of, _, _), _)| of == uid);
            for ((_, container, kind), verdict) in mine {
                convert::verdict(&mut worker.pod, container, *kind, verdict);
            }
            if self.heard.ever(Stream::Pods) {
                // Nothing was told of it so far: whatever is told next is news.
                let _ = learn::observed(&mut worker.pod, Observed::default());
            }
            self.workers.insert(uid.clone(), worker);
        }
        self.dirty.insert(uid.clone());
        self.workers
            .entry(uid.clone())
            .or_insert_with(|| Worker::new(reference.clone(), 0))
    }

    /// Every pod is to be looked at.
    pub(crate) fn all_dirty(&mut self) {
        self.dirty.extend(self.workers.keys().cloned());
    }

    /// When the first pod wants to be looked at.
    pub fn next_due(&self) -> Option<Timestamp> {
        [
            self.wakes.first(),
            self.complete_after,
            self.next_look_for_leftovers(),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// Starts nothing new from now on.
    pub fn drain(&mut self) {
        self.draining = true;
    }

    /// Whether the process is ending.
    pub fn is_draining(&self) -> bool {
        self.draining
    }

    /// Whether no step is under way.
    pub fn is_idle(&self) -> bool {
        self.workers
            .values()
            .all(|worker| worker.pod.flights.is_empty())
    }

    /// Takes one input in.
    pub fn take(&mut self, input: Input, now: Timestamp) {
        if self.wakes.clock_went_back(now) {
            self.clock_went_back();
        }
        match input {
            Input::Config(source, update) => self.config(source, update, now),
            Input::Pods(update) => self.pods(update),
            Input::Runtime(value) => self.runtime(value),
            Input::Volumes(update) => self.volumes(update, now),
            Input::Verdict(update) => self.verdict(update),
            Input::Pressure(update) => self.pressure(update, now),
            Input::StepDone {
                uid,
                key,
                outcome,
                state,
            } => self.step_done(&uid, &key, *outcome, state, now),
            Input::Refreshed { uid, acts, state } => self.refreshed(uid, acts, state),
            Input::Completed(declarer, result) => self.was_completed(declarer, result, now),
            Input::Leftovers(pods) => self.leftovers_found(pods),
            Input::Node(value) => self.node_said(value),
            Input::Appeared { uid, key } => self.appeared(&uid, &key, now),
            Input::Timer => self.timer(now),
        }
        // What a source only remembers is no reason to take away what it does not speak of.
        let all_heard = self.heard.all_fresh() && self.remembered.is_empty();
        if all_heard != self.node.all_heard {
            self.node.all_heard = all_heard;
            self.all_dirty();
        }
    }

    /// What was to be done at some moment is judged anew.
    fn clock_went_back(&mut self) {
        tracing::warn!("the clock was set back");
        self.workers
            .values_mut()
            .for_each(|worker| worker.wake = None);
        self.complete_after = None;
        self.all_dirty();
    }

    fn timer(&mut self, now: Timestamp) {
        while let Some(uid) = self.wakes.pop(now) {
            if let Some(worker) = self.workers.get_mut(&uid) {
                worker.wake = None;
                self.dirty.insert(uid);
            }
        }
        if self.complete_after.is_some_and(|at| at <= now) {
            self.complete_after = None;
        }
    }
}

#[cfg(test)]
mod tests;
