//! Limits of pods on local storage: the size of an emptyDir, and the ephemeral storage of containers
//! and of the pod. The order of the checks and the messages are upstream's.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, PodSpec};
use polylet_model::quantity::Amount;
use polylet_model::resources;

const STORAGE: &str = "ephemeral-storage";

/// The limit of a volume, a container or the pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct StorageLimit {
    /// The name of the volume or container; empty for the pod.
    pub(crate) name: String,
    amount: Amount,
    /// The amount in the notation of the API.
    text: String,
}

/// The local storage limits of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LocalStorageLimits {
    /// In the order of the manifest.
    pub(crate) empty_dirs: Vec<StorageLimit>,
    pod: Option<StorageLimit>,
    pub(crate) containers: Vec<StorageLimit>,
    /// Volumes whose files count as the pod's usage: emptyDirs on disk, and ConfigMaps.
    pub(crate) local_volumes: Vec<LocalEphemeralVolume>,
}

/// A volume whose files count as the pod's usage.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LocalEphemeralVolume {
    pub(crate) name: String,
    pub(crate) plugin: &'static str,
}

/// The local storage usage of a pod in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LocalStorageUsage {
    /// By volume name.
    pub(crate) empty_dirs: BTreeMap<String, u64>,
    /// By name of the running container: logs and writable layer.
    pub(crate) containers: BTreeMap<String, (u64, u64)>,
    /// Local ephemeral volumes, all logs, the hosts file.
    pub(crate) other: u64,
}

/// A limit that a pod is above.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ExceededLimit {
    /// Upstream's signal, by which evictions are counted.
    pub(crate) signal: &'static str,
    /// The eviction message.
    pub(crate) message: String,
}

impl LocalStorageLimits {
    /// The limits in a pod's spec.
    pub(crate) fn from_spec(spec: &PodSpec) -> Self {
        let volumes = || spec.volumes.iter().flatten();
        let empty_dirs = volumes().filter_map(|volume| {
            let size = volume.empty_dir.as_ref()?.size_limit.as_ref()?;
            limit(&volume.name, &size.0).filter(|limit| limit.amount.is_positive())
        });
        let container_limit = |container: &Container| {
            let limits = container.resources.as_ref()?.limits.as_ref()?;
            limit(&container.name, &limits.get(STORAGE)?.0).filter(|limit| !limit.amount.is_zero())
        };
        let local_volumes = volumes().filter_map(|volume| {
            let medium = volume.empty_dir.as_ref().map(|dir| dir.medium.as_deref());
            let plugin = match medium {
                Some(None | Some("")) => "kubernetes.io~empty-dir",
                _ if volume.config_map.is_some() => "kubernetes.io~configmap",
                _ => return None,
            };
            Some(LocalEphemeralVolume {
                name: volume.name.clone(),
                plugin,
            })
        });
        Self {
            empty_dirs: empty_dirs.collect(),
            pod: pod_limit(spec),
            containers: spec.containers.iter().filter_map(container_limit).collect(),
            local_volumes: local_volumes.collect(),
        }
    }

    /// Whether the volume's files count as the pod's usage.
    pub(crate) fn is_local_volume(&self, name: &str) -> bool {
        self.local_volumes.iter().any(|volume| volume.name == name)
    }

    /// Whether the pod has no limit.
    pub(crate) fn is_empty(&self) -> bool {
        self.empty_dirs.is_empty() && !self.limits_containers()
    }

    /// Whether the usage of containers must be measured, and not only emptyDirs.
    pub(crate) fn limits_containers(&self) -> bool {
        self.pod.is_some() || !self.containers.is_empty()
    }

