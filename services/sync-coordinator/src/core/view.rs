//! Everything known of one pod, and of the node as far as the pod is concerned.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use polylet_model::{Allocation, Amounts};

use super::hooks::Lifecycle;
use super::observed::{Observed, Overlay};
use super::room::{Demand, Room};
use super::step::{Step, StepKey};
use super::wanted::Wanted;

/// Why a pod may never run again on this node.
#[derive(Clone, Debug, PartialEq)]
pub struct Terminal {
    /// `status.reason`; empty when the pod came to its own end.
    pub reason: String,
    /// `status.message`.
    pub message: String,
    /// `Failed` or `Succeeded`.
    pub phase: String,
    /// Whether the pod gets the DisruptionTarget condition.
    pub disruption_target: bool,
    /// When it was decided.
    pub decided_at: Timestamp,
    /// The grace of this end, where it is not the pod's own.
    pub grace: Option<u32>,
}

/// What is kept of a pod over a restart of this process.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Journal {
    /// When this node took the pod up.
    pub acknowledged_at: Option<Timestamp>,
    /// What it was given of the node when it was let in.
    pub demand: Option<Arc<Demand>>,
    /// The resources that its containers have, or are to have.
    pub allocated: Option<Arc<Allocation>>,
    /// What the pod's cgroup has, while that is not what was allocated.
    pub in_cgroup: Option<Arc<Allocation>>,
    /// What running containers were last given, by id, where they were made with something else.
    pub held: BTreeMap<String, Amounts>,
    /// The manifest's generation when a change of resources was last given.
    pub resize_generation: i64,
    /// Why it may not run again.
    pub terminal: Option<Terminal>,
    /// After a terminal decision: everything is stopped and released.
    pub torn_down: bool,
}

impl Journal {
    /// What is on disk once a step has written it.
    pub fn after(&self, step: &Step) -> Journal {
        let mut journal = self.clone();
        match step {
            Step::Decide(terminal) => journal.terminal = Some(terminal.clone()),
            Step::TornDown => journal.torn_down = true,
            Step::Allocate {
                allocation,
                demand,
                held,
                generation,
            } => {
                // From the first of several changes on: the cgroup has heard of none of them.
                let before = journal.in_cgroup.take().or(journal.allocated.take());
                journal.in_cgroup = before;
                journal.held.clone_from(held);
                journal.allocated = Some(Arc::clone(allocation));
                journal.demand = Some(Arc::clone(demand));
                journal.resize_generation = *generation;
            }
            Step::Resize { changes } => {
                journal.in_cgroup = None;
                let given = changes.iter().map(|change| (change.id.clone(), change.to));
                journal.held.extend(given);
            }
            _ => {}
        }
        journal
    }
}

/// A step under way.
#[derive(Clone, Debug, PartialEq)]
pub struct Flight {
    /// The step.
    pub step: Step,
    /// Since when.
    pub since: Timestamp,
}

/// What the last tries of a step came to.
#[derive(Clone, Debug, PartialEq)]
pub struct Failure {
    /// Failures in a row.
    pub count: u32,
    /// The container's waiting reason, or another short word.
    pub reason: String,
    /// What went wrong.
    pub message: String,
    /// The image it was about; empty of other steps than pulls.
    pub image: String,
    /// Since when it goes wrong.
    pub since: Timestamp,
    /// The last time.
    pub at: Timestamp,
    /// Not before this.
    pub retry_at: Timestamp,
}

impl Failure {
    /// Whether it is still to be waited out. One that lies ahead was noted before the clock was set
    /// back: nobody knows how long ago that is.
    pub fn holds(&self, now: Timestamp) -> bool {
        self.at <= now && now < self.retry_at
    }
}

/// A container's image.
#[derive(Clone, Debug, PartialEq)]
pub struct Image {
    /// The manifest's word for it; another word makes this void.
    pub image: String,
    /// The runtime's reference, once the image is on the node.
    pub image_ref: Option<String>,
}

/// Where one volume stands.
#[derive(Clone, Debug, PartialEq)]
pub struct SeenVolume {
    /// Its name in the pod.
    pub name: String,
    /// Mounted.
    pub mounted: bool,
    /// Not mounted, but it will be in a moment.
    pub coming: bool,
    /// Nothing of it is left.
    pub gone: bool,
    /// Where it is on the node.
    pub host_path: String,
    /// What it waits for, or what failed.
    pub message: String,
    /// Where the pod may not stay on this node for want of it: the reason of its status.
    pub refusal: String,
    /// A group that the pod's containers belong to as well.
    pub group: Option<i64>,
}

