//! The stats summary, out of measured files, file systems and cgroups.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::Arc;

use jiff::Timestamp;
use polylet_walk::DiskUsage;
use polylet_wire::volume::v1::{FsUsage, VolumeStats};

use super::cpu_rates::CpuRates;
use super::disk::DiskUsages;
use super::volume_dirs::MeasuredVolume;
use super::{NodeFilesystems, NodePaths, WritableLayers, pod};
use crate::core::pods::{PodUsageSpec, RunningContainer, RuntimePod};
use crate::core::signal::Observation;
use crate::core::stats::{CgroupStats, InterfaceStats};
use crate::core::summary::{
    ContainerStats, FsStats, MemoryStats, PodStats, PodVolumeStats, SampleTimes, StatsSummary,
};
use crate::sample::cgroup::CgroupMounts;
use crate::sample::cgroup_stats::Detail;
use crate::sample::disk_usage::{PathUsage, PodPaths};
use crate::sample::filesystem::Filesystem;
use crate::sample::{network, node};

/// The paths that are measured for the summary: the logs of the pod and of its running containers, in
/// their order, then the volumes that no driver measures.
pub(super) fn summary_paths(
    paths: &NodePaths,
    uid: &str,
    pod: &RuntimePod,
    volumes: &[MeasuredVolume],
) -> PodPaths {
    let logs = pod
        .running
        .iter()
        .map(|container| paths.container_logs(uid, pod, &container.name));
    let base = paths.pods();
    let volumes = volumes.iter().filter(|volume| !volume.is_csi);
    let volumes = volumes.filter_map(|volume| {
        let below = volume.dir.strip_prefix(&base).ok()?;
        Some((base.clone(), below.to_owned()))
    });
    PodPaths {
        uid: uid.to_owned(),
        paths: std::iter::once(paths.pod_logs(uid, pod))
            .chain(logs)
            .chain(volumes)
            .collect(),
    }
}

/// Everything in a summary that was measured before the cgroups are read.
pub(super) struct SummaryJob {
    /// When the measurement was begun.
    pub(super) at: Timestamp,
    pub(super) node_name: String,
    pub(super) mounts: CgroupMounts,
    pub(super) paths: NodePaths,
    pub(super) filesystems: NodeFilesystems,
    pub(super) layers: WritableLayers,
    pub(super) rates: CpuRates,
    pub(super) pods: Vec<SummaryPod>,
    /// Bytes and inodes that the runtime has on the file system of images.
    pub(super) images: Option<(u64, u64)>,
    /// How much of the cgroups is read.
    pub(super) detail: Detail,
    /// Whether files and file systems were measured.
    pub(super) with_files: bool,
    pub(super) disk: DiskUsages,
    /// The space of mounted volumes, by directory.
    pub(super) mounted: BTreeMap<PathBuf, Filesystem>,
    /// The volumes of volume-manager by host path.
    pub(super) volumes: HashMap<PathBuf, VolumeStats>,
}

/// A pod in a summary.
pub(super) struct SummaryPod {
    pub(super) uid: String,
    pub(super) spec: Option<Arc<PodUsageSpec>>,
    pub(super) pod: RuntimePod,
    /// `None` when they could not be listed.
    pub(super) volumes: Option<Vec<MeasuredVolume>>,
}

impl SummaryPod {
    /// The volumes that are known.
    pub(super) fn volumes(&self) -> &[MeasuredVolume] {
        self.volumes.as_deref().unwrap_or_default()
    }
}

impl SummaryJob {
    /// Reads the cgroups, `now`: long after the measurement was begun, if files were walked before.
    /// All reports share the rates, so that these are about the times at which the counters were read.
    pub(super) fn run(self, now: Timestamp) -> StatsSummary {
        let summary = StatsSummary {
            times: SampleTimes {
                files: self.at,
                counters: now,
            },
            node: self.node_stats(now),
            system: self.system_stats(now),
            fs: self.filesystems.node.map(space),
            image_fs: self.filesystems.image.map(|fs| self.image_fs(fs)),
            pids: node::pids(),
            pods: self
                .pods
                .iter()
                .map(|pod| self.pod_stats(pod, now))
                .collect(),
        };
        self.rates.retain_updated(now);
        summary
    }

