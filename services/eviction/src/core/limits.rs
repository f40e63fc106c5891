//! Limits that pods set on their own use of the node's disk: an emptyDir's size, and the
//! ephemeral storage of containers and of the whole pod. Upstream's order and words.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, PodSpec};
use polylet_model::quantity::Amount;
use polylet_model::resources;

const STORAGE: &str = "ephemeral-storage";

/// One limit, and its name: a volume's or a container's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Limit {
    pub(crate) name: String,
    amount: Amount,
    /// As the API writes it.
    text: String,
}

/// All such limits of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Limits {
    /// In the manifest's order.
    pub(crate) empty_dirs: Vec<Limit>,
    pod: Option<Limit>,
    pub(crate) containers: Vec<Limit>,
    /// Disk volumes that count as the pod's own use: emptyDirs not in memory, and ConfigMaps.
    pub(crate) own_volumes: Vec<OwnVolume>,
}

/// A volume whose files are the pod's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct OwnVolume {
    pub(crate) name: String,
    pub(crate) plugin: &'static str,
}

/// What a pod uses, bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LocalUse {
    /// By volume.
    pub(crate) empty_dirs: BTreeMap<String, u64>,
    /// Running containers: logs and writable layer.
    pub(crate) containers: BTreeMap<String, (u64, u64)>,
    /// Volumes that are the pod's own, all its logs, its hosts file.
    pub(crate) rest: u64,
}

impl Limits {
    /// The limits of a pod.
    pub(crate) fn of(spec: &PodSpec) -> Self {
        let volumes = || spec.volumes.iter().flatten();
        let empty_dirs = volumes().filter_map(|volume| {
            let size = volume.empty_dir.as_ref()?.size_limit.as_ref()?;
            limit(&volume.name, &size.0).filter(|limit| limit.amount.is_positive())
        });
        let of_container = |container: &Container| {
            let limits = container.resources.as_ref()?.limits.as_ref()?;
            limit(&container.name, &limits.get(STORAGE)?.0).filter(|limit| !limit.amount.is_zero())
        };
        let own = volumes().filter_map(|volume| {
            let medium = volume.empty_dir.as_ref().map(|dir| dir.medium.as_deref());
            let plugin = match medium {
                Some(None | Some("")) => "kubernetes.io~empty-dir",
                _ if volume.config_map.is_some() => "kubernetes.io~configmap",
                _ => return None,
            };
            Some(OwnVolume {
                name: volume.name.clone(),
                plugin,
            })
        });
        Self {
            empty_dirs: empty_dirs.collect(),
            pod: of_pod(spec),
            containers: spec.containers.iter().filter_map(of_container).collect(),
            own_volumes: own.collect(),
        }
    }

    /// Whether there is nothing to hold the pod to.
    pub(crate) fn is_empty(&self) -> bool {
        self.empty_dirs.is_empty() && !self.counts_containers()
    }

    /// Whether more than emptyDirs must be measured.
    pub(crate) fn counts_containers(&self) -> bool {
        self.pod.is_some() || !self.containers.is_empty()
    }

    /// Why the pod has to go, if it uses more than it may. Writable layers on a disk of their own
    /// count for the pod and not for the container, as upstream counts.
    pub(crate) fn exceeded(&self, used: &LocalUse, one_filesystem: bool) -> Option<String> {
        let above = |bytes: u64, limit: &Limit| of_bytes(bytes) > limit.amount.nanos();
        let of_empty_dir = |limit: &&Limit| {
            let bytes = used.empty_dirs.get(&limit.name);
            bytes.is_some_and(|bytes| above(*bytes, limit))
        };
        if let Some(limit) = self.empty_dirs.iter().find(of_empty_dir) {
            let Limit { name, text, .. } = limit;
            return Some(format!(
                "Usage of EmptyDir volume \"{name}\" exceeds the limit \"{text}\". "
            ));
        }
        let layers = used.containers.values().map(|(_, layer)| *layer);
        let whole = layers.fold(used.rest, u64::saturating_add);
        if let Some(limit) = self.pod.as_ref().filter(|limit| above(whole, limit)) {
            return Some(format!(
                "Pod ephemeral local storage usage exceeds the total limit of containers {}. ",
                limit.text
            ));
        }
        let of_container = |limit: &&Limit| {
            used.containers
                .get(&limit.name)
                .is_some_and(|(logs, layer)| {
                    let layer = if one_filesystem { *layer } else { 0 };
                    above(logs.saturating_add(layer), limit)
                })
        };
        let limit = self.containers.iter().find(of_container)?;
        let Limit { name, text, .. } = limit;
        Some(format!(
            "Container {name} exceeded its local ephemeral storage limit \"{text}\". "
        ))
    }
}

fn of_bytes(bytes: u64) -> i128 {
    i128::from(bytes) * 1_000_000_000
}

fn limit(name: &str, text: &str) -> Option<Limit> {
    let amount = Amount::parse(text).ok()?;
    Some(Limit {
        name: name.to_owned(),
        amount,
        text: written(amount, text),
    })
}

/// The sum of its containers' limits, if any has one.
fn of_pod(spec: &PodSpec) -> Option<Limit> {
    let amount = *resources::pod_limits(spec).get(STORAGE)?;
    let init = spec.init_containers.iter().flatten();
    let mut texts = spec.containers.iter().chain(init).filter_map(|container| {
        let limits = container.resources.as_ref()?.limits.as_ref()?;
        Some(limits.get(STORAGE)?.0.as_str())
    });
    Some(Limit {
        name: String::new(),
        amount,
        text: written(amount, texts.next().unwrap_or_default()),
    })
}

