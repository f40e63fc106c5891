//! A pod's manifest: the API object beside the JSON that it came in.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;

use crate::constants::{SYSTEM_CRITICAL_PRIORITY, pod_annotation};
use crate::ids::PodUid;
use crate::{hash, names};

mod ephemeral;
mod part;

pub use ephemeral::as_container;
pub use part::Part;

/// Why some JSON is no pod that this node can work with.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// Not JSON, or not in the shape of a pod.
    #[error("the manifest is not a v1.Pod")]
    Parse(#[source] serde_json::Error),
    /// A field that everything needs is missing.
    #[error("the manifest has no {0}")]
    Missing(&'static str),
    /// The pod could not be written as JSON.
    #[error("the pod cannot be written as JSON")]
    Write(#[source] serde_json::Error),
}

/// When a container is started again after it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RestartPolicy {
    /// Whatever its exit code.
    Always,
    /// After an exit code other than 0.
    OnFailure,
    /// Not at all.
    Never,
}

impl RestartPolicy {
    /// The policy that a word of the API stands for; what is unknown or unset is `Always`.
    pub fn parse(text: Option<&str>) -> Self {
        match text {
            Some("OnFailure") => Self::OnFailure,
            Some("Never") => Self::Never,
            _ => Self::Always,
        }
    }
}

/// What part a container plays in its pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ContainerKind {
    /// Runs to its end before the next one starts.
    Init,
    /// An init container that keeps running beside the regular ones.
    Sidecar,
    /// What the pod is for.
    Regular,
    /// Added to a running pod by a person who looks into it.
    Ephemeral,
}

/// One pod as it should run. Cheap to clone.
#[derive(Clone)]
pub struct Manifest(Arc<Inner>);

struct Inner {
    metadata: ObjectMeta,
    spec: PodSpec,
    ephemeral: Vec<Container>,
    uid: PodUid,
    raw: Bytes,
    /// Out of `raw` when it is asked for: most of those who read a manifest never do.
    digest: OnceLock<String>,
}

impl Manifest {
    /// Reads a pod. Fields that this build does not know stay in [`Manifest::raw`].
    pub fn from_json(raw: &[u8]) -> Result<Self, ManifestError> {
        let pod: Pod = serde_json::from_slice(raw).map_err(ManifestError::Parse)?;
        // Copied: bytes of a message share a buffer with its neighbours, and would keep all of it.
        Self::build(pod, Bytes::copy_from_slice(raw), OnceLock::new())
    }

    /// The same of bytes that lie apart, and are kept and not copied.
    pub fn of_bytes(raw: Bytes) -> Result<Self, ManifestError> {
        let pod: Pod = serde_json::from_slice(&raw).map_err(ManifestError::Parse)?;
        Self::build(pod, raw, OnceLock::new())
    }

    /// Takes a pod as it is.
    pub fn from_pod(pod: Pod) -> Result<Self, ManifestError> {
        let value = serde_json::to_value(&pod).map_err(ManifestError::Write)?;
        let raw = serde_json::to_vec(&value).map_err(ManifestError::Write)?;
        Self::build(pod, raw.into(), OnceLock::new())
    }

    fn build(pod: Pod, raw: Bytes, digest: OnceLock<String>) -> Result<Self, ManifestError> {
        let given = |field: &Option<String>| field.as_deref().is_some_and(|text| !text.is_empty());
        if !given(&pod.metadata.name) {
            return Err(ManifestError::Missing("metadata.name"));
        }
        if !given(&pod.metadata.namespace) {
            return Err(ManifestError::Missing("metadata.namespace"));
        }
        if !given(&pod.metadata.uid) {
            return Err(ManifestError::Missing("metadata.uid"));
        }
        // Taken and not copied: a manifest stays as long as its pod does.
        let spec = pod.spec.ok_or(ManifestError::Missing("spec"))?;
        let metadata = pod.metadata;
        let uid = PodUid::from(metadata.uid.clone().unwrap_or_default());
        let ephemeral = spec
            .ephemeral_containers
            .iter()
            .flatten()
            .map(as_container)
            .collect();
        Ok(Self(Arc::new(Inner {
            metadata,
            spec,
            ephemeral,
            uid,
            raw,
            digest,
        })))
    }