    fn node_stats(&self, now: Timestamp) -> ContainerStats {
        let memory = node::memory();
        let (page_faults, major_page_faults) = node::page_faults();
        ContainerStats {
            name: self.node_name.clone(),
            started_at: node::booted_at(),
            cpu: node::cpu_nanoseconds().map(|ns| self.rates.update("/", now, ns)),
            memory: memory.map(|memory| MemoryStats {
                available: Some(node::available_memory(&memory).available),
                usage: memory.usage(),
                working_set: memory.working_set(),
                rss: memory.anonymous,
                page_faults,
                major_page_faults,
                swap: memory.swap_total.saturating_sub(memory.swap_free),
                swap_available: Some(memory.swap_free),
            }),
            pressure: self.mounts.stats("/", self.detail).pressure,
            // The first process is on the node's network.
            network: self.with_files.then(|| network::interfaces(1)).flatten(),
            ..ContainerStats::default()
        }
    }

    /// The cgroups of the agent, of all pods and of everything else, as far as they are known.
    fn system_stats(&self, now: Timestamp) -> Vec<ContainerStats> {
        let system = self.paths.system_cgroups.iter();
        let stats = system.filter_map(|(name, candidates)| {
            let cgroup = self.mounts.first_existing(candidates)?;
            let stats = self.mounts.stats(cgroup, self.detail);
            let counter = format!("/{name}");
            let mut container = self.cgroup_stats(name, &counter, stats, now);
            container.processes = None;
            Some(container)
        });
        stats.collect()
    }

    /// The file system of images with what the runtime has on it.
    fn image_fs(&self, fs: Filesystem) -> FsStats {
        let (used_bytes, used_inodes) = self.images.unwrap_or_default();
        match self.images {
            Some(_) => FsStats {
                used_bytes,
                used_inodes,
                ..space(fs)
            },
            None => space(fs),
        }
    }

    fn pod_stats(&self, summary: &SummaryPod, now: Timestamp) -> PodStats {
        let SummaryPod { uid, spec, pod, .. } = summary;
        let cgroup = pod::pod_cgroup(&self.mounts, spec.as_deref());
        let usage = cgroup
            .as_deref()
            .map(|cgroup| self.mounts.stats(cgroup, self.detail))
            .unwrap_or_default();
        let mut total = self.cgroup_stats(&pod.name, uid, usage, now);
        total.started_at = pod.created_at;
        total.network = self.pod_network(cgroup.as_deref(), pod);
        let containers: Vec<_> = pod
            .running
            .iter()
            .enumerate()
            .map(|(index, container)| {
                let logs = self.path(uid, 1 + index);
                self.container_stats(cgroup.as_deref(), container, logs, now)
            })
            .collect();
        // As upstream: the processes of its containers.
        let processes = containers
            .iter()
            .filter_map(|container| container.processes);
        total.processes = Some(processes.sum());
        let volumes = self.volume_stats(summary);
        // As upstream, a pod that could not be measured, or whose volumes are unknown, has no sum.
        let node_fs = self.filesystems.node;
        let logs = summary.volumes.as_ref().and_then(|_| self.path(uid, 0));
        let ephemeral = logs.map(|logs| {
            let layers = containers.iter().filter_map(|container| container.rootfs);
            let local = volumes.iter().filter(|volume| volume.local);
            let all = layers.chain(local.map(|volume| volume.files));
            all.fold(used_on(node_fs, logs.usage), |sum, files| FsStats {
                used_bytes: sum.used_bytes.saturating_add(files.used_bytes),
                used_inodes: sum.used_inodes.saturating_add(files.used_inodes),
                ..sum
            })
        });
        PodStats {
            uid: uid.clone(),
            namespace: pod.namespace.clone(),
            total,
            containers,
            volumes,
            ephemeral,
        }
    }

    /// The nth of [`summary_paths`].
    fn path(&self, uid: &str, index: usize) -> Option<PathUsage> {
        *self.disk.get(uid)?.paths.get(index)?
    }

    fn container_stats(
        &self,
        pod_cgroup: Option<&str>,
        container: &RunningContainer,
        logs: Option<PathUsage>,
        now: Timestamp,
    ) -> ContainerStats {
        let usage = pod::container_stats(&self.mounts, pod_cgroup, &container.id, self.detail);
        let mut stats = self.cgroup_stats(&container.name, &container.id, usage, now);
        stats.started_at = container.started_at;
        stats.rootfs = self
            .layers
            .get(&container.id)
            .map(|layer| used_on(self.filesystems.image, *layer));
        stats.logs = logs.map(|logs| used_on(self.filesystems.node, logs.usage));
        stats
    }