/// A quantity keeps the kind of suffix it was given with.
fn written(amount: Amount, given: &str) -> String {
    if given.ends_with('i') {
        amount.to_binary()
    } else {
        amount.to_decimal()
    }
}

/// A pod whose files take long to count is counted less often: a twentieth of a core at most.
const SHARE: u32 = 20;
/// But not so seldom that its limits mean nothing.
const LONGEST_PAUSE: Duration = Duration::from_secs(300);

/// How long to leave a pod alone whose files took so long to count.
pub(crate) fn pause(took: Duration, round: Duration) -> Duration {
    let pause = took.saturating_mul(SHARE).min(LONGEST_PAUSE);
    // What fits between two rounds needs no pause beside them.
    if pause <= round {
        Duration::ZERO
    } else {
        pause
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn limits(spec: Value) -> Limits {
        Limits::of(&serde_json::from_value(spec).unwrap())
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

    fn used(empty_dirs: &[(&str, u64)], containers: &[(&str, u64, u64)], rest: u64) -> LocalUse {
        let dirs = empty_dirs
            .iter()
            .map(|(name, bytes)| ((*name).into(), *bytes));
        let containers = containers
            .iter()
            .map(|(name, logs, layer)| ((*name).into(), (*logs, *layer)));
        LocalUse {
            empty_dirs: dirs.collect(),
            containers: containers.collect(),
            rest,
        }
    }

    const MI: u64 = 1 << 20;

    #[test]
    fn what_a_pod_is_held_to() {
        let limits = limits(spec());
        let names = |limits: &[Limit]| -> Vec<String> {
            limits.iter().map(|limit| limit.name.clone()).collect()
        };
        assert_eq!(names(&limits.empty_dirs), ["disk", "memory"]);
        assert_eq!(names(&limits.containers), ["a"]);
        let own: Vec<_> = limits.own_volumes.iter().map(|v| v.name.as_str()).collect();
        assert_eq!(own, ["free", "disk", "zero", "conf"]);
        assert!(limits.pod.is_some() && !limits.is_empty());
        let none =
            json!({"containers": [{"name": "a"}], "volumes": [{"name": "v", "emptyDir": {}}]});
        assert!(self::limits(none).is_empty());
    }

    #[test]
    fn upstreams_order_and_words() {
        let limits = limits(spec());
        let said = |used: LocalUse| limits.exceeded(&used, true);
        assert_eq!(said(LocalUse::default()), None);
        assert_eq!(said(used(&[("disk", MI)], &[("a", MI, MI)], 0)), None);
        let disk = "Usage of EmptyDir volume \"disk\" exceeds the limit \"1Mi\". ";
        let all = used(
            &[("disk", MI + 1), ("memory", MI)],
            &[("a", 2 * MI, MI)],
            MI,
        );
        assert_eq!(said(all).as_deref(), Some(disk));
        let memory = "Usage of EmptyDir volume \"memory\" exceeds the limit \"1M\". ";
        assert_eq!(
            said(used(&[("memory", 1_000_001)], &[], 0)).as_deref(),
            Some(memory)
        );
        // The sum counts containers that have no limit of their own.
        let pod = "Pod ephemeral local storage usage exceeds the total limit of containers 2Mi. ";
        assert_eq!(
            said(used(&[], &[("b", 0, MI)], MI + 1)).as_deref(),
            Some(pod)
        );
        let container = "Container a exceeded its local ephemeral storage limit \"2Mi\". ";
        let logs = used(&[], &[("a", 2 * MI + 1, 0)], 0);
        assert_eq!(said(logs).as_deref(), Some(container));
    }

    #[test]
    fn layers_elsewhere_count_for_the_pod_alone() {
        let limits = limits(spec());
        let layer = used(&[], &[("a", MI, MI)], 0);
        assert_eq!(limits.exceeded(&layer, false), None);
        let layer = used(&[], &[("a", 0, 2 * MI + 1)], 0);
        let said = limits.exceeded(&layer, false).unwrap();
        assert!(said.starts_with("Pod ephemeral"), "{said}");
    }

    #[test]
    fn counting_takes_a_small_share() {
        let round = Duration::from_secs(10);
        let pause = |millis| super::pause(Duration::from_millis(millis), round).as_secs();
        assert_eq!([pause(0), pause(500), pause(501)], [0, 0, 10]);
        assert_eq!([pause(5_000), pause(60_000)], [100, 300]);
    }

    proptest! {
        #[test]
        fn more_use_never_saves_a_pod(bytes in 0..4 * MI, more in 0..4 * MI) {
            let limits = limits(spec());
            let of = |bytes| used(&[("disk", bytes)], &[("a", bytes, 0)], bytes);
            if limits.exceeded(&of(bytes), true).is_some() {
                prop_assert!(limits.exceeded(&of(bytes + more), true).is_some());
            }
        }

        #[test]
        fn any_quantity_is_taken(text in "[0-9.eEmkKMGi+-]{0,10}") {
            let spec = json!({
                "volumes": [{"name": "v", "emptyDir": {"sizeLimit": text}}],
                "containers": [{"name": "a", "resources": {"limits": {"ephemeral-storage": text}}}],
            });
            let _ = limits(spec).exceeded(&used(&[("v", 1)], &[("a", 1, 1)], 1), true);
        }
    }
}
