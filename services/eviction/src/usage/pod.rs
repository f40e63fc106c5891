//! One pod: its cgroups, its files, and what it is as a candidate for eviction.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::Places;
use crate::core::facts::{Held, Running, Wanted, container_cgroups};
use crate::core::rank::{Candidate, ContainerUse, Usage};
use crate::sample::cgroup::{CgroupUse, Mounts};
use crate::sample::tree;

pub(super) fn pod_cgroup(mounts: &Mounts, wanted: Option<&Wanted>) -> Option<String> {
    let candidates = &wanted?.cgroups;
    mounts.first_existing(candidates).map(str::to_owned)
}

pub(super) fn container_use(mounts: &Mounts, pod: Option<&str>, id: &str) -> CgroupUse {
    pod.and_then(|pod| {
        let candidates = container_cgroups(pod, id);
        mounts
            .first_existing(&candidates)
            .map(|cgroup| mounts.read(cgroup))
    })
    .unwrap_or_default()
}

pub(super) fn logs_of(places: &Places, uid: &str, held: &Held) -> PathBuf {
    let name = format!("{}_{}_{uid}", held.namespace, held.name);
    places.pod_logs.join(name)
}

pub(super) fn candidate(
    mounts: &Mounts,
    places: &Places,
    layers: Option<&BTreeMap<String, tree::Use>>,
    uid: String,
    wanted: &Wanted,
    held: &Held,
) -> Candidate {
    let cgroup = pod_cgroup(mounts, Some(wanted));
    let whole = cgroup.as_deref().map(|cgroup| mounts.read(cgroup));
    let local = match layers {
        Some(_) => tree::measure(&places.root.join("pods").join(&uid).join("volumes"))
            .plus(tree::measure(&logs_of(places, &uid, held))),
        None => tree::Use::default(),
    };
    let layer = |running: &Running| {
        let known = layers.and_then(|layers| layers.get(&running.id));
        known.copied().unwrap_or_default()
    };
    let layer_sum = held
        .running
        .iter()
        .map(&layer)
        .fold(tree::Use::default(), tree::Use::plus);
    let containers = held
        .running
        .iter()
        .map(|running| {
            let (memory_request, disk_request) = wanted
                .containers
                .get(&running.name)
                .copied()
                .unwrap_or((0, 0));
            let used = container_use(mounts, cgroup.as_deref(), &running.id);
            ContainerUse {
                name: running.name.clone(),
                memory: used.memory.map_or(0, |memory| memory.working_set),
                memory_request,
                disk: layer(running).bytes,
                disk_request,
            }
        })
        .collect();
    Candidate {
        uid,
        namespace: wanted.namespace.clone(),
        name: wanted.name.clone(),
        priority: wanted.priority,
        critical: wanted.critical,
        memory_request: wanted.memory_request,
        disk_request: wanted.disk_request,
        termination_grace_seconds: wanted.termination_grace_seconds,
        usage: whole.and_then(|whole| {
            Some(Usage {
                memory: whole.memory?.working_set,
                local_bytes: local.bytes,
                local_inodes: local.inodes,
                layer_bytes: layer_sum.bytes,
                layer_inodes: layer_sum.inodes,
                processes: whole.processes.unwrap_or(0),
            })
        }),
        containers,
    }
}
