//! The fields of a pod's manifest that eviction needs. Everything else is skipped while parsing.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    ConfigMapVolumeSource, Container, EmptyDirVolumeSource, PodSpec, ResourceRequirements, Volume,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use polylet_model::cgroup::{CgroupDriver, CgroupName};
use polylet_model::constants::{SYSTEM_CRITICAL_PRIORITY, pod_annotation};
use polylet_model::ids::PodUid;
use polylet_model::quantity::Amount;
use polylet_model::{qos, resources};
use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::core::limits::LocalStorageLimits;
use crate::core::pods::{ContainerRequests, PodRestartPolicy, PodUsageSpec};
use crate::core::rank::Requested;

/// The paths of these fields, for a field mask.
pub(crate) const FIELDS: [&str; 19] = [
    "metadata.annotations",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.containers.name",
    "spec.containers.resources",
    "spec.containers.restartPolicy",
    "spec.initContainers.name",
    "spec.initContainers.resources",
    "spec.initContainers.restartPolicy",
    "spec.overhead",
    "spec.priority",
    "spec.resources",
    "spec.restartPolicy",
    "spec.terminationGracePeriodSeconds",
    "spec.volumes.configMap.name",
    "spec.volumes.emptyDir.medium",
    "spec.volumes.emptyDir.sizeLimit",
    "spec.volumes.name",
];

/// The default of `terminationGracePeriodSeconds`.
const DEFAULT_GRACE_SECONDS: i64 = 30;

/// A pod, without all other fields.
#[derive(Debug, Deserialize)]
pub(crate) struct PodUsageManifest {
    metadata: Metadata,
    spec: UsageManifestSpec,
}

#[derive(Debug, Deserialize)]
struct Metadata {
    name: String,
    namespace: String,
    uid: String,
    annotations: Option<Annotations>,
}

