//! Samples of node and pods, taken when somebody needs them.

mod local;
mod pod;
mod summary;

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use polylet_cri::Runtime;
use polylet_kit::Channel;
use polylet_model::cgroup::{CgroupName, Driver};
use polylet_wire::volume::v1::volume_service_client::VolumeServiceClient;
use polylet_wire::volume::v1::{GetVolumeStatsRequest, VolumeStats};
use serde_json::Value;

use crate::core::facts::{Held, Pods, Wanted};
use crate::core::rank::Candidate;
use crate::core::signal::{Level, Levels, Signal, Starved};
use crate::core::summary::render;
use crate::sample::cgroup::Mounts;
use crate::sample::{disk, node, tree};
use crate::settings::Settings;
pub(crate) use local::Counted;
use summary::{Counters, SummaryWork};

/// How long the runtime may take to say where images are.
const RUNTIME_DEADLINE: Duration = Duration::from_secs(10);
/// How long volume-manager and the drivers that it asks may take.
const VOLUMES_DEADLINE: Duration = Duration::from_secs(3);
/// How long a file system or a walk may take: a dead mount must not hold the node's judgement.
const FILES_DEADLINE: Duration = Duration::from_secs(30);

/// Takes samples; remembers the last counters, to tell rates.
pub(crate) struct Sampler {
    mounts: Mounts,
    runtime: Runtime,
    places: Places,
    image_fs: Option<PathBuf>,
    volumes: Channel,
    counters: Arc<Counters>,
    /// By whether it is of processors and memory alone.
    last: BTreeMap<bool, (Timestamp, Value)>,
}

#[derive(Clone)]
struct Places {
    root: PathBuf,
    pod_logs: PathBuf,
    pods_cgroup: Vec<String>,
}

impl Sampler {
    /// Samples; `volumes` leads to volume-manager.
    pub(crate) fn new(settings: &Settings, volumes: Channel) -> Self {
        Self {
            mounts: Mounts::detect(),
            runtime: Runtime::connect(&settings.runtime_endpoint, RUNTIME_DEADLINE),
            places: Places {
                root: settings.root_directory.clone(),
                pod_logs: settings.pod_logs.clone(),
                pods_cgroup: pods_cgroup(&settings.cgroup_root),
            },
            image_fs: None,
            volumes,
            counters: Arc::default(),
            last: BTreeMap::new(),
        }
    }

    /// The signals now, and whether images share the pods' file system. What cannot be read is
    /// missing.
    pub(crate) async fn levels(&mut self) -> (Levels, bool) {
        let image_fs = self.image_fs().await;
        let (root, mounts) = (self.places.root.clone(), self.mounts.clone());
        let pods_cgroup = self.places.pods_cgroup.clone();
        blocking(move || {
            let mut levels = Levels::new();
            if let Some(memory) = node::memory() {
                levels.insert(Signal::MemoryAvailable, memory.level());
                if let Some(level) = allocatable(&mounts, &pods_cgroup) {
                    levels.insert(Signal::AllocatableMemoryAvailable, level);
                }
            }
            if let Some(pids) = node::pids() {
                levels.insert(Signal::PidAvailable, pids);
            }
            let node = disk::of(&root);
            let image = image_fs.as_deref().and_then(disk::of);
            let one_filesystem = match (node, image) {
                (Some(node), Some(image)) => node.id == image.id,
                _ => true,
            };
            let pairs = [
                (node, Signal::NodeFsAvailable, Signal::NodeFsInodesFree),
                (image, Signal::ImageFsAvailable, Signal::ImageFsInodesFree),
            ];
            for (disk, bytes, inodes) in pairs {
                let Some(disk) = disk else {
                    continue;
                };
                levels.insert(bytes, disk.bytes);
                // Some file systems count no inodes.
                if disk.inodes.capacity > 0 {
                    levels.insert(inodes, disk.inodes);
                }
            }
            (levels, one_filesystem)
        })
        .await
        .unwrap_or_else(|| (Levels::new(), true))
    }

    /// Where the runtime keeps images; asked until it has answered once.
    async fn image_fs(&mut self) -> Option<PathBuf> {
        if self.image_fs.is_none() {
            let info = self.runtime.image_fs_info().await.ok()?;
            let first = info.image_filesystems.into_iter().next()?;
            self.image_fs = first.fs_id.map(|id| PathBuf::from(id.mountpoint));
        }
        self.image_fs.clone()
    }

    /// All running pods with what they use, for the ranking. Files are counted only when it is
    /// about files: a walk can take long, and memory does not wait. `None` when it took too long.
    pub(crate) async fn candidates(&self, pods: &Pods, signal: Signal) -> Option<Vec<Candidate>> {
        let files = matches!(signal.starved(), Starved::Disk | Starved::Inodes);
        let known: Vec<(String, Wanted, Held)> = pods
            .running()
            .filter_map(|(uid, held)| {
                let wanted = pods.wanted.get(uid)?;
                Some((uid.clone(), wanted.clone(), held.clone()))
            })
            .collect();
        let (mounts, places) = (self.mounts.clone(), self.places.clone());
        let layers = if files {
            layers(&self.runtime).await
        } else {
            BTreeMap::new()
        };
        blocking(move || {
            known
                .into_iter()
                .map(|(uid, wanted, held)| {
                    pod::candidate(
                        &mounts,
                        &places,
                        files.then_some(&layers),
                        uid,
                        &wanted,
                        &held,
                    )
                })
                .collect()
        })
        .await
    }

