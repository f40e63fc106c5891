//! The cgroups of a pod, and its usage as a candidate for eviction.

use super::{NodePaths, WritableLayers};
use crate::core::pods::{PodUsageSpec, RunningContainer, RuntimePod, container_cgroups};
use crate::core::rank::{Candidate, ContainerUsage, PodUsage};
use crate::sample::cgroup::{CgroupMounts, CgroupUsage};
use crate::sample::disk_usage::{self, DiskUsage};

pub(super) fn pod_cgroup(mounts: &CgroupMounts, spec: Option<&PodUsageSpec>) -> Option<String> {
    let candidates = &spec?.cgroups;
    mounts.first_existing(candidates).map(str::to_owned)
}

pub(super) fn container_usage(
    mounts: &CgroupMounts,
    pod_cgroup: Option<&str>,
    id: &str,
) -> CgroupUsage {
    pod_cgroup
        .and_then(|pod| {
            let candidates = container_cgroups(pod, id);
            mounts
                .first_existing(&candidates)
                .map(|cgroup| mounts.read(cgroup))
        })
        .unwrap_or_default()
}

/// Measures a candidate. Files are measured only with `layers`.
pub(super) fn candidate(
    mounts: &CgroupMounts,
    paths: &NodePaths,
    layers: Option<&WritableLayers>,
    uid: String,
    spec: &PodUsageSpec,
    pod: &RuntimePod,
) -> Candidate {
    let cgroup = pod_cgroup(mounts, Some(spec));
    let total = cgroup.as_deref().map(|cgroup| mounts.read(cgroup));
    let local = match layers {
        Some(_) => disk_usage::measure(&paths.pod_volumes(&uid))
            .add(disk_usage::measure(&paths.pod_logs(&uid, pod))),
        None => DiskUsage::default(),
    };
    let layer = |container: &RunningContainer| {
        let layer = layers.and_then(|layers| layers.get(&container.id));
        layer.copied().unwrap_or_default()
    };
    let layer_sum = pod
        .running
        .iter()
        .map(&layer)
        .fold(DiskUsage::default(), DiskUsage::add);
    let containers = pod
        .running
        .iter()
        .map(|container| {
            let requests = spec.containers.get(&container.name).copied();
            let requests = requests.unwrap_or_default();
            let usage = container_usage(mounts, cgroup.as_deref(), &container.id);
            ContainerUsage {
                name: container.name.clone(),
                memory: usage.memory.map_or(0, |memory| memory.working_set),
                memory_request: requests.memory,
                storage: layer(container).bytes,
                storage_request: requests.storage,
            }
        })
        .collect();
    Candidate {
        uid,
        namespace: spec.namespace.clone(),
        name: spec.name.clone(),
        priority: spec.priority,
        critical: spec.critical,
        memory_request: spec.memory_request,
        storage_request: spec.storage_request,
        termination_grace_seconds: spec.termination_grace_seconds,
        usage: total.and_then(|total| {
            Some(PodUsage {
                memory: total.memory?.working_set,
                local_bytes: local.bytes,
                local_inodes: local.inodes,
                layer_bytes: layer_sum.bytes,
                layer_inodes: layer_sum.inodes,
                processes: total.processes.unwrap_or(0),
            })
        }),
        containers,
    }
}