    /// The interfaces of a pod: those that the first process of its sandbox sees.
    fn pod_network(&self, cgroup: Option<&str>, pod: &RuntimePod) -> Option<Vec<InterfaceStats>> {
        let sandbox = pod.sandbox.as_ref().filter(|_| self.with_files)?;
        let stats = pod::container_stats(&self.mounts, cgroup, sandbox, Detail::Summary);
        network::interfaces(stats.tasks.first?)
    }

    fn volume_stats(&self, summary: &SummaryPod) -> Vec<PodVolumeStats> {
        let first = 1 + summary.pod.running.len();
        let mut index = first;
        let volume = |volume: &MeasuredVolume| {
            let path = match volume.is_csi {
                true => None,
                false => {
                    index += 1;
                    self.path(&summary.uid, index - 1)
                }
            };
            self.volume(summary, volume, path)
        };
        summary.volumes().iter().filter_map(volume).collect()
    }

    /// The stats of a volume. The files on persistent volumes are not walked: their driver or file
    /// system reports the usage. A volume that could not be measured is omitted.
    fn volume(
        &self,
        summary: &SummaryPod,
        volume: &MeasuredVolume,
        path: Option<PathUsage>,
    ) -> Option<PodVolumeStats> {
        let host_path = match volume.is_csi {
            true => volume.dir.join("mount"),
            false => volume.dir.clone(),
        };
        let stats = self.volumes.get(&host_path);
        let claim = stats.map(|stats| stats.claim.clone());
        let claim = claim.filter(|claim| !claim.is_empty());
        let name = stats.map_or(&volume.name, |stats| &stats.name).clone();
        let files = if volume.is_csi {
            driver_stats(stats?)?
        } else {
            let path = path?;
            match self.mounted.get(&volume.dir) {
                Some(mounted) => space(*mounted),
                None if path.is_mount => return None,
                None => {
                    let fs = path.memory.or(self.filesystems.node);
                    used_on(fs, path.usage)
                }
            }
        };
        let local = summary
            .spec
            .as_ref()
            .is_some_and(|spec| spec.storage_limits.is_local_volume(&name));
        Some(PodVolumeStats {
            local: local && claim.is_none(),
            name,
            claim,
            files,
        })
    }

    fn cgroup_stats(
        &self,
        name: &str,
        counter: &str,
        stats: CgroupStats,
        now: Timestamp,
    ) -> ContainerStats {
        ContainerStats {
            name: name.to_owned(),
            started_at: stats.created_at,
            cpu: stats
                .cpu
                .map(|cpu| self.rates.update(counter, now, cpu.total)),
            memory: stats.memory.map(|memory| MemoryStats {
                available: memory
                    .limit
                    .map(|limit| limit.saturating_sub(memory.working_set)),
                usage: memory.usage,
                working_set: memory.working_set,
                rss: memory.rss,
                page_faults: memory.page_faults,
                major_page_faults: memory.major_page_faults,
                swap: memory.swap,
                swap_available: memory
                    .swap_limit
                    .map(|limit| limit.saturating_sub(memory.swap)),
            }),
            pressure: stats.pressure,
            processes: stats.tasks.processes,
            ..ContainerStats::default()
        }
    }
}

/// A file system as a whole.
fn space(fs: Filesystem) -> FsStats {
    FsStats {
        bytes: Some(fs.bytes),
        inodes: Some(fs.inodes),
        used_bytes: fs.bytes.capacity.saturating_sub(fs.bytes.available),
        used_inodes: fs.inodes.capacity.saturating_sub(fs.inodes.available),
    }
}

/// Files on a file system.
fn used_on(fs: Option<Filesystem>, usage: DiskUsage) -> FsStats {
    FsStats {
        bytes: fs.map(|fs| fs.bytes),
        inodes: fs.map(|fs| fs.inodes),
        used_bytes: usage.bytes,
        used_inodes: usage.inodes,
    }
}

/// The usage that a CSI driver reports, if it reports bytes.
fn driver_stats(stats: &VolumeStats) -> Option<FsStats> {
    let number = |number: i64| u64::try_from(number).unwrap_or(0);
    let observation = |usage: &FsUsage| Observation {
        available: number(usage.available),
        capacity: number(usage.capacity),
    };
    let (bytes, inodes) = (stats.bytes.as_ref()?, stats.inodes.as_ref());
    Some(FsStats {
        bytes: Some(observation(bytes)),
        inodes: inodes.map(observation),
        used_bytes: number(bytes.used),
        used_inodes: inodes.map_or(0, |inodes| number(inodes.used)),
    })
}

#[cfg(test)]
#[path = "summary_tests.rs"]
mod tests;
