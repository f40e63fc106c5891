//! The cgroups of a pod, the directories that count as its usage, and its usage as a candidate for
//! eviction.

use std::path::PathBuf;

use polylet_walk::DiskUsage;

use super::{NodePaths, WritableLayers};
use crate::core::pods::{PodUsageSpec, RunningContainer, RuntimePod, container_cgroups};
use crate::core::rank::{Candidate, ContainerUsage, FileUsage, PodUsage};
use crate::core::stats::CgroupStats;
use crate::sample::cgroup::CgroupMounts;
use crate::sample::cgroup_stats::Detail;
use crate::sample::disk_usage::{PathUsage, PodDiskUsage, PodPaths};

pub(super) fn pod_cgroup(mounts: &CgroupMounts, spec: Option<&PodUsageSpec>) -> Option<String> {
    let candidates = &spec?.cgroups;
    mounts.first_existing(candidates).map(str::to_owned)
}

/// The cgroup of a container or sandbox.
pub(super) fn container_cgroup(
    mounts: &CgroupMounts,
    pod_cgroup: Option<&str>,
    id: &str,
) -> Option<String> {
    let candidates = container_cgroups(pod_cgroup?, id);
    mounts.first_existing(&candidates).map(str::to_owned)
}

pub(super) fn container_stats(
    mounts: &CgroupMounts,
    pod_cgroup: Option<&str>,
    id: &str,
    detail: Detail,
) -> CgroupStats {
    container_cgroup(mounts, pod_cgroup, id)
        .map(|cgroup| mounts.stats(&cgroup, detail))
        .unwrap_or_default()
}

/// The paths of a pod that count for eviction, as upstream: the logs of its running containers, in
/// their order, then its volumes on the node's disk.
pub(super) fn candidate_paths(
    paths: &NodePaths,
    uid: &str,
    spec: &PodUsageSpec,
    pod: &RuntimePod,
) -> PodPaths {
    let logs = pod
        .running
        .iter()
        .map(|container| paths.container_logs(uid, pod, &container.name));
    let volumes = spec
        .storage_limits
        .local_volumes
        .iter()
        .map(|volume| paths.volume(uid, volume.plugin, &volume.name));
    PodPaths {
        uid: uid.to_owned(),
        paths: logs.chain(volumes).collect::<Vec<(PathBuf, PathBuf)>>(),
    }
}

/// The measured files of a candidate: the paths of [`candidate_paths`], and the writable layers.
pub(super) struct CandidateFiles<'a> {
    pub(super) disk: Option<&'a PodDiskUsage>,
    pub(super) layers: &'a WritableLayers,
}

impl CandidateFiles<'_> {
    /// The usage of the nth path.
    fn path(&self, index: usize) -> Option<DiskUsage> {
        let path: PathUsage = (*self.disk?.paths.get(index)?)?;
        Some(path.usage)
    }

    fn layer(&self, container: &RunningContainer) -> Option<DiskUsage> {
        self.layers.get(&container.id).copied()
    }

    /// The sum of everything; `None` when nothing could be measured.
    fn total(&self, pod: &RuntimePod) -> Option<FileUsage> {
        let paths = &self.disk?.paths;
        if !paths.is_empty() && paths.iter().all(Option::is_none) {
            return None;
        }
        let local = paths.iter().flatten();
        let local = local.fold(DiskUsage::default(), |sum, path| sum.plus(path.usage));
        let layers = pod.running.iter().filter_map(|one| self.layer(one));
        let layer = layers.fold(DiskUsage::default(), DiskUsage::plus);
        Some(FileUsage {
            local_bytes: local.bytes,
            local_inodes: local.inodes,
            layer_bytes: layer.bytes,
            layer_inodes: layer.inodes,
        })
    }
}

/// Measures a candidate. Files are known only for a signal about files.
pub(super) fn candidate(
    mounts: &CgroupMounts,
    files: Option<&CandidateFiles<'_>>,
    uid: String,
    spec: &PodUsageSpec,
    pod: &RuntimePod,
) -> Candidate {
    let cgroup = pod_cgroup(mounts, Some(spec));
    let total = cgroup.as_deref().map(|cgroup| mounts.usage(cgroup));
    let container = |(index, container): (usize, &RunningContainer)| {
        // Ephemeral containers have no requests and are not blamed.
        let requests = spec.container(&container.name)?.clone();
        let usage = container_cgroup(mounts, cgroup.as_deref(), &container.id)
            .map(|cgroup| mounts.usage(&cgroup))
            .unwrap_or_default();
        let storage = files.and_then(|files| {
            let (layer, logs) = (files.layer(container)?, files.path(index)?);
            Some(layer.plus(logs).bytes)
        });
        Some(ContainerUsage {
            name: container.name.clone(),
            memory: usage.memory.map(|memory| memory.working_set),
            memory_request: requests.memory,
            storage,
            storage_request: requests.storage,
        })
    };
    Candidate {
        uid,
        namespace: spec.namespace.clone(),
        name: spec.name.clone(),
        priority: spec.priority,
        critical: spec.critical,
        memory_request: spec.memory_request,
        storage_request: spec.storage_request,
        pod_level_memory: spec.pod_level_memory.clone(),
        termination_grace_seconds: spec.termination_grace_seconds,
        usage: total.and_then(|total| {
            Some(PodUsage {
                memory: total.memory?.working_set,
                files: files.and_then(|files| files.total(pod)),
                processes: total.processes.unwrap_or(0),
            })
        }),
        containers: pod
            .running
            .iter()
            .enumerate()
            .filter_map(container)
            .collect(),
    }
}