    /// The first limit that the pod is above. As upstream, writable layers on another
    /// file system count for the pod and not for the container.
    pub(crate) fn exceeded(
        &self,
        used: &LocalStorageUsage,
        one_filesystem: bool,
    ) -> Option<ExceededLimit> {
        let above =
            |bytes: u64, limit: &StorageLimit| nanos_from_bytes(bytes) > limit.amount.nanos();
        let empty_dir_exceeded = |limit: &&StorageLimit| {
            let bytes = used.empty_dirs.get(&limit.name);
            bytes.is_some_and(|bytes| above(*bytes, limit))
        };
        if let Some(limit) = self.empty_dirs.iter().find(empty_dir_exceeded) {
            let StorageLimit { name, text, .. } = limit;
            return Some(ExceededLimit {
                signal: "emptydirfs.limit",
                message: format!(
                    "Usage of EmptyDir volume \"{name}\" exceeds the limit \"{text}\". "
                ),
            });
        }
        let layers = used.containers.values().map(|(_, layer)| *layer);
        let total = layers.fold(used.other, u64::saturating_add);
        if let Some(limit) = self.pod.as_ref().filter(|limit| above(total, limit)) {
            return Some(ExceededLimit {
                signal: "ephemeralpodfs.limit",
                message: format!(
                    "Pod ephemeral local storage usage exceeds the total limit of containers {}. ",
                    limit.text
                ),
            });
        }
        let container_exceeded = |limit: &&StorageLimit| {
            used.containers
                .get(&limit.name)
                .is_some_and(|(logs, layer)| {
                    let layer = if one_filesystem { *layer } else { 0 };
                    above(logs.saturating_add(layer), limit)
                })
        };
        let limit = self.containers.iter().find(container_exceeded)?;
        let StorageLimit { name, text, .. } = limit;
        Some(ExceededLimit {
            signal: "ephemeralcontainerfs.limit",
            message: format!(
                "Container {name} exceeded its local ephemeral storage limit \"{text}\". "
            ),
        })
    }
}

fn nanos_from_bytes(bytes: u64) -> i128 {
    i128::from(bytes) * 1_000_000_000
}

fn limit(name: &str, text: &str) -> Option<StorageLimit> {
    let amount = Amount::parse(text).ok()?;
    Some(StorageLimit {
        name: name.to_owned(),
        amount,
        text: format_amount(amount, text),
    })
}

/// The sum of the containers' limits, if any has one.
fn pod_limit(spec: &PodSpec) -> Option<StorageLimit> {
    let amount = *resources::pod_limits(spec).get(STORAGE)?;
    let init = spec.init_containers.iter().flatten();
    let mut texts = spec.containers.iter().chain(init).filter_map(|container| {
        let limits = container.resources.as_ref()?.limits.as_ref()?;
        Some(limits.get(STORAGE)?.0.as_str())
    });
    Some(StorageLimit {
        name: String::new(),
        amount,
        text: format_amount(amount, texts.next().unwrap_or_default()),
    })
}

/// Formats an amount with the kind of suffix of the `given` quantity.
fn format_amount(amount: Amount, given: &str) -> String {
    if given.ends_with('i') {
        amount.to_binary()
    } else {
        amount.to_decimal()
    }
}

/// A pod is measured less often when that takes long, so that measuring takes at most a twentieth of a
/// core.
const DELAY_FACTOR: u32 = 20;
/// The limits must still be enforced.
const MAX_DELAY: Duration = Duration::from_secs(300);

