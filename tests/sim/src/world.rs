//! The state of the simulation.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use polylet_device_manager::core::allocations::DeviceAllocations;
use polylet_image_gc::core::records::ImageRecords;
use polylet_model::PodUid;
use polylet_pod_config::core::state::PersistedSource as Accepted;
use polylet_status_reporter::SharedStatus;
use polylet_sync_coordinator::core::checkpoint::PodCheckpoint;
use polylet_sync_coordinator::core::view::PodLifecycle;
use polylet_volume_manager::core::layout::VolumeKey;
use polylet_watch::ProbeItemKey;
use polylet_wire::eviction::v1::Pressure;
use polylet_wire::pleg::v1::{PodState, WatchRuntimeResponse};
use polylet_wire::podconfig::v1::{Pod, PodSource};
use polylet_wire::prober::v1::ProbeStatus;
use polylet_wire::sync::v1::PodSync;
use polylet_wire::volume::v1::PodVolumes;
use tokio::sync::watch;

use crate::calls::Call;
use crate::device_plugin::DevicePlugin;
use crate::invariants::{Invariant, Violation};
use crate::link::Served;
use crate::mutations::Mutation;
use crate::node::{config, coordinator, devices, eviction, images, pleg, prober, status, volumes};
use crate::pods::SimulatedPod;
use crate::rng::Rng;
use crate::runtime::Runtime;

/// The services, which can be killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ServiceId {
    /// The model of pod-config.
    Config,
    /// The model of pleg.
    Pleg,
    /// The model of prober.
    Prober,
    /// The model of volume-manager.
    Volumes,
    /// The model of sync-coordinator.
    Coordinator,
    /// The model of status-reporter.
    Status,
    /// The model of image-gc.
    Images,
    /// The model of eviction.
    Eviction,
    /// The model of device-manager.
    Devices,
}

impl ServiceId {
    /// All services.
    pub const ALL: [ServiceId; 9] = [
        ServiceId::Config,
        ServiceId::Pleg,
        ServiceId::Prober,
        ServiceId::Volumes,
        ServiceId::Coordinator,
        ServiceId::Status,
        ServiceId::Images,
        ServiceId::Eviction,
        ServiceId::Devices,
    ];
}

/// The state of the pod sources.
#[derive(Debug, Default)]
pub struct SimulatedSources {
    /// The desired pods by uid.
    pub desired_pods: BTreeMap<String, SimulatedPod>,
    /// All static pods so far.
    pub static_pods: BTreeSet<String>,
    /// All pods that were removed from their source or deleted so far.
    pub withdrawn: BTreeSet<String>,
    /// The manifest files that were deleted and written again since pod-config last read them.
    pub rewritten: BTreeSet<String>,
    /// Removed static pods, which may return unchanged.
    pub removed_manifests: Vec<SimulatedPod>,
    /// All pods with a changed manifest so far.
    pub changed: BTreeSet<String>,
    /// All evicted pods so far.
    pub evicted: BTreeSet<String>,
    /// The pods of the API server that pod-config listed last.
    pub listed: BTreeMap<String, Pod>,
    /// The share of new pods that request devices, in percent.
    pub device_pods: usize,
}

/// The directory of a pod.
#[derive(Clone, Debug, Default)]
pub struct PodDir {
    /// The volumes, and whether each is completely set up.
    pub volumes: BTreeMap<VolumeKey, bool>,
    /// The pod's name, and its hostPath volumes by name.
    pub metadata: Option<(String, BTreeMap<String, String>)>,
}

/// The disk, which survives all processes.
#[derive(Debug, Default)]
pub struct Disk {
    /// The coordinator's checkpoints.
    pub checkpoints: BTreeMap<String, PodCheckpoint>,
    /// The attempts of sandboxes that are being created.
    pub sandbox_intents: BTreeMap<String, u32>,
    /// Stops and hooks in progress.
    pub lifecycles: BTreeMap<String, PodLifecycle>,
    /// The prober's results.
    pub probe_results: polylet_prober::manager::Results,
    /// The published statuses.
    pub statuses: BTreeMap<PodUid, SharedStatus>,
    /// The failed writes of a pod's checkpoint in a row.
    pub failed: BTreeMap<String, u32>,
    /// The pods' directories with their volumes.
    pub pods: BTreeMap<String, PodDir>,
    /// The pods' cgroups.
    pub cgroups: BTreeSet<String>,
    /// The pods' logs.
    pub logs: BTreeSet<String>,
    /// The manifest files by path.
    pub files: BTreeMap<String, Vec<u8>>,
    /// The state that pod-config persisted last.
    pub accepted: Accepted,
    /// The ages of images.
    pub ages: ImageRecords,
    /// The stored evictions.
    pub evictions: eviction::StoredEvictions,
    /// The devices of containers, as device-manager's checkpoint has them.
    pub devices: DeviceAllocations,
}

