//! The parts of a manifest that decisions need.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Toleration;
use polylet_model::hook::Hook;
use polylet_model::pod::SharedContainer;
use polylet_model::probe::{self, ProbeKind};
use polylet_model::{ContainerKind, Manifest, PodAllocation, RestartPolicy, hash, qos, sysctl};

use crate::core::devices::device_limits;
use crate::core::node_resources::PodRequest;
use crate::core::volume_mount;

/// A container's `imagePullPolicy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PullPolicy {
    /// The registry is asked at each start.
    Always,
    /// The image is pulled when it is not present.
    IfNotPresent,
    /// The image must be present.
    Never,
}

impl PullPolicy {
    /// The policy of this name; the manifest's defaults are filled in.
    pub fn from_name(name: Option<&str>) -> Self {
        match name {
            Some("Always") => PullPolicy::Always,
            Some("Never") => PullPolicy::Never,
            _ => PullPolicy::IfNotPresent,
        }
    }
}

/// One container of a pod.
#[derive(Clone, Debug, PartialEq)]
pub struct ContainerSpecView {
    /// Its name in the pod.
    pub name: String,
    /// The kind of container.
    pub kind: ContainerKind,
    /// Hash of the fields whose change replaces the container, as in its annotation.
    pub hash: String,
    /// The image as the manifest names it.
    pub image: String,
    /// The pull policy.
    pub pull_policy: PullPolicy,
    /// Whether later containers wait for its startup probe.
    pub waits_for_startup_probe: bool,
    /// The startup probe's own grace period in seconds.
    pub startup_grace_period: Option<u32>,
    /// The liveness probe's own grace period in seconds.
    pub liveness_grace_period: Option<u32>,
    /// Whether it mounts subPaths of volumes.
    pub has_sub_paths: bool,
    /// Limits of extended resources, for which it gets devices.
    pub device_limits: BTreeMap<String, u64>,
    /// The postStart hook.
    pub post_start: Option<Hook>,
    /// The preStop hook.
    pub pre_stop: Option<Hook>,
    /// The container in the manifest.
    pub spec: SharedContainer,
}

impl ContainerSpecView {
    fn new(kind: ContainerKind, spec: SharedContainer) -> Self {
        let grace_period = |kind| {
            let probe = probe::api_probe(&spec, kind)?;
            u32::try_from(probe.termination_grace_period_seconds?).ok()
        };
        ContainerSpecView {
            name: spec.name.clone(),
            kind,
            hash: hash::container_hash_annotation(&spec),
            image: spec.image.clone().unwrap_or_default(),
            pull_policy: PullPolicy::from_name(spec.image_pull_policy.as_deref()),
            waits_for_startup_probe: probe::spec(kind, &spec, ProbeKind::Startup).is_some(),
            startup_grace_period: grace_period(ProbeKind::Startup),
            liveness_grace_period: grace_period(ProbeKind::Liveness),
            has_sub_paths: volume_mount::has_sub_paths(&spec),
            device_limits: device_limits(kind, &spec),
            post_start: Hook::post_start(&spec),
            pre_stop: Hook::pre_stop(&spec),
            spec,
        }
    }
}

/// A pod's spec.
#[derive(Clone, Debug, PartialEq)]
pub struct PodSpecView {
    /// The pod's namespace.
    pub namespace: String,
    /// The pod's name.
    pub name: String,
    /// Digest of the manifest; changes with every change of it.
    pub digest: String,
    /// The pod's `restartPolicy`.
    pub restart_policy: RestartPolicy,
    /// The pod's `hostNetwork`.
    pub host_network: bool,
    /// Whether it is a static, mirror or high-priority pod.
    pub critical: bool,
    /// Whether its QoS class is BestEffort.
    pub best_effort: bool,
    /// Whether it tolerates the node's memory pressure.
    pub tolerates_memory_pressure: bool,
    /// The pod's `terminationGracePeriodSeconds`.
    pub grace_period: u32,
    /// `deletionGracePeriodSeconds`, once the pod is deleted.
    pub deletion_grace_period: Option<u32>,
    /// The pod's `activeDeadlineSeconds`.
    pub active_deadline: Option<Duration>,
    /// The whole manifest.
    pub manifest: Manifest,
    /// The share of the node that it requests.
    pub request: Arc<PodRequest>,
    /// Resources of the pod and its containers.
    pub allocation: Arc<PodAllocation>,
    /// Why a sysctl of the pod is forbidden on this node.
    pub forbidden_sysctl: Option<String>,
    /// Whether the pod has volumes.
    pub has_volumes: bool,
    /// Init containers, then regular, then ephemeral ones, each in the manifest's order.
    pub containers: Vec<ContainerSpecView>,
}

