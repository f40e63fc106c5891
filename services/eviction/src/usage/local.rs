//! Measures the local storage of pods with limits.

use std::time::{Duration, Instant};

use super::{NodePaths, WritableLayers};
use crate::core::limits::LocalStorageUsage;
use crate::core::pods::{PodUsageSpec, RuntimePod};
use crate::sample::disk_usage;

/// The local storage usage of a pod, and how long it took to measure.
pub(crate) struct LocalStorageSample {
    pub(crate) uid: String,
    pub(crate) usage: LocalStorageUsage,
    pub(crate) took: Duration,
}

pub(super) fn measure(
    paths: &NodePaths,
    layers: &WritableLayers,
    uid: String,
    spec: &PodUsageSpec,
    pod: &RuntimePod,
) -> LocalStorageSample {
    let began = Instant::now();
    let volumes_dir = paths.pod_volumes(&uid);
    let limits = &spec.storage_limits;
    let volume = |plugin: &str, name: &str| {
        let path = volumes_dir.join(plugin).join(name);
        disk_usage::measure(&path).bytes
    };
    let limited = limits.empty_dirs.iter().map(|limit| &limit.name);
    let mut usage = LocalStorageUsage {
        empty_dirs: limited
            .map(|name| (name.clone(), volume("kubernetes.io~empty-dir", name)))
            .collect(),
        ..LocalStorageUsage::default()
    };
    if limits.limits_containers() {
        let logs_dir = paths.pod_logs(&uid, pod);
        for container in &pod.running {
            let logs = disk_usage::measure(&logs_dir.join(&container.name)).bytes;
            let layer = layers.get(&container.id).map_or(0, |layer| layer.bytes);
            usage
                .containers
                .insert(container.name.clone(), (logs, layer));
        }
        let volumes = limits.local_volumes.iter().map(|local| {
            let measured = usage.empty_dirs.get(&local.name).copied();
            measured.unwrap_or_else(|| volume(local.plugin, &local.name))
        });
        let logs = disk_usage::measure(&logs_dir).bytes;
        let hosts_file = paths.pod_dir(&uid).join("etc-hosts");
        let files = logs.saturating_add(disk_usage::measure(&hosts_file).bytes);
        usage.other = volumes.fold(files, u64::saturating_add);
    }
    LocalStorageSample {
        uid,
        usage,
        took: began.elapsed(),
    }
}
