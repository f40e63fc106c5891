//! The world: everything that is, whoever knows of it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::PodStatus;
use polylet_image_gc::core::records::Records;
use polylet_pod_config::core::kept::Kept as Accepted;
use polylet_sync_coordinator::core::hooks::Lifecycle;
use polylet_sync_coordinator::core::view::Journal;
use polylet_volume_manager::core::plan::Slot;
use polylet_wire::eviction::v1::Pressure;
use polylet_wire::pleg::v1::{PodState, WatchRuntimeResponse};
use polylet_wire::podconfig::v1::{Pod, PodSource};
use polylet_wire::prober::v1::Verdict;
use polylet_wire::sync::v1::PodSync;
use polylet_wire::volume::v1::PodVolumes;
use tokio::sync::watch;

use crate::calls::Call;
use crate::laws::{Broken, Law};
use crate::link::Served;
use crate::node::{config, coordinator, eviction, images, pleg, prober, status, volumes};
use crate::pods::Wish;
use crate::rng::Rng;
use crate::runtime::Runtime;
use crate::sabotage::Sabotage;

/// Who can be killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Who {
    /// pod-config.
    Config,
    /// pleg.
    Pleg,
    /// prober.
    Prober,
    /// volume-manager.
    Volumes,
    /// sync-coordinator.
    Coordinator,
    /// status-reporter.
    Status,
    /// image-gc.
    Images,
    /// eviction.
    Eviction,
}

impl Who {
    /// All of them.
    pub const ALL: [Who; 8] = [
        Who::Config,
        Who::Pleg,
        Who::Prober,
        Who::Volumes,
        Who::Coordinator,
        Who::Status,
        Who::Images,
        Who::Eviction,
    ];
}

/// What sources want.
#[derive(Debug, Default)]
pub struct Truth {
    /// Pods by uid.
    pub wishes: BTreeMap<String, Wish>,
    /// Pods of other sources than the API at any time.
    pub fixed: BTreeSet<String>,
    /// Pods that were taken back or asked to go at any time.
    pub disowned: BTreeSet<String>,
    /// Pods that may be put back as they were.
    pub taken_back: Vec<Wish>,
    /// Pods whose manifest changed at any time.
    pub changed: BTreeSet<String>,
    /// Pods that eviction ordered away at any time.
    pub ordered: BTreeSet<String>,
    /// The pods of the API server that pod-config listed last.
    pub listed: BTreeMap<String, Pod>,
}

/// What of one pod is on the disk.
#[derive(Clone, Debug, Default)]
pub struct PodDir {
    /// Volumes, and whether each was set up to the end.
    pub volumes: BTreeMap<Slot, bool>,
    /// hostPath volumes by name, with the pod's own name.
    pub note: Option<(String, BTreeMap<String, String>)>,
}

/// The disk: what outlives every process.
#[derive(Debug, Default)]
pub struct Disk {
    /// The coordinator's journal.
    pub journal: BTreeMap<String, Journal>,
    /// Sandbox numbers that are being asked for.
    pub intents: BTreeMap<String, u32>,
    /// Stops and hooks under way.
    pub lifecycles: BTreeMap<String, Lifecycle>,
    /// The prober's verdicts.
    pub verdicts: polylet_prober::judge::Verdicts,
    /// Statuses that were told.
    pub statuses: BTreeMap<String, Arc<PodStatus>>,
    /// How often in a row a pod's journal could not be written.
    pub failed: BTreeMap<String, u32>,
    /// Pods' directories with their volumes.
    pub pods: BTreeMap<String, PodDir>,
    /// Pods' cgroups.
    pub cgroups: BTreeSet<String>,
    /// Pods' logs.
    pub logs: BTreeSet<String>,
    /// Manifest files by path.
    pub files: BTreeMap<String, Vec<u8>>,
    /// What pod-config accepted of them last.
    pub accepted: Accepted,
    /// Ages of images.
    pub ages: Records,
    /// Standing orders.
    pub orders: eviction::Kept,
}