impl PodSpecView {
    /// Extracts what decisions need from a manifest.
    pub fn from_manifest(manifest: &Manifest, allowed_sysctls: &[String]) -> Self {
        let spec = manifest.spec();
        let seconds = |period: Duration| u32::try_from(period.as_secs()).unwrap_or(u32::MAX);
        let deadline = spec
            .active_deadline_seconds
            .and_then(|s| u64::try_from(s).ok());
        let deleting = manifest.deletion_timestamp().is_some();
        let containers = manifest.shared_containers();
        let containers = containers.map(|(kind, c)| ContainerSpecView::new(kind, c));
        let mut containers: Vec<_> = containers.collect();
        // Kept as long as the pod: a vector that grows has room for four.
        containers.shrink_to_fit();
        PodSpecView {
            namespace: manifest.namespace().to_owned(),
            name: manifest.name().to_owned(),
            digest: manifest.digest().to_owned(),
            restart_policy: manifest.restart_policy(),
            host_network: manifest.host_network(),
            critical: manifest.is_critical(),
            best_effort: qos::class(manifest.spec()) == qos::QosClass::BestEffort,
            tolerates_memory_pressure: spec
                .tolerations
                .iter()
                .flatten()
                .any(tolerates_memory_pressure),
            grace_period: seconds(manifest.termination_grace()),
            deletion_grace_period: deleting.then(|| {
                seconds(
                    manifest
                        .deletion_grace()
                        .unwrap_or_else(|| manifest.termination_grace()),
                )
            }),
            active_deadline: deadline.map(Duration::from_secs),
            manifest: manifest.clone(),
            request: Arc::new(PodRequest::from_manifest(manifest)),
            allocation: Arc::new(PodAllocation::from_spec(spec)),
            forbidden_sysctl: sysctl::forbidden_reason(spec, allowed_sysctls),
            has_volumes: spec
                .volumes
                .as_ref()
                .is_some_and(|volumes| !volumes.is_empty()),
            containers,
        }
    }

    /// Replaces the manifest by another one with the same content.
    pub fn set_manifest(&mut self, manifest: Manifest) {
        for container in &mut self.containers {
            container.spec.set_manifest(manifest.clone());
        }
        self.manifest = manifest;
    }

    /// `name_namespace`. Two pods of one full name never run at the same time.
    pub fn full_name(&self) -> String {
        polylet_model::names::full_name(&self.name, &self.namespace)
    }

    /// Init containers and sidecars, in order.
    pub fn init_containers(&self) -> impl DoubleEndedIterator<Item = &ContainerSpecView> {
        self.containers
            .iter()
            .filter(|c| matches!(c.kind, ContainerKind::Init | ContainerKind::Sidecar))
    }

    /// Containers of one kind, in order.
    pub fn containers_of_kind(
        &self,
        kind: ContainerKind,
    ) -> impl DoubleEndedIterator<Item = &ContainerSpecView> {
        self.containers.iter().filter(move |c| c.kind == kind)
    }

    /// Whether a container requests devices.
    pub fn requests_devices(&self) -> bool {
        let mut containers = self.containers.iter();
        containers.any(|container| !container.device_limits.is_empty())
    }

    /// A container by name.
    pub fn container(&self, name: &str) -> Option<&ContainerSpecView> {
        self.containers.iter().find(|c| c.name == name)
    }

    /// The grace period of a normal termination, in seconds.
    pub fn termination_grace_period(&self) -> u32 {
        self.deletion_grace_period.unwrap_or(self.grace_period)
    }
}

fn tolerates_memory_pressure(toleration: &Toleration) -> bool {
    const TAINT: &str = "node.kubernetes.io/memory-pressure";
    let key = toleration.key.as_deref().unwrap_or_default();
    let exists = toleration.operator.as_deref() == Some("Exists");
    let effect = toleration.effect.as_deref().unwrap_or_default();
    let value = toleration.value.as_deref().unwrap_or_default();
    (key == TAINT || (key.is_empty() && exists))
        && (effect.is_empty() || effect == "NoSchedule")
        && (exists || value.is_empty())
}