/// The delay before a pod is measured again, from the time that the last measurement took.
pub(crate) fn recheck_delay(took: Duration, period: Duration) -> Duration {
    let delay = took.saturating_mul(DELAY_FACTOR).min(MAX_DELAY);
    // Pods are measured once per period anyway.
    if delay <= period {
        Duration::ZERO
    } else {
        delay
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn limits(spec: Value) -> LocalStorageLimits {
        LocalStorageLimits::from_spec(&serde_json::from_value(spec).unwrap())
    }

    fn spec() -> Value {
        json!({
            "volumes": [
                {"name": "free", "emptyDir": {}},
                {"name": "disk", "emptyDir": {"sizeLimit": "1024Ki"}},
                {"name": "memory", "emptyDir": {"medium": "Memory", "sizeLimit": "1M"}},
                {"name": "zero", "emptyDir": {"sizeLimit": "0"}},
                {"name": "conf", "configMap": {"name": "c"}},
                {"name": "host", "hostPath": {"path": "/"}},
            ],
            "containers": [
                {"name": "a", "resources": {"limits": {"ephemeral-storage": "2Mi"}}},
                {"name": "b"},
            ],
        })
    }

    fn used(
        empty_dirs: &[(&str, u64)],
        containers: &[(&str, u64, u64)],
        rest: u64,
    ) -> LocalStorageUsage {
        let dirs = empty_dirs
            .iter()
            .map(|(name, bytes)| ((*name).into(), *bytes));
        let containers = containers
            .iter()
            .map(|(name, logs, layer)| ((*name).into(), (*logs, *layer)));
        LocalStorageUsage {
            empty_dirs: dirs.collect(),
            containers: containers.collect(),
            other: rest,
        }
    }

    const MI: u64 = 1 << 20;

    #[test]
    fn limits_are_read_from_the_spec() {
        let limits = limits(spec());
        let names = |limits: &[StorageLimit]| -> Vec<String> {
            limits.iter().map(|limit| limit.name.clone()).collect()
        };
        assert_eq!(names(&limits.empty_dirs), ["disk", "memory"]);
        assert_eq!(names(&limits.containers), ["a"]);
        let local: Vec<_> = limits
            .local_volumes
            .iter()
            .map(|v| v.name.as_str())
            .collect();
        assert_eq!(local, ["free", "disk", "zero", "conf"]);
        assert!(limits.pod.is_some() && !limits.is_empty());
        let none =
            json!({"containers": [{"name": "a"}], "volumes": [{"name": "v", "emptyDir": {}}]});
        assert!(self::limits(none).is_empty());
    }

    #[test]
    fn limits_are_checked_in_the_order_of_upstream() {
        let limits = limits(spec());
        let exceeded = |used: LocalStorageUsage| {
            let ExceededLimit { signal, message } = limits.exceeded(&used, true)?;
            Some((signal, message))
        };
        let expected = |signal, message: &str| Some((signal, message.to_owned()));
        assert_eq!(exceeded(LocalStorageUsage::default()), None);
        assert_eq!(exceeded(used(&[("disk", MI)], &[("a", MI, MI)], 0)), None);
        let disk = "Usage of EmptyDir volume \"disk\" exceeds the limit \"1Mi\". ";
        let all = used(
            &[("disk", MI + 1), ("memory", MI)],
            &[("a", 2 * MI, MI)],
            MI,
        );
        assert_eq!(exceeded(all), expected("emptydirfs.limit", disk));
        let memory = "Usage of EmptyDir volume \"memory\" exceeds the limit \"1M\". ";
        assert_eq!(
            exceeded(used(&[("memory", 1_000_001)], &[], 0)),
            expected("emptydirfs.limit", memory)
        );
        // The sum counts containers that have no limit of their own.
        let pod = "Pod ephemeral local storage usage exceeds the total limit of containers 2Mi. ";
        assert_eq!(
            exceeded(used(&[], &[("b", 0, MI)], MI + 1)),
            expected("ephemeralpodfs.limit", pod)
        );
        let container = "Container a exceeded its local ephemeral storage limit \"2Mi\". ";
        let logs = used(&[], &[("a", 2 * MI + 1, 0)], 0);
        assert_eq!(
            exceeded(logs),
            expected("ephemeralcontainerfs.limit", container)
        );
    }

    #[test]
    fn layers_on_another_file_system_count_for_the_pod_only() {
        let limits = limits(spec());
        let layer = used(&[], &[("a", MI, MI)], 0);
        assert_eq!(limits.exceeded(&layer, false), None);
        let layer = used(&[], &[("a", 0, 2 * MI + 1)], 0);
        let exceeded = limits.exceeded(&layer, false).unwrap();
        assert_eq!(exceeded.signal, "ephemeralpodfs.limit");
    }

    #[test]
    fn measurement_is_delayed_by_its_duration() {
        let period = Duration::from_secs(10);
        let delay = |millis| super::recheck_delay(Duration::from_millis(millis), period).as_secs();
        assert_eq!([delay(0), delay(500), delay(501)], [0, 0, 10]);
        assert_eq!([delay(5_000), delay(60_000)], [100, 300]);
    }

    proptest! {
        #[test]
        fn higher_usage_never_prevents_an_eviction(bytes in 0..4 * MI, more in 0..4 * MI) {
            let limits = limits(spec());
            let usage = |bytes| used(&[("disk", bytes)], &[("a", bytes, 0)], bytes);
            if limits.exceeded(&usage(bytes), true).is_some() {
                prop_assert!(limits.exceeded(&usage(bytes + more), true).is_some());
            }
        }

        #[test]
        fn any_quantity_is_accepted(text in "[0-9.eEmkKMGi+-]{0,10}") {
            let spec = json!({
                "volumes": [{"name": "v", "emptyDir": {"sizeLimit": text}}],
                "containers": [{"name": "a", "resources": {"limits": {"ephemeral-storage": text}}}],
            });
            let _ = limits(spec).exceeded(&used(&[("v", 1)], &[("a", 1, 1)], 1), true);
        }
    }
}