    /// The same state of the manifest with another spec: its digest is the one that came.
    pub(crate) fn with_spec(&self, change: impl FnOnce(&mut PodSpec)) -> Self {
        let mut pod = self.to_pod();
        if let Some(spec) = &mut pod.spec {
            change(spec);
        }
        let raw = serde_json::to_vec(&pod).map_or_else(|_| self.0.raw.clone(), Bytes::from);
        let digest = OnceLock::from(self.digest().to_owned());
        // Nothing that a manifest needs is taken from it: it is built again.
        Self::build(pod, raw, digest).unwrap_or_else(|_| self.clone())
    }

    /// The API object without its status, as one.
    pub fn to_pod(&self) -> Pod {
        Pod {
            metadata: self.0.metadata.clone(),
            spec: Some(self.0.spec.clone()),
            status: None,
        }
    }

    /// Its metadata.
    pub fn metadata(&self) -> &ObjectMeta {
        &self.0.metadata
    }

    /// Its spec.
    pub fn spec(&self) -> &PodSpec {
        &self.0.spec
    }

    /// The JSON that it came in, shared and not copied.
    pub fn raw(&self) -> &Bytes {
        &self.0.raw
    }

    /// Tells a changed manifest from an unchanged one: all of it but the status,
    /// the bookkeeping of the API server and the annotations the node itself
    /// writes. Says nothing about order, and is the same after a restart.
    pub fn digest(&self) -> &str {
        self.0.digest.get_or_init(|| {
            // It has been read as a pod, so it is JSON.
            let value = serde_json::from_slice(&self.0.raw).unwrap_or_default();
            digest_of(value)
        })
    }

    /// The pod's uid.
    pub fn uid(&self) -> &PodUid {
        &self.0.uid
    }

    /// The pod's name.
    pub fn name(&self) -> &str {
        self.0.metadata.name.as_deref().unwrap_or_default()
    }

    /// The pod's namespace.
    pub fn namespace(&self) -> &str {
        self.0.metadata.namespace.as_deref().unwrap_or_default()
    }

    /// `<name>_<namespace>`.
    pub fn full_name(&self) -> String {
        names::full_name(self.name(), self.namespace())
    }

    /// The generation of the spec, when it came from the API server.
    pub fn generation(&self) -> Option<i64> {
        self.0.metadata.generation
    }