#[derive(Debug, Default, Deserialize)]
struct Annotations {
    #[serde(rename = "kubernetes.io/config.source")]
    source: Option<String>,
    #[serde(rename = "kubernetes.io/config.mirror")]
    mirror: Option<IgnoredAny>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct UsageManifestSpec {
    containers: Option<Vec<SpecContainer>>,
    init_containers: Option<Vec<SpecContainer>>,
    overhead: Option<BTreeMap<String, Quantity>>,
    priority: Option<i32>,
    resources: Option<ResourceRequirements>,
    restart_policy: Option<String>,
    termination_grace_period_seconds: Option<i64>,
    volumes: Option<Vec<SpecVolume>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SpecContainer {
    name: String,
    resources: Option<ResourceRequirements>,
    restart_policy: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SpecVolume {
    name: String,
    config_map: Option<IgnoredAny>,
    empty_dir: Option<EmptyDirVolumeSource>,
}

impl PodUsageManifest {
    pub(crate) fn from_json(manifest: &[u8]) -> serde_json::Result<Self> {
        serde_json::from_slice(manifest)
    }

    /// The usage-related fields. As upstream, static pods are critical; with `evict_static_pods`, only
    /// the priority decides.
    pub(crate) fn into_usage_spec(
        self,
        cgroup_root: &str,
        evict_static_pods: bool,
    ) -> PodUsageSpec {
        let critical = self.is_critical(evict_static_pods);
        let Metadata {
            name,
            namespace,
            uid,
            ..
        } = self.metadata;
        let grace = self.spec.termination_grace_period_seconds;
        let grace = grace.unwrap_or(DEFAULT_GRACE_SECONDS).max(0);
        let priority = self.spec.priority.unwrap_or(0);
        let restart_policy = match self.spec.restart_policy.as_deref() {
            Some("Never") => PodRestartPolicy::Never,
            Some("OnFailure") => PodRestartPolicy::OnFailure,
            _ => PodRestartPolicy::Always,
        };
        let spec = PodSpec::from(self.spec);
        let requests = resources::pod_requests(&spec);
        let request = |name: &str| requests.get(name).map_or(0, |amount| amount.bytes());
        let init = spec.init_containers.iter().flatten();
        let containers = spec.containers.iter().chain(init).map(|container| {
            let own = |name| requested(container.resources.as_ref(), name).unwrap_or_default();
            let requests = ContainerRequests {
                memory: own("memory"),
                storage: own("ephemeral-storage"),
            };
            (container.name.clone(), requests)
        });
        let cgroup = CgroupName::pod(cgroup_root, qos::class(&spec), &PodUid::from(uid));
        PodUsageSpec {
            namespace,
            name,
            priority,
            critical,
            memory_request: request("memory"),
            storage_request: request("ephemeral-storage"),
            pod_level_memory: requested(spec.resources.as_ref(), "memory"),
            restart_policy,
            // Set from the pod, not from its manifest.
            has_terminal_phase: false,
            termination_grace_seconds: u32::try_from(grace).unwrap_or(u32::MAX),
            cgroups: [CgroupDriver::Cgroupfs, CgroupDriver::Systemd]
                .map(|driver| cgroup.path(driver))
                .into(),
            containers: containers.collect(),
            storage_limits: LocalStorageLimits::from_spec(&spec),
        }
    }

    fn is_critical(&self, evict_static_pods: bool) -> bool {
        let annotations = self.metadata.annotations.as_ref();
        let source = annotations.and_then(|annotations| annotations.source.as_deref());
        let is_static = source.is_some_and(|source| source != pod_annotation::source::API);
        let is_mirror = annotations.is_some_and(|annotations| annotations.mirror.is_some());
        let by_priority = self.spec.priority.unwrap_or(0) >= SYSTEM_CRITICAL_PRIORITY;
        by_priority || (!evict_static_pods && (is_static || is_mirror))
    }
}

/// A request as it is in the manifest.
fn requested(resources: Option<&ResourceRequirements>, name: &str) -> Option<Requested> {
    let text = &resources?.requests.as_ref()?.get(name)?.0;
    Some(Requested {
        bytes: Amount::parse(text).ok()?.bytes(),
        text: text.clone(),
    })
}

/// For the rules of [`polylet_model`], which take the API's types.
impl From<UsageManifestSpec> for PodSpec {
    fn from(spec: UsageManifestSpec) -> Self {
        let container = |container: SpecContainer| Container {
            name: container.name,
            resources: container.resources,
            restart_policy: container.restart_policy,
            ..Container::default()
        };
        let volume = |volume: SpecVolume| Volume {
            name: volume.name,
            config_map: volume.config_map.map(|_| ConfigMapVolumeSource::default()),
            empty_dir: volume.empty_dir,
            ..Volume::default()
        };
        PodSpec {
            containers: spec
                .containers
                .unwrap_or_default()
                .into_iter()
                .map(container)
                .collect(),
            init_containers: spec
                .init_containers
                .map(|containers| containers.into_iter().map(container).collect()),
            overhead: spec.overhead,
            priority: spec.priority,
            resources: spec.resources,
            volumes: spec
                .volumes
                .map(|volumes| volumes.into_iter().map(volume).collect()),
            ..PodSpec::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use polylet_model::pod::Manifest;
    use serde_json::{Value, json};

    use super::*;

    fn pod(annotations: Value) -> Value {
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": "web", "namespace": "default", "uid": "u1", "annotations": annotations,
            },
            "spec": {
                "priority": 7,
                "terminationGracePeriodSeconds": 45,
                "overhead": {"memory": "1Mi"},
                "restartPolicy": "OnFailure",
                "containers": [
                    {
                        "name": "a", "image": "x", "env": [{"name": "A", "value": "b"}],
                        "resources": {
                            "requests": {"memory": "10Mi", "ephemeral-storage": "1Mi"},
                            "limits": {"ephemeral-storage": "2Mi"},
                        },
                    },
                    {"name": "b", "image": "x"},
                ],
                "initContainers": [
                    {"name": "s", "restartPolicy": "Always", "resources": {"requests": {"memory": "5Mi"}}},
                ],
                "volumes": [
                    {"name": "d", "emptyDir": {"sizeLimit": "1Mi"}},
                    {"name": "m", "emptyDir": {"medium": "Memory"}},
                    {"name": "c", "configMap": {"name": "x", "items": [{"key": "k", "path": "p"}]}},
                    {"name": "h", "hostPath": {"path": "/"}},
                ],
            },
        })
    }

    fn usage_spec(pod: &Value, evict_static_pods: bool) -> PodUsageSpec {
        let manifest = PodUsageManifest::from_json(pod.to_string().as_bytes()).unwrap();
        manifest.into_usage_spec("/", evict_static_pods)
    }

    #[test]
    fn usage_spec_agrees_with_the_whole_manifest() {
        let pod = pod(json!({"large": "value"}));
        let spec = usage_spec(&pod, false);
        let whole = Manifest::from_json(pod.to_string().as_bytes()).unwrap();
        let requests = resources::pod_requests(whole.spec());
        assert_eq!(spec.memory_request, requests["memory"].bytes());
        assert_eq!(spec.memory_request, 16 << 20);
        assert_eq!(spec.storage_request, 1 << 20);
        assert_eq!(
            spec.storage_limits,
            LocalStorageLimits::from_spec(whole.spec())
        );
        assert_eq!(spec.container("a").unwrap().memory.bytes, 10 << 20);
        assert_eq!(spec.container("a").unwrap().memory.text, "10Mi");
        // Init containers and sidecars are blamed, too.
        assert_eq!(spec.container("s").unwrap().memory.text, "5Mi");
        assert_eq!(spec.restart_policy, PodRestartPolicy::OnFailure);
        assert_eq!(spec.container("b"), Some(&ContainerRequests::default()));
        assert_eq!((spec.priority, spec.termination_grace_seconds), (7, 45));
        let cgroup = CgroupName::pod("/", qos::class(whole.spec()), whole.uid());
        assert_eq!(spec.cgroups[0], cgroup.path(CgroupDriver::Cgroupfs));
    }

    #[test]
    fn static_and_mirror_pods_are_critical_unless_configured() {
        for (annotations, critical) in [
            (json!(null), false),
            (json!({pod_annotation::CONFIG_SOURCE: "api"}), false),
            (json!({pod_annotation::CONFIG_SOURCE: "file"}), true),
            (json!({pod_annotation::CONFIG_MIRROR: "hash"}), true),
        ] {
            let pod = pod(annotations);
            assert_eq!(usage_spec(&pod, false).critical, critical, "{pod}");
            assert!(!usage_spec(&pod, true).critical, "{pod}");
        }
        let mut system = pod(json!({}));
        system["spec"]["priority"] = json!(SYSTEM_CRITICAL_PRIORITY);
        assert!(usage_spec(&system, true).critical);
    }

    #[test]
    fn pods_without_a_name_are_rejected() {
        assert!(PodUsageManifest::from_json(br#"{"metadata": {}, "spec": {}}"#).is_err());
        assert!(FIELDS.is_sorted());
    }
}
