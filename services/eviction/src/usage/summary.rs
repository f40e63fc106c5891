//! Measures everything in the stats summary.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use jiff::Timestamp;
use polylet_wire::volume::v1::{FsUsage, VolumeStats};

use super::{NodePaths, WritableLayers, pod};
use crate::core::pods::{PodUsageSpec, RunningContainer, RuntimePod};
use crate::core::signal::Observation;
use crate::core::summary::{
    ContainerStats, CpuStats, FsStats, MemoryStats, PodStats, PodVolumeStats, StatsSummary,
};
use crate::sample::cgroup::{CgroupMounts, CgroupUsage};
use crate::sample::disk_usage::{self, DiskUsage};
use crate::sample::{filesystem, node};

/// The CPU counters of the last summary, to calculate rates.
#[derive(Default)]
pub(super) struct CpuCounters(Mutex<HashMap<String, (Timestamp, u64)>>);

impl CpuCounters {
    fn update(&self, counter: &str, at: Timestamp, nanoseconds: u64) -> CpuStats {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let previous = last.insert(counter.to_owned(), (at, nanoseconds));
        let nanocores = previous.and_then(|(then, count)| {
            let elapsed = u64::try_from(at.duration_since(then).as_millis()).ok()?;
            let used = nanoseconds.saturating_sub(count);
            (elapsed > 0).then(|| used.saturating_mul(1000) / elapsed)
        });
        CpuStats {
            nanoseconds,
            nanocores,
        }
    }

    /// Drops counters that were not updated at `at`: their cgroups are gone.
    fn retain_updated(&self, at: Timestamp) {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        last.retain(|_, (then, _)| *then >= at);
    }
}

/// A summary to be measured on a blocking thread.
pub(super) struct SummaryJob {
    pub(super) at: Timestamp,
    pub(super) node_name: String,
    pub(super) mounts: CgroupMounts,
    pub(super) paths: NodePaths,
    pub(super) image_fs: Option<PathBuf>,
    pub(super) layers: WritableLayers,
    pub(super) counters: Arc<CpuCounters>,
    pub(super) pods: Vec<(String, Option<PodUsageSpec>, RuntimePod)>,
    /// Whether to measure file systems and files.
    pub(super) with_files: bool,
    /// The volumes of volume-manager by host path.
    pub(super) volumes: HashMap<PathBuf, VolumeStats>,
}

impl SummaryJob {
    pub(super) fn run(self) -> StatsSummary {
        let memory = node::memory();
        let pods_cgroup = self.mounts.first_existing(&self.paths.pods_cgroup);
        let pods_usage = pods_cgroup
            .map(|cgroup| self.mounts.read(cgroup))
            .unwrap_or_default();
        let summary = StatsSummary {
            at: self.at,
            node: ContainerStats {
                name: self.node_name.clone(),
                cpu: node::cpu_nanoseconds().map(|ns| self.counters.update("/", self.at, ns)),
                memory: memory.map(|memory| MemoryStats {
                    available: Some(node::available_memory(&memory).available),
                    usage: memory.usage(),
                    working_set: memory.working_set(),
                    rss: memory.anonymous,
                    ..MemoryStats::default()
                }),
                ..ContainerStats::default()
            },
            system: vec![self.cgroup_stats("pods", "/pods", pods_usage)],
            fs: self.fs_stats(&self.paths.root),
            image_fs: self
                .image_fs
                .as_deref()
                .and_then(|path| self.fs_stats(path)),
            pids: node::pids(),
            swap: memory.map(|memory| Observation {
                available: memory.swap_free,
                capacity: memory.swap_total,
            }),
            pods: self
                .pods
                .iter()
                .map(|(uid, spec, pod)| self.pod_stats(uid, spec.as_ref(), pod))
                .collect(),
        };
        self.counters.retain_updated(self.at);
        summary
    }