    /// One of the pod's annotations.
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.0
            .metadata
            .annotations
            .as_ref()?
            .get(key)
            .map(String::as_str)
    }

    /// The regular containers.
    pub fn containers(&self) -> &[Container] {
        &self.0.spec.containers
    }

    /// The init containers, sidecars among them, in the order in which they start.
    pub fn init_containers(&self) -> &[Container] {
        self.0.spec.init_containers.as_deref().unwrap_or_default()
    }

    /// The ephemeral containers.
    pub fn ephemeral_containers(&self) -> &[Container] {
        &self.0.ephemeral
    }

    /// Every container with the part it plays: init and sidecars, then regular, then ephemeral.
    pub fn all_containers(&self) -> impl Iterator<Item = (ContainerKind, &Container)> {
        let init = self.init_containers().iter();
        let init = init.map(|container| (kind_of_init(container), container));
        let regular = self
            .containers()
            .iter()
            .map(|container| (ContainerKind::Regular, container));
        let ephemeral = self
            .0
            .ephemeral
            .iter()
            .map(|container| (ContainerKind::Ephemeral, container));
        init.chain(regular).chain(ephemeral)
    }

    /// One container by its name.
    pub fn container(&self, name: &str) -> Option<(ContainerKind, &Container)> {
        self.all_containers()
            .find(|(_, container)| container.name == name)
    }

    /// The target of an ephemeral container, if it names one.
    pub fn ephemeral_target(&self, name: &str) -> Option<&str> {
        let list = self
            .0
            .spec
            .ephemeral_containers
            .as_deref()
            .unwrap_or_default();
        list.iter()
            .find(|c| c.name == name)?
            .target_container_name
            .as_deref()
            .filter(|t| !t.is_empty())
    }

    /// Whether a container of this pod is a sidecar.
    pub fn is_sidecar(&self, container: &Container) -> bool {
        is_sidecar(container)
            && self
                .init_containers()
                .iter()
                .any(|init| init.name == container.name)
    }

    /// The pod's restart policy.
    pub fn restart_policy(&self) -> RestartPolicy {
        RestartPolicy::parse(self.0.spec.restart_policy.as_deref())
    }

    /// A container's own restart policy, or else its pod's.
    pub fn restart_policy_of(&self, container: &Container) -> RestartPolicy {
        match container.restart_policy.as_deref() {
            Some(own) => RestartPolicy::parse(Some(own)),
            None => self.restart_policy(),
        }
    }

    /// How long its containers may take to stop.
    pub fn termination_grace(&self) -> Duration {
        let seconds = self.0.spec.termination_grace_period_seconds.unwrap_or(30);
        Duration::from_secs(u64::try_from(seconds).unwrap_or(0))
    }

    /// When its deletion was asked for.
    pub fn deletion_timestamp(&self) -> Option<Timestamp> {
        self.0
            .metadata
            .deletion_timestamp
            .as_ref()
            .map(|time| time.0)
    }

    /// The grace period that its deletion gave.
    pub fn deletion_grace(&self) -> Option<Duration> {
        let seconds = self.0.metadata.deletion_grace_period_seconds?;
        Some(Duration::from_secs(u64::try_from(seconds).unwrap_or(0)))
    }

    /// When it was created at the API server.
    pub fn creation_timestamp(&self) -> Option<Timestamp> {
        self.0
            .metadata
            .creation_timestamp
            .as_ref()
            .map(|time| time.0)
    }

    /// Whether it lives in the host's network.
    pub fn host_network(&self) -> bool {
        self.0.spec.host_network.unwrap_or(false)
    }

    /// The source it came from, as its annotation says.
    pub fn source(&self) -> Option<&str> {
        self.annotation(pod_annotation::CONFIG_SOURCE)
    }

    /// When this node first saw it, as its annotation says.
    pub fn seen_at(&self) -> Option<Timestamp> {
        self.annotation(pod_annotation::CONFIG_SEEN)?.parse().ok()
    }

    /// Whether it came from a file or a URL.
    pub fn is_static(&self) -> bool {
        self.source()
            .is_some_and(|source| source != pod_annotation::source::API)
    }

    /// Whether it only stands for a static pod at the API server.
    pub fn is_mirror(&self) -> bool {
        self.annotation(pod_annotation::CONFIG_MIRROR).is_some()
    }

    /// The pod's priority.
    pub fn priority(&self) -> i32 {
        self.0.spec.priority.unwrap_or(0)
    }

    /// Whether it is never evicted and may take another one's room.
    pub fn is_critical(&self) -> bool {
        self.is_static() || self.is_mirror() || self.priority() >= SYSTEM_CRITICAL_PRIORITY
    }
}

/// Whether an init container keeps running beside the regular ones.
pub fn is_sidecar(init_container: &Container) -> bool {
    init_container.restart_policy.as_deref() == Some("Always")
}

fn kind_of_init(container: &Container) -> ContainerKind {
    match is_sidecar(container) {
        true => ContainerKind::Sidecar,
        false => ContainerKind::Init,
    }
}

/// See [`Manifest::digest`]; of a pod in its JSON form.
pub fn digest(pod: &Value) -> String {
    digest_of(pod.clone())
}

fn digest_of(mut pod: Value) -> String {
    if let Some(fields) = pod.as_object_mut() {
        fields.remove("status");
        if let Some(metadata) = fields.get_mut("metadata").and_then(Value::as_object_mut) {
            for bookkeeping in ["managedFields", "resourceVersion", "selfLink"] {
                metadata.remove(bookkeeping);
            }
            if let Some(annotations) = metadata
                .get_mut("annotations")
                .and_then(Value::as_object_mut)
            {
                annotations.remove(pod_annotation::CONFIG_SOURCE);
                annotations.remove(pod_annotation::CONFIG_MIRROR);
                annotations.remove(pod_annotation::CONFIG_SEEN);
                if annotations.is_empty() {
                    metadata.remove("annotations");
                }
            }
        }
    }
    // Maps of serde_json are sorted, so equal content is equal text.
    format!("{:032x}", hash::fnv1a_128(pod.to_string().as_bytes()))
}

impl PartialEq for Manifest {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0.raw == other.0.raw
    }
}

impl Eq for Manifest {}

impl fmt::Debug for Manifest {
    // A manifest can hold secrets in its environment: only its names are shown.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Manifest({}/{} {} {})",
            self.namespace(),
            self.name(),
            self.uid(),
            self.digest()
        )
    }
}

#[cfg(test)]
mod tests;