/// A pod's volumes, as volume-manager tells of them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Volumes {
    /// The manifest's digest that was declared in this life of both processes.
    pub declared: Option<String>,
    /// Sequence of the last declaration.
    pub sequence: u64,
    /// What volume-manager says; `None` when it holds nothing of the pod.
    pub seen: Option<(u64, Vec<SeenVolume>)>,
    /// The release was accepted.
    pub released: bool,
    /// When that was.
    pub released_at: Option<Timestamp>,
    /// The declaration or release under way was made under a former name, or to a former life of
    /// volume-manager: its answer counts for nothing.
    pub void: bool,
}

/// A probe's verdict that ends a container.
#[derive(Clone, Debug, PartialEq)]
pub struct Unwell {
    /// The startup probe failed; otherwise the liveness probe.
    pub startup: bool,
    /// The probe's words.
    pub message: String,
}

/// One pod: the state of its worker.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pod {
    /// The pod's uid.
    pub uid: String,
    /// Its manifest; `None` when it is known from the runtime alone.
    pub wanted: Option<Arc<Wanted>>,
    /// Served by its source.
    pub listed: bool,
    /// To be removed for good: no longer served, or being deleted. Sticks until everything is gone.
    pub leaving: bool,
    /// What the runtime holds, our own last acts included; `None` before the first word.
    pub observed: Option<Observed>,
    /// What the runtime was last heard to hold, and our acts since.
    pub base: Observed,
    /// Acts that the base may not show yet, by their number.
    pub overlays: Vec<(u64, Overlay)>,
    /// Acts so far.
    pub acts: u64,
    /// Its volumes.
    pub volumes: Volumes,
    /// Images by container name.
    pub images: BTreeMap<String, Image>,
    /// Steps under way.
    pub flights: BTreeMap<StepKey, Flight>,
    /// Steps that failed last time.
    pub failures: BTreeMap<StepKey, Failure>,
    /// Containers whose startup probe succeeded, by id.
    pub startup_ok: BTreeSet<String>,
    /// Containers that a probe condemned, by id.
    pub unwell: BTreeMap<String, Unwell>,
    /// The order to evict the pod.
    pub order: Option<Terminal>,
    /// What is on disk about it.
    pub journal: Journal,
    /// Since when a change of its resources is not given.
    pub resize_since: Option<Timestamp>,
    /// Since when only the node's labels keep the pod out.
    pub unsure_since: Option<Timestamp>,
    /// Since when what was given is on its way to what runs.
    pub resizing_since: Option<Timestamp>,
    /// Whether the journal is on disk.
    pub journalled: bool,
    /// Stops and hooks under way.
    pub lifecycle: Lifecycle,
    /// Sandbox attempts below this one may have been used.
    pub sandbox_floor: u32,
    /// Container attempts below these may have been used.
    pub attempt_floor: BTreeMap<String, u32>,
    /// Sandboxes that were stopped for good in this life.
    pub stopped_sandboxes: BTreeSet<String>,
    /// The pod's cgroup was ensured in this life.
    pub cgroup_ready: bool,
    /// The pod's cgroup was removed.
    pub cgroup_gone: bool,
    /// The pod's logs and directory were removed.
    pub files_gone: bool,
    /// When nothing was left any more.
    pub reclaimed_at: Option<Timestamp>,
    /// Another pod of the same full name is still there.
    pub blocked_by: Option<String>,
    /// Holds one of the places for pods that start.
    pub slot: bool,
}

/// How short the node is, as far as admission goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pressure {
    /// Memory.
    pub memory: bool,
    /// Disk.
    pub disk: bool,
    /// Process ids.
    pub pids: bool,
}

/// The node, as far as any pod is concerned.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// Every source and pleg have been heard in this life, and none is stale.
    pub all_heard: bool,
    /// The runtime's state is current.
    pub pleg_fresh: bool,
    /// The runtime works; else why not.
    pub runtime: Result<(), String>,
    /// The pod network works; else why not.
    pub network: Result<(), String>,
    /// Volume states are current.
    pub volumes_fresh: bool,
    /// How short the node is.
    pub pressure: Pressure,
    /// What the node has to give.
    pub room: Room,
    /// The longest pause between two starts of a crashing container.
    pub crash_cap: Duration,
}

/// One look at one pod.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// The pod.
    pub pod: &'a Pod,
    /// The node.
    pub node: &'a Node,
    /// The present moment.
    pub now: Timestamp,
}

impl<'a> View<'a> {
    /// Whether a step is under way.
    pub fn in_flight(&self, key: &StepKey) -> bool {
        self.pod.flights.contains_key(key)
    }

    /// The failure that a step still waits out.
    pub fn held_back(&self, key: &StepKey) -> Option<&'a Failure> {
        self.pod.failures.get(key).filter(|f| f.holds(self.now))
    }

    /// What the runtime holds.
    pub fn observed(&self) -> &'a Observed {
        self.pod.observed.as_ref().unwrap_or(&self.pod.base)
    }
}