/// The stores of running services.
#[derive(Default)]
pub struct Stores {
    /// pod-config's pods by source.
    pub pods: BTreeMap<PodSource, Served<PodUid, Pod>>,
    /// pleg's pods.
    pub states: Served<PodUid, PodState>,
    /// pleg's state of the runtime.
    pub runtime: Option<(u32, watch::Receiver<WatchRuntimeResponse>)>,
    /// volume-manager's volumes.
    pub volumes: Served<PodUid, PodVolumes>,
    /// The prober's results.
    pub probe_results: Served<ProbeItemKey, ProbeStatus>,
    /// eviction's pressure and evicted pods.
    pub pressure: Served<polylet_watch::PressureItemKey, Pressure>,
    /// sync-coordinator's pods.
    pub sync: Served<PodUid, PodSync>,
    /// status-reporter's statuses.
    pub status: Served<PodUid, polylet_wire::status::v1::PodStatus>,
}

/// The rates of faults, per thousand steps.
#[derive(Clone, Copy, Debug, Default)]
pub struct FaultProfile {
    /// Kills of services.
    pub kills: usize,
    /// Other rare faults.
    pub rare_faults: usize,
}

/// The whole simulation.
pub struct World {
    /// The rates of faults.
    pub fault_profile: FaultProfile,
    /// The random numbers of the seed.
    pub rng: Rng,
    /// The present time.
    pub now: Timestamp,
    /// Whether faults have ended, and everything happens without a delay.
    pub quiescing: bool,
    /// The pod sources.
    pub sources: SimulatedSources,
    /// The runtime.
    pub runtime: Runtime,
    /// The disk.
    pub disk: Disk,
    /// Calls in flight of all services.
    pub calls: Vec<Call>,
    /// The number of calls so far.
    pub call_count: u64,
    /// The number of process instances so far.
    pub incarnations: u32,
    /// The stores of running services.
    pub stores: Stores,
    /// pod-config, while it runs.
    pub config: Option<config::Config>,
    /// pleg, while it runs.
    pub pleg: Option<pleg::PlegInstance>,
    /// prober, while it runs.
    pub prober: Option<prober::ProberInstance>,
    /// status-reporter, while it runs.
    pub status: Option<status::Status>,
    /// volume-manager, while it runs.
    pub volumes: Option<volumes::Volumes>,
    /// sync-coordinator, while it runs.
    pub coordinator: Option<coordinator::CoordinatorInstance>,
    /// image-gc, while it runs.
    pub images: Option<images::ImageGcInstance>,
    /// eviction, while it runs.
    pub eviction: Option<eviction::Eviction>,
    /// device-manager, while it runs.
    pub devices: Option<devices::DeviceManagerInstance>,
    /// The device plugin.
    pub plugin: DevicePlugin,
    /// The signal with a shortage.
    pub short: Option<polylet_eviction::Signal>,
    /// The history for the invariants.
    pub memory: crate::invariants::Memory,
    /// The first violation.
    pub violation: Option<Violation>,
    /// A deliberate bug.
    pub mutation: Option<Mutation>,
    /// The number of pods so far.
    pub pod_count: u32,
    /// The log of events, if requested.
    pub log: Option<Vec<String>>,
    /// A digest of the log, the same for the same seed.
    pub digest: u64,
}

impl World {
    /// The initial state, with all services started.
    pub fn new(seed: u64, mutation: Option<Mutation>, log: bool) -> Self {
        let mut rng = Rng::new(seed);
        let mut world = World {
            fault_profile: FaultProfile::default(),
            now: Timestamp::from_second(1_800_000_000).unwrap_or(Timestamp::UNIX_EPOCH),
            quiescing: false,
            sources: SimulatedSources::default(),
            runtime: Runtime::default(),
            disk: Disk::default(),
            calls: Vec::new(),
            call_count: 0,
            incarnations: 0,
            stores: Stores::default(),
            config: None,
            pleg: None,
            prober: None,
            status: None,
            volumes: None,
            coordinator: None,
            images: None,
            eviction: None,
            devices: None,
            plugin: DevicePlugin::new(&mut rng),
            short: None,
            memory: crate::invariants::Memory::default(),
            violation: None,
            mutation,
            pod_count: 0,
            log: log.then(Vec::new),
            digest: 0,
            rng,
        };
        world.runtime.up = true;
        for service in ServiceId::ALL {
            world.start(service);
        }
        world
    }

