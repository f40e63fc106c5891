//! What a manifest says, as far as decisions need it.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Toleration;
use polylet_model::hook::Hook;
use polylet_model::pod::Part;
use polylet_model::probe::{self, ProbeKind};
use polylet_model::{Allocation, ContainerKind, Manifest, RestartPolicy, hash, qos, sysctl};

use super::room::Demand;

/// When the image is asked of its registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pull {
    /// At each start.
    Always,
    /// When the node does not have it.
    IfAbsent,
    /// Not at all.
    Never,
}

impl Pull {
    /// The policy by its name; the manifest's defaults have filled it in.
    pub fn of(name: Option<&str>) -> Self {
        match name {
            Some("Always") => Pull::Always,
            Some("Never") => Pull::Never,
            _ => Pull::IfAbsent,
        }
    }
}

/// One container of the manifest.
#[derive(Clone, Debug, PartialEq)]
pub struct WantedContainer {
    /// Its name in the pod.
    pub name: String,
    /// Its part in the pod.
    pub kind: ContainerKind,
    /// Hash of what makes it a different container, as its annotation has it.
    pub hash: String,
    /// The image as the manifest says it.
    pub image: String,
    /// When the image is pulled.
    pub pull: Pull,
    /// Whether something else waits for its startup probe.
    pub startup_probe: bool,
    /// Grace after a failed startup probe, if the probe has its own.
    pub startup_grace: Option<u32>,
    /// Grace after a failed liveness probe, if the probe has its own.
    pub liveness_grace: Option<u32>,
    /// What follows its start.
    pub post_start: Option<Hook>,
    /// What comes before its stop.
    pub pre_stop: Option<Hook>,
    /// The container as the manifest has it.
    pub spec: Part,
}

impl WantedContainer {
    fn of(kind: ContainerKind, spec: Part) -> Self {
        let grace = |kind| {
            let probe = probe::raw(&spec, kind)?;
            u32::try_from(probe.termination_grace_period_seconds?).ok()
        };
        WantedContainer {
            name: spec.name.clone(),
            kind,
            hash: hash::container_annotation(&spec),
            image: spec.image.clone().unwrap_or_default(),
            pull: Pull::of(spec.image_pull_policy.as_deref()),
            startup_probe: probe::of(kind, &spec, ProbeKind::Startup).is_some(),
            startup_grace: grace(ProbeKind::Startup),
            liveness_grace: grace(ProbeKind::Liveness),
            post_start: Hook::post_start(&spec),
            pre_stop: Hook::pre_stop(&spec),
            spec,
        }
    }
}

/// A pod as decisions see it.
#[derive(Clone, Debug, PartialEq)]
pub struct Wanted {
    /// The pod's namespace.
    pub namespace: String,
    /// The pod's name.
    pub name: String,
    /// Tells one state of the manifest from another.
    pub digest: String,
    /// The pod's restart policy.
    pub restart: RestartPolicy,
    /// Whether the pod shares the node's network.
    pub host_network: bool,
    /// Static, mirror and high-priority pods.
    pub critical: bool,
    /// No request and no limit at all.
    pub best_effort: bool,
    /// Tolerates the node's memory pressure.
    pub tolerates_memory_pressure: bool,
    /// `terminationGracePeriodSeconds`.
    pub grace: u32,
    /// The grace given at deletion, once the pod is being deleted.
    pub deletion_grace: Option<u32>,
    /// `activeDeadlineSeconds`.
    pub active_deadline: Option<Duration>,
    /// All of it.
    pub manifest: Manifest,
    /// What it asks of the node.
    pub demand: Arc<Demand>,
    /// Its resources, the pod's own and each container's.
    pub allocation: Arc<Allocation>,
    /// The kernel parameter of the pod that this node forbids, in words.
    pub forbidden_sysctl: Option<String>,
    /// Whether the pod has volumes that must be mounted first.
    pub has_volumes: bool,
    /// Init containers, then main, then ephemeral ones, each in the manifest's order.
    pub containers: Vec<WantedContainer>,
}

impl Wanted {
    /// Takes from a manifest what decisions need.
    pub fn of(manifest: &Manifest, allowed_sysctls: &[String]) -> Self {
        let spec = manifest.spec();
        let seconds = |span: Duration| u32::try_from(span.as_secs()).unwrap_or(u32::MAX);
        let deadline = spec
            .active_deadline_seconds
            .and_then(|s| u64::try_from(s).ok());
        let deleting = manifest.deletion_timestamp().is_some();
        Wanted {
            namespace: manifest.namespace().to_owned(),
            name: manifest.name().to_owned(),
            digest: manifest.digest().to_owned(),
            restart: manifest.restart_policy(),
            host_network: manifest.host_network(),
            critical: manifest.is_critical(),
            best_effort: qos::class(manifest.spec()) == qos::QosClass::BestEffort,
            tolerates_memory_pressure: spec
                .tolerations
                .iter()
                .flatten()
                .any(tolerates_memory_pressure),
            grace: seconds(manifest.termination_grace()),
            deletion_grace: deleting.then(|| {
                seconds(
                    manifest
                        .deletion_grace()
                        .unwrap_or_else(|| manifest.termination_grace()),
                )
            }),
            active_deadline: deadline.map(Duration::from_secs),
            manifest: manifest.clone(),
            demand: Arc::new(Demand::of(manifest)),
            allocation: Arc::new(Allocation::of(spec)),
            forbidden_sysctl: sysctl::forbidden(spec, allowed_sysctls),
            has_volumes: spec
                .volumes
                .as_ref()
                .is_some_and(|volumes| !volumes.is_empty()),
            containers: manifest
                .parts()
                .map(|(kind, c)| WantedContainer::of(kind, c))
                .collect(),
        }
    }

    /// "name_namespace": two pods of one full name never overlap.
    pub fn full_name(&self) -> String {
        polylet_model::names::full_name(&self.name, &self.namespace)
    }

    /// Init containers and sidecars in their order.
    pub fn inits(&self) -> impl DoubleEndedIterator<Item = &WantedContainer> {
        self.containers
            .iter()
            .filter(|c| matches!(c.kind, ContainerKind::Init | ContainerKind::Sidecar))
    }

    /// Containers of one kind in their order.
    pub fn of_kind(
        &self,
        kind: ContainerKind,
    ) -> impl DoubleEndedIterator<Item = &WantedContainer> {
        self.containers.iter().filter(move |c| c.kind == kind)
    }

    /// A container by name.
    pub fn container(&self, name: &str) -> Option<&WantedContainer> {
        self.containers.iter().find(|c| c.name == name)
    }

    /// The grace period of an ordinary end of the pod.
    pub fn stop_grace(&self) -> u32 {
        self.deletion_grace.unwrap_or(self.grace)
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