    fn pod_stats(&self, uid: &str, spec: Option<&PodUsageSpec>, pod: &RuntimePod) -> PodStats {
        let cgroup = pod::pod_cgroup(&self.mounts, spec);
        let usage = cgroup
            .as_deref()
            .map(|cgroup| self.mounts.read(cgroup))
            .unwrap_or_default();
        let mut total = self.cgroup_stats(&pod.name, uid, usage);
        total.started_at = pod.created_at;
        let logs_dir = self.paths.pod_logs(uid, pod);
        let containers: Vec<_> = pod
            .running
            .iter()
            .map(|container| self.container_stats(cgroup.as_deref(), &logs_dir, container))
            .collect();
        let volumes = match self.with_files {
            true => self.volume_stats(uid),
            false => Vec::new(),
        };
        let ephemeral = self.with_files.then(|| {
            let layers = containers.iter().filter_map(|container| container.rootfs);
            let local = volumes.iter().filter(|volume| volume.local);
            let all = layers.chain(local.map(|volume| volume.files));
            let logs = usage_stats(disk_usage::measure(&logs_dir));
            all.fold(logs, |sum, files| FsStats {
                used_bytes: sum.used_bytes + files.used_bytes,
                used_inodes: sum.used_inodes + files.used_inodes,
                ..sum
            })
        });
        PodStats {
            uid: uid.to_owned(),
            namespace: pod.namespace.clone(),
            total,
            containers,
            volumes,
            ephemeral,
        }
    }

    fn container_stats(
        &self,
        pod_cgroup: Option<&str>,
        logs_dir: &Path,
        container: &RunningContainer,
    ) -> ContainerStats {
        let usage = pod::container_usage(&self.mounts, pod_cgroup, &container.id);
        let mut stats = self.cgroup_stats(&container.name, &container.id, usage);
        stats.started_at = container.started_at;
        stats.rootfs = self.layers.get(&container.id).copied().map(usage_stats);
        if self.with_files {
            let logs = disk_usage::measure(&logs_dir.join(&container.name));
            stats.logs = Some(usage_stats(logs));
        }
        stats
    }

    /// The volume directories of a pod, by volume name.
    fn volume_stats(&self, uid: &str) -> Vec<PodVolumeStats> {
        let children = |dir: &Path| -> Vec<PathBuf> {
            let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
            entries.map(|entry| entry.path()).collect()
        };
        let mut volumes: Vec<PodVolumeStats> = children(&self.paths.pod_volumes(uid))
            .iter()
            .flat_map(|plugin| children(plugin))
            .filter_map(|volume| self.volume(&volume))
            .collect();
        volumes.sort_by(|a, b| a.name.cmp(&b.name));
        volumes
    }

    /// The stats of a volume directory. The files on persistent volumes are not walked: their driver
    /// or file system reports the usage. A CSI volume without stats of its driver is omitted.
    fn volume(&self, dir: &Path) -> Option<PodVolumeStats> {
        let name = dir.file_name()?.to_string_lossy().into_owned();
        let is_csi = dir.parent()?.ends_with("kubernetes.io~csi");
        let host_path = match is_csi {
            true => dir.join("mount"),
            false => dir.to_owned(),
        };
        let stats = self.volumes.get(&host_path);
        let claim = stats.map(|stats| stats.claim.clone());
        let claim = claim.filter(|claim| !claim.is_empty());
        let name = stats.map_or(name, |stats| stats.name.clone());
        let files = if is_csi {
            driver_stats(stats?)?
        } else if claim.is_some() {
            self.fs_stats(dir)?
        } else {
            let fs = filesystem::stat(dir);
            FsStats {
                bytes: fs.map(|fs| fs.bytes),
                inodes: fs.map(|fs| fs.inodes),
                ..usage_stats(disk_usage::measure(dir))
            }
        };
        Some(PodVolumeStats {
            local: !is_csi && claim.is_none(),
            name,
            claim,
            files,
        })
    }

    fn cgroup_stats(&self, name: &str, counter: &str, usage: CgroupUsage) -> ContainerStats {
        ContainerStats {
            name: name.to_owned(),
            cpu: usage
                .cpu_nanoseconds
                .map(|ns| self.counters.update(counter, self.at, ns)),
            memory: usage.memory.map(|memory| MemoryStats {
                available: memory
                    .limit
                    .map(|limit| limit.saturating_sub(memory.working_set)),
                usage: memory.usage,
                working_set: memory.working_set,
                rss: memory.rss,
                page_faults: memory.page_faults,
                major_page_faults: memory.major_page_faults,
            }),
            processes: usage.processes,
            ..ContainerStats::default()
        }
    }

    fn fs_stats(&self, path: &Path) -> Option<FsStats> {
        if !self.with_files {
            return None;
        }
        let fs = filesystem::stat(path)?;
        Some(FsStats {
            bytes: Some(fs.bytes),
            inodes: Some(fs.inodes),
            used_bytes: fs.bytes.capacity.saturating_sub(fs.bytes.available),
            used_inodes: fs.inodes.capacity.saturating_sub(fs.inodes.available),
        })
    }
}

fn usage_stats(usage: DiskUsage) -> FsStats {
    FsStats {
        used_bytes: usage.bytes,
        used_inodes: usage.inodes,
        ..FsStats::default()
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