    /// Counts what these pods use of the disk. Ends by itself, however long that takes.
    pub(crate) fn count(
        &self,
        pods: Vec<(String, Wanted, Held)>,
    ) -> impl Future<Output = Vec<Counted>> + 'static {
        let (runtime, places) = (self.runtime.clone(), self.places.clone());
        async move {
            let layers = match pods.iter().any(|(_, w, _)| w.limits.counts_containers()) {
                true => layers(&runtime).await,
                false => BTreeMap::new(),
            };
            let all = move || {
                let pods = pods.into_iter();
                pods.map(|(uid, wanted, held)| local::count(&places, &layers, uid, &wanted, &held))
                    .collect()
            };
            // A thread that was broken off has counted nothing.
            tokio::task::spawn_blocking(all).await.unwrap_or_default()
        }
    }

    /// The volumes that volume-manager knows of; none while it is away.
    async fn known_volumes(&self) -> HashMap<PathBuf, VolumeStats> {
        let mut client = VolumeServiceClient::new(self.volumes.clone());
        let asked = client.get_volume_stats(GetVolumeStatsRequest {});
        let answer = match tokio::time::timeout(VOLUMES_DEADLINE, asked).await {
            Ok(Ok(answer)) => answer.into_inner(),
            Ok(Err(status)) => {
                tracing::debug!(message = status.message(), "volumes are not told of");
                return HashMap::new();
            }
            Err(_) => return HashMap::new(),
        };
        let volumes = answer.volumes.into_iter();
        volumes
            .map(|volume| (PathBuf::from(&volume.host_path), volume))
            .collect()
    }

    /// The stats summary.
    pub(crate) async fn summary(
        &mut self,
        node_name: &str,
        pods: &Pods,
        not_older_than: Option<Timestamp>,
        only_cpu_and_memory: bool,
    ) -> (Timestamp, Value) {
        if let (Some(oldest), Some((at, summary))) =
            (not_older_than, self.last.get(&only_cpu_and_memory))
            && *at >= oldest
        {
            return (*at, summary.clone());
        }
        let at = Timestamp::now();
        let image_fs = self.image_fs().await;
        let layers = if only_cpu_and_memory {
            BTreeMap::new()
        } else {
            layers(&self.runtime).await
        };
        let known = match only_cpu_and_memory {
            true => HashMap::new(),
            false => self.known_volumes().await,
        };
        let work = SummaryWork {
            at,
            node_name: node_name.to_owned(),
            mounts: self.mounts.clone(),
            places: self.places.clone(),
            image_fs,
            layers,
            counters: Arc::clone(&self.counters),
            pods: pods
                .running()
                .map(|(uid, held)| (uid.clone(), pods.wanted.get(uid).cloned(), held.clone()))
                .collect(),
            files: !only_cpu_and_memory,
            known,
        };
        let sample = blocking(move || work.sample()).await.unwrap_or_default();
        let summary = render(&sample, only_cpu_and_memory);
        self.last.insert(only_cpu_and_memory, (at, summary.clone()));
        (at, summary)
    }
}

/// Writable layers by container id, as the runtime counts them: bytes and inodes.
async fn layers(runtime: &Runtime) -> BTreeMap<String, tree::Use> {
    let stats = match runtime.list_container_stats(None).await {
        Ok(stats) => stats,
        Err(error) => {
            tracing::debug!(
                error = polylet_kit::report(&error),
                "no writable layer sizes"
            );
            return BTreeMap::new();
        }
    };
    let value = |v: Option<polylet_wire::runtime::v1::UInt64Value>| v.map_or(0, |v| v.value);
    stats
        .into_iter()
        .filter_map(|one| {
            let (id, layer) = (one.attributes?.id, one.writable_layer?);
            let bytes = value(layer.used_bytes);
            let inodes = value(layer.inodes_used);
            Some((id, tree::Use { bytes, inodes }))
        })
        .collect()
}

/// Runs file work aside, bounded in time.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    tokio::time::timeout(FILES_DEADLINE, tokio::task::spawn_blocking(work))
        .await
        .ok()?
        .ok()
}

/// Room within the pods' own cgroup, if it has a limit.
fn allocatable(mounts: &Mounts, pods_cgroup: &[String]) -> Option<Level> {
    let memory = mounts.read(mounts.first_existing(pods_cgroup)?).memory?;
    let capacity = memory.limit?;
    Some(Level {
        available: capacity.saturating_sub(memory.working_set),
        capacity,
    })
}

/// The cgroup of all pods: below the root the drivers differ, so the one that exists is told apart
/// when it is read.
fn pods_cgroup(root: &str) -> Vec<String> {
    let name = CgroupName::kubepods(root);
    [Driver::Cgroupfs, Driver::Systemd]
        .map(|driver| name.path(driver))
        .into()
}
