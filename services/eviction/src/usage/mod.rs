//! Measures the node and its pods on demand.

mod local;
mod pod;
mod summary;

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use polylet_cri::RuntimeClient;
use polylet_kit::Channel;
use polylet_model::cgroup::{CgroupDriver, CgroupName};
use polylet_wire::volume::v1::volume_service_client::VolumeServiceClient;
use polylet_wire::volume::v1::{GetVolumeStatsRequest, VolumeStats};
use serde_json::Value;

use crate::config::Config;
use crate::core::pods::{NodePods, PodUsageSpec, RuntimePod};
use crate::core::rank::Candidate;
use crate::core::signal::{EvictionResource, Observation, Observations, Signal};
use crate::core::summary::render;
use crate::sample::cgroup::CgroupMounts;
use crate::sample::disk_usage::DiskUsage;
use crate::sample::{filesystem, node};
pub(crate) use local::LocalStorageSample;
use summary::{CpuCounters, SummaryJob};

const RUNTIME_TIMEOUT: Duration = Duration::from_secs(10);
/// For volume-manager and the drivers that it calls.
const VOLUMES_TIMEOUT: Duration = Duration::from_secs(3);
/// For file systems and walks: a dead mount must not block eviction.
const FILES_TIMEOUT: Duration = Duration::from_secs(30);

/// Writable layers by container id.
type WritableLayers = BTreeMap<String, DiskUsage>;

/// Measures on demand, with the state that rates and reused summaries need.
pub(crate) struct Sampler {
    mounts: CgroupMounts,
    runtime: RuntimeClient,
    paths: NodePaths,
    image_fs: Option<PathBuf>,
    volumes: Channel,
    counters: Arc<CpuCounters>,
    /// The last summaries by `only_cpu_and_memory`.
    last: BTreeMap<bool, (Timestamp, Value)>,
}

#[derive(Clone)]
struct NodePaths {
    root: PathBuf,
    pod_logs: PathBuf,
    /// Possible cgroups of all pods, one for each cgroup driver.
    pods_cgroup: Vec<String>,
}

impl NodePaths {
    fn pod_dir(&self, uid: &str) -> PathBuf {
        self.root.join("pods").join(uid)
    }

    fn pod_volumes(&self, uid: &str) -> PathBuf {
        self.pod_dir(uid).join("volumes")
    }

    fn pod_logs(&self, uid: &str, pod: &RuntimePod) -> PathBuf {
        let name = format!("{}_{}_{uid}", pod.namespace, pod.name);
        self.pod_logs.join(name)
    }
}

impl Sampler {
    /// `volumes` is the channel to volume-manager.
    pub(crate) fn new(config: &Config, volumes: Channel) -> Self {
        let pods = CgroupName::kubepods(&config.cgroup_root);
        Self {
            mounts: CgroupMounts::detect(),
            runtime: RuntimeClient::connect(&config.runtime_endpoint, RUNTIME_TIMEOUT),
            paths: NodePaths {
                root: config.root_directory.clone(),
                pod_logs: config.pod_logs.clone(),
                pods_cgroup: [CgroupDriver::Cgroupfs, CgroupDriver::Systemd]
                    .map(|driver| pods.path(driver))
                    .into(),
            },
            image_fs: None,
            volumes,
            counters: Arc::default(),
            last: BTreeMap::new(),
        }
    }

    /// The present signals, and whether images and pods share a file system. What cannot be read is
    /// missing.
    pub(crate) async fn observe(&mut self) -> (Observations, bool) {
        let image_fs = self.image_fs().await;
        let (mounts, paths) = (self.mounts.clone(), self.paths.clone());
        let observe = move || observe(&mounts, &paths, image_fs);
        let observed = blocking(observe).await;
        observed.unwrap_or_else(|| (Observations::new(), true))
    }

    /// The directory of the runtime's images, requested until the runtime has answered once.
    async fn image_fs(&mut self) -> Option<PathBuf> {
        if self.image_fs.is_none() {
            let info = self.runtime.image_fs_info().await.ok()?;
            let first = info.image_filesystems.into_iter().next()?;
            self.image_fs = first.fs_id.map(|id| PathBuf::from(id.mountpoint));
        }
        self.image_fs.clone()
    }

    /// All running pods with their usage. Files are measured only for a signal about files: a walk can
    /// take long, and memory pressure cannot wait. `None` after a timeout.
    pub(crate) async fn candidates(
        &self,
        pods: &NodePods,
        signal: Signal,
    ) -> Option<Vec<Candidate>> {
        let with_files = matches!(
            signal.resource(),
            EvictionResource::Disk | EvictionResource::Inodes
        );
        let running: Vec<(String, PodUsageSpec, RuntimePod)> = pods
            .running_with_spec()
            .map(|(uid, spec, pod)| (uid.clone(), spec.clone(), pod.clone()))
            .collect();
        let (mounts, paths) = (self.mounts.clone(), self.paths.clone());
        let layers = match with_files {
            true => Some(writable_layers(&self.runtime).await),
            false => None,
        };
        blocking(move || {
            running
                .into_iter()
                .map(|(uid, spec, pod)| {
                    pod::candidate(&mounts, &paths, layers.as_ref(), uid, &spec, &pod)
                })
                .collect()
        })
        .await
    }