/// The stores of those services that live.
#[derive(Default)]
pub struct Stores {
    /// pod-config's three sources.
    pub pods: BTreeMap<PodSource, Served<String, Pod>>,
    /// pleg's pods.
    pub states: Served<String, PodState>,
    /// pleg's word on the runtime.
    pub runtime: Option<(u32, watch::Receiver<WatchRuntimeResponse>)>,
    /// volume-manager's.
    pub volumes: Served<String, PodVolumes>,
    /// prober's.
    pub verdicts: Served<(String, String, i32), Verdict>,
    /// eviction's.
    pub pressure: Served<polylet_watch::PressureKeyOwned, Pressure>,
    /// sync-coordinator's.
    pub sync: Served<String, PodSync>,
    /// status-reporter's.
    pub status: Served<String, polylet_wire::status::v1::PodStatus>,
}

/// How much goes wrong, in thousandths of the steps.
#[derive(Clone, Copy, Debug, Default)]
pub struct Temper {
    /// Kills.
    pub kills: usize,
    /// Everything else that is rare.
    pub disasters: usize,
}

/// Everything.
pub struct World {
    /// How much goes wrong.
    pub temper: Temper,
    /// Chance.
    pub rng: Rng,
    /// The present moment.
    pub now: Timestamp,
    /// No faults any more: everything that can be done is done at once.
    pub calm: bool,
    /// What sources want.
    pub truth: Truth,
    /// The runtime.
    pub runtime: Runtime,
    /// The disk.
    pub disk: Disk,
    /// Calls under way, whoever made them.
    pub calls: Vec<Call>,
    /// Calls so far.
    pub call_count: u64,
    /// Lives of processes so far.
    pub lives: u32,
    /// What is served now.
    pub stores: Stores,
    /// pod-config, while it lives.
    pub config: Option<config::Config>,
    /// pleg, while it lives.
    pub pleg: Option<pleg::Pleg>,
    /// prober, while it lives.
    pub prober: Option<prober::Prober>,
    /// status-reporter, while it lives.
    pub status: Option<status::Status>,
    /// volume-manager, while it lives.
    pub volumes: Option<volumes::Volumes>,
    /// sync-coordinator, while it lives.
    pub coordinator: Option<coordinator::Node>,
    /// image-gc, while it lives.
    pub images: Option<images::Images>,
    /// eviction, while it lives.
    pub eviction: Option<eviction::Eviction>,
    /// What the node is short of.
    pub short: Option<polylet_eviction::Signal>,
    /// What the laws remember.
    pub memory: crate::laws::Memory,
    /// The first law that was broken.
    pub broken: Option<Broken>,
    /// A bug, put in by hand.
    pub sabotage: Option<Sabotage>,
    /// Pods so far.
    pub pod_count: u32,
    /// What happened, for people; kept only when somebody wants to read it.
    pub log: Option<Vec<String>>,
    /// A digest of what happened: the same seed gives the same.
    pub digest: u64,
}

impl World {
    /// Before anything has happened.
    pub fn new(seed: u64, sabotage: Option<Sabotage>, log: bool) -> Self {
        let mut world = World {
            temper: Temper::default(),
            rng: Rng::new(seed),
            now: Timestamp::from_second(1_800_000_000).unwrap_or(Timestamp::UNIX_EPOCH),
            calm: false,
            truth: Truth::default(),
            runtime: Runtime::default(),
            disk: Disk::default(),
            calls: Vec::new(),
            call_count: 0,
            lives: 0,
            stores: Stores::default(),
            config: None,
            pleg: None,
            prober: None,
            status: None,
            volumes: None,
            coordinator: None,
            images: None,
            eviction: None,
            short: None,
            memory: crate::laws::Memory::default(),
            broken: None,
            sabotage,
            pod_count: 0,
            log: log.then(Vec::new),
            digest: 0,
        };
        world.runtime.up = true;
        for who in Who::ALL {
            world.start(who);
        }
        world
    }