    /// Appends to the log.
    pub fn record(&mut self, what: impl FnOnce() -> String) {
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

    /// Records a violation; only the first one is reported.
    pub fn report_violation(&mut self, invariant: Invariant, why: String) {
        self.record(|| format!("VIOLATION {invariant:?}: {why}"));
        if self.violation.is_none() {
            self.violation = Some(Violation { invariant, why });
        }
    }

    /// Advances the clock.
    pub fn advance_clock(&mut self, millis: i64) {
        let later = self.now.checked_add(SignedDuration::from_millis(millis));
        self.now = later.unwrap_or(self.now);
        for id in self.runtime.reap(self.now) {
            self.record(|| format!("runtime: {id} was killed at the end of its grace period"));
        }
    }

    /// The incarnation of a service, if it runs.
    pub fn incarnation(&self, service: ServiceId) -> Option<u32> {
        match service {
            ServiceId::Config => self.config.as_ref().map(|c| c.incarnation),
            ServiceId::Pleg => self.pleg.as_ref().map(|p| p.incarnation),
            ServiceId::Prober => self.prober.as_ref().map(|p| p.incarnation),
            ServiceId::Status => self.status.as_ref().map(|s| s.incarnation),
            ServiceId::Volumes => self.volumes.as_ref().map(|v| v.incarnation),
            ServiceId::Coordinator => self.coordinator.as_ref().map(|c| c.incarnation),
            ServiceId::Images => self.images.as_ref().map(|i| i.incarnation),
            ServiceId::Eviction => self.eviction.as_ref().map(|e| e.incarnation),
            ServiceId::Devices => self.devices.as_ref().map(|d| d.incarnation),
        }
    }

    /// Starts a service.
    pub fn start(&mut self, service: ServiceId) {
        self.incarnations += 1;
        let incarnation = self.incarnations;
        self.record(|| format!("{service:?} starts as incarnation {incarnation}"));
        match service {
            ServiceId::Config => config::start(self, incarnation),
            ServiceId::Pleg => pleg::start(self, incarnation),
            ServiceId::Prober => prober::start(self, incarnation),
            ServiceId::Status => status::start(self, incarnation),
            ServiceId::Volumes => volumes::start(self, incarnation),
            ServiceId::Coordinator => coordinator::start(self, incarnation),
            ServiceId::Images => images::start(self, incarnation),
            ServiceId::Eviction => eviction::start(self, incarnation),
            ServiceId::Devices => devices::start(self, incarnation),
        }
    }

    /// Kills a service. Its memory is lost; its calls in flight may still complete.
    pub fn kill(&mut self, service: ServiceId) {
        self.record(|| format!("{service:?} is killed"));
        match service {
            ServiceId::Config => {
                self.config = None;
                self.stores.pods.clear();
                // Only a running process sees that they were deleted.
                self.sources.rewritten.clear();
            }
            ServiceId::Pleg => {
                self.pleg = None;
                self.stores.states = None;
                self.stores.runtime = None;
            }
            ServiceId::Prober => {
                self.prober = None;
                self.stores.probe_results = None;
            }
            ServiceId::Status => {
                self.status = None;
                self.stores.status = None;
            }
            ServiceId::Volumes => {
                self.volumes = None;
                self.stores.volumes = None;
            }
            ServiceId::Coordinator => {
                self.coordinator = None;
                self.stores.sync = None;
            }
            ServiceId::Images => self.images = None,
            ServiceId::Eviction => {
                self.eviction = None;
                self.stores.pressure = None;
            }
            ServiceId::Devices => self.devices = None,
        }
    }

    /// Whether the pod has neither been removed nor terminated: it has to be left running.
    pub fn is_steady(&self, uid: &str) -> bool {
        let decided = |j: &PodCheckpoint| j.termination.is_some();
        self.sources.desired_pods.contains_key(uid)
            && !self.sources.withdrawn.contains(uid)
            && !self.sources.evicted.contains(uid)
            && !self.disk.checkpoints.get(uid).is_some_and(decided)
            && self.disk.failed.get(uid).is_none_or(|times| *times < 2)
    }
}