    /// Measures the local storage of pods with limits, without a timeout.
    pub(crate) fn measure_local_storage(
        &self,
        pods: Vec<(String, PodUsageSpec, RuntimePod)>,
    ) -> impl Future<Output = Vec<LocalStorageSample>> + 'static {
        let (runtime, paths) = (self.runtime.clone(), self.paths.clone());
        async move {
            let with_layers = pods
                .iter()
                .any(|(_, spec, _)| spec.storage_limits.limits_containers());
            let layers = match with_layers {
                true => writable_layers(&runtime).await,
                false => BTreeMap::new(),
            };
            let measure = move || {
                pods.into_iter()
                    .map(|(uid, spec, pod)| local::measure(&paths, &layers, uid, &spec, &pod))
                    .collect()
            };
            // A measurement that panicked has no result.
            let samples = tokio::task::spawn_blocking(measure).await;
            samples.unwrap_or_default()
        }
    }

    /// The volumes of volume-manager by host path; none while it is unavailable.
    async fn volume_stats(&self) -> HashMap<PathBuf, VolumeStats> {
        let mut client = VolumeServiceClient::new(self.volumes.clone());
        let call = client.get_volume_stats(GetVolumeStatsRequest {});
        let response = match tokio::time::timeout(VOLUMES_TIMEOUT, call).await {
            Ok(Ok(response)) => response.into_inner(),
            Ok(Err(status)) => {
                tracing::debug!(error = status.message(), "failed to get volume stats");
                return HashMap::new();
            }
            Err(_) => {
                tracing::debug!("timed out getting volume stats");
                return HashMap::new();
            }
        };
        let volumes = response.volumes.into_iter();
        volumes
            .map(|volume| (PathBuf::from(&volume.host_path), volume))
            .collect()
    }

    /// The stats summary and its time. The last one is reused when it was taken at `not_older_than` or
    /// later.
    pub(crate) async fn summary(
        &mut self,
        node_name: &str,
        pods: &NodePods,
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
        let (layers, volumes) = match only_cpu_and_memory {
            true => (BTreeMap::new(), HashMap::new()),
            false => (
                writable_layers(&self.runtime).await,
                self.volume_stats().await,
            ),
        };
        let job = SummaryJob {
            at,
            node_name: node_name.to_owned(),
            mounts: self.mounts.clone(),
            paths: self.paths.clone(),
            image_fs,
            layers,
            counters: Arc::clone(&self.counters),
            pods: pods
                .running()
                .map(|(uid, pod)| (uid.clone(), pods.specs.get(uid).cloned(), pod.clone()))
                .collect(),
            with_files: !only_cpu_and_memory,
            volumes,
        };
        let summary = blocking(move || job.run()).await.unwrap_or_default();
        let summary = render(&summary, only_cpu_and_memory);
        self.last.insert(only_cpu_and_memory, (at, summary.clone()));
        (at, summary)
    }
}

/// Writable layers as the runtime measures them; none when it cannot.
async fn writable_layers(runtime: &RuntimeClient) -> WritableLayers {
    let stats = match runtime.list_container_stats(None).await {
        Ok(stats) => stats,
        Err(error) => {
            let error = polylet_kit::report(&error);
            tracing::debug!(error, "failed to get the sizes of writable layers");
            return BTreeMap::new();
        }
    };
    let value = |v: Option<polylet_wire::runtime::v1::UInt64Value>| v.map_or(0, |v| v.value);
    stats
        .into_iter()
        .filter_map(|stats| {
            let (id, layer) = (stats.attributes?.id, stats.writable_layer?);
            let bytes = value(layer.used_bytes);
            let inodes = value(layer.inodes_used);
            Some((id, DiskUsage { bytes, inodes }))
        })
        .collect()
}

/// Runs file work on a blocking thread, with a timeout.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    tokio::time::timeout(FILES_TIMEOUT, tokio::task::spawn_blocking(work))
        .await
        .ok()?
        .ok()
}

/// The signals, and whether images and pods share a file system.
fn observe(
    mounts: &CgroupMounts,
    paths: &NodePaths,
    image_fs: Option<PathBuf>,
) -> (Observations, bool) {
    let mut observations = Observations::new();
    if let Some(memory) = node::memory() {
        let available = node::available_memory(&memory);
        observations.insert(Signal::MemoryAvailable, available);
        if let Some(allocatable) = allocatable_memory(mounts, &paths.pods_cgroup) {
            observations.insert(Signal::AllocatableMemoryAvailable, allocatable);
        }
    }
    if let Some(pids) = node::pids() {
        observations.insert(Signal::PidAvailable, pids);
    }
    let node_fs = filesystem::stat(&paths.root);
    let image_fs = image_fs.as_deref().and_then(filesystem::stat);
    let one_filesystem = match (node_fs, image_fs) {
        (Some(node_fs), Some(image_fs)) => node_fs.id == image_fs.id,
        _ => true,
    };
    for (fs, bytes, inodes) in [
        (node_fs, Signal::NodeFsAvailable, Signal::NodeFsInodesFree),
        (
            image_fs,
            Signal::ImageFsAvailable,
            Signal::ImageFsInodesFree,
        ),
    ] {
        let Some(fs) = fs else {
            continue;
        };
        observations.insert(bytes, fs.bytes);
        // Some file systems have no limit on inodes.
        if fs.inodes.capacity > 0 {
            observations.insert(inodes, fs.inodes);
        }
    }
    (observations, one_filesystem)
}

/// The available memory of the pods' cgroup, if it has a limit.
fn allocatable_memory(mounts: &CgroupMounts, pods_cgroup: &[String]) -> Option<Observation> {
    let memory = mounts.read(mounts.first_existing(pods_cgroup)?).memory?;
    let capacity = memory.limit?;
    Some(Observation {
        available: capacity.saturating_sub(memory.working_set),
        capacity,
    })
}