    /// Notes what happened.
    pub fn say(&mut self, what: impl FnOnce() -> String) {
        if self.log.is_none() {
            return;
        }
        let millis = self.now.as_millisecond() - 1_800_000_000_000;
        let line = format!("{:>6}.{:03} {}", millis / 1000, millis % 1000, what());
        for byte in line.bytes() {
            self.digest = (self.digest ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        }
        if let Some(log) = &mut self.log {
            log.push(line);
        }
    }

    /// A law was broken: the first one counts.
    pub fn breaks(&mut self, law: Law, why: String) {
        self.say(|| format!("BROKEN {law:?}: {why}"));
        if self.broken.is_none() {
            self.broken = Some(Broken { law, why });
        }
    }

    /// Time goes by.
    pub fn pass(&mut self, millis: i64) {
        let later = self.now.checked_add(SignedDuration::from_millis(millis));
        self.now = later.unwrap_or(self.now);
        for id in self.runtime.reap(self.now) {
            self.say(|| format!("runtime: {id} was killed at the end of its grace"));
        }
    }

    /// Whether somebody lives, and as which life.
    pub fn life(&self, who: Who) -> Option<u32> {
        match who {
            Who::Config => self.config.as_ref().map(|c| c.life),
            Who::Pleg => self.pleg.as_ref().map(|p| p.life),
            Who::Prober => self.prober.as_ref().map(|p| p.life),
            Who::Status => self.status.as_ref().map(|s| s.life),
            Who::Volumes => self.volumes.as_ref().map(|v| v.life),
            Who::Coordinator => self.coordinator.as_ref().map(|c| c.life),
            Who::Images => self.images.as_ref().map(|i| i.life),
            Who::Eviction => self.eviction.as_ref().map(|e| e.life),
        }
    }

    /// Starts a process.
    pub fn start(&mut self, who: Who) {
        self.lives += 1;
        let life = self.lives;
        self.say(|| format!("{who:?} starts as life {life}"));
        match who {
            Who::Config => config::start(self, life),
            Who::Pleg => pleg::start(self, life),
            Who::Prober => prober::start(self, life),
            Who::Status => status::start(self, life),
            Who::Volumes => volumes::start(self, life),
            Who::Coordinator => coordinator::start(self, life),
            Who::Images => images::start(self, life),
            Who::Eviction => eviction::start(self, life),
        }
    }

    /// Kills a process: what it had in memory is gone, what it had asked for may still be done.
    pub fn kill(&mut self, who: Who) {
        self.say(|| format!("{who:?} is killed"));
        match who {
            Who::Config => {
                self.config = None;
                self.stores.pods.clear();
            }
            Who::Pleg => {
                self.pleg = None;
                self.stores.states = None;
                self.stores.runtime = None;
            }
            Who::Prober => {
                self.prober = None;
                self.stores.verdicts = None;
            }
            Who::Status => {
                self.status = None;
                self.stores.status = None;
            }
            Who::Volumes => {
                self.volumes = None;
                self.stores.volumes = None;
            }
            Who::Coordinator => {
                self.coordinator = None;
                self.stores.sync = None;
            }
            Who::Images => self.images = None,
            Who::Eviction => {
                self.eviction = None;
                self.stores.pressure = None;
            }
        }
    }

    /// Whether the pod has always been wanted as it is: nothing of it may be disturbed.
    pub fn is_steady(&self, uid: &str) -> bool {
        let decided = |j: &Journal| j.terminal.is_some();
        self.truth.wishes.contains_key(uid)
            && !self.truth.disowned.contains(uid)
            && !self.truth.ordered.contains(uid)
            && !self.disk.journal.get(uid).is_some_and(decided)
            && self.disk.failed.get(uid).is_none_or(|times| *times < 2)
    }
}
