//! The local storage of pods with limits, from measured paths.

use std::path::PathBuf;
use std::time::Duration;

use super::{NodePaths, WritableLayers};
use crate::core::limits::LocalStorageUsage;
use crate::core::pods::{PodUsageSpec, RuntimePod};
use crate::sample::disk_usage::{PodDiskUsage, PodPaths};

const EMPTY_DIR: &str = "kubernetes.io~empty-dir";

/// The local storage usage of a pod, and how long it took to measure.
pub(crate) struct LocalStorageSample {
    pub(crate) uid: String,
    pub(crate) usage: LocalStorageUsage,
    pub(crate) took: Duration,
}

/// What a measured path is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum LocalPath {
    /// An emptyDir with a limit.
    EmptyDir(String),
    /// The logs of a container.
    Logs(String),
    /// What counts for the pod only.
    Other,
}

/// The paths that are measured for a pod's limits.
pub(super) fn limited_paths(
    paths: &NodePaths,
    uid: &str,
    spec: &PodUsageSpec,
    pod: &RuntimePod,
) -> (PodPaths, Vec<LocalPath>) {
    let limits = &spec.storage_limits;
    let mut all: Vec<(LocalPath, (PathBuf, PathBuf))> = Vec::new();
    for limit in &limits.empty_dirs {
        let path = paths.volume(uid, EMPTY_DIR, &limit.name);
        all.push((LocalPath::EmptyDir(limit.name.clone()), path));
    }
    if limits.limits_containers() {
        for container in &pod.running {
            let path = paths.container_logs(uid, pod, &container.name);
            all.push((LocalPath::Logs(container.name.clone()), path));
        }
        let is_limited = |name: &str| limits.empty_dirs.iter().any(|limit| limit.name == name);
        for volume in limits.local_volumes.iter().filter(|v| !is_limited(&v.name)) {
            let path = paths.volume(uid, volume.plugin, &volume.name);
            all.push((LocalPath::Other, path));
        }
        all.push((LocalPath::Other, paths.pod_logs(uid, pod)));
        all.push((LocalPath::Other, paths.hosts_file(uid)));
    }
    let (kinds, paths) = all.into_iter().unzip();
    let uid = uid.to_owned();
    (PodPaths { uid, paths }, kinds)
}

/// The usage of a pod out of its measured paths. Writable layers count for limits of containers and of
/// the pod.
pub(super) fn sample(
    uid: String,
    spec: &PodUsageSpec,
    pod: &RuntimePod,
    layers: &WritableLayers,
    kinds: &[LocalPath],
    measured: &PodDiskUsage,
) -> LocalStorageSample {
    let limits = &spec.storage_limits;
    let mut usage = LocalStorageUsage::default();
    for (kind, path) in kinds.iter().zip(&measured.paths) {
        let bytes = path.map_or(0, |path| path.usage.bytes);
        match kind {
            LocalPath::EmptyDir(name) => {
                usage.empty_dirs.insert(name.clone(), bytes);
                // One in memory does not count for the pod.
                if limits.is_local_volume(name) {
                    usage.other = usage.other.saturating_add(bytes);
                }
            }
            LocalPath::Logs(name) => {
                usage.containers.insert(name.clone(), (bytes, 0));
            }
            LocalPath::Other => usage.other = usage.other.saturating_add(bytes),
        }
    }
    for container in &pod.running {
        if let Some((_, layer)) = usage.containers.get_mut(&container.name) {
            *layer = layers.get(&container.id).map_or(0, |layer| layer.bytes);
        }
    }
    if !limits.limits_containers() {
        usage.other = 0;
    }
    LocalStorageSample {
        uid,
        usage,
        took: measured.took,
    }
}
