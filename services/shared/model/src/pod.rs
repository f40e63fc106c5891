//! A pod's manifest: the parsed API object with its original JSON.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::constants::{SYSTEM_CRITICAL_PRIORITY, pod_annotation};
use crate::ids::PodUid;
use crate::names;

mod container;
mod decoded;
mod digest;
mod recently_parsed;
mod shared_container;

use container::kind_of_init;
pub use container::{ContainerKind, RestartPolicy, as_container, is_sidecar};
use decoded::DecodedManifest;
pub use digest::digest;
use digest::digest_of;
pub use recently_parsed::RecentlyParsed;
pub use shared_container::SharedContainer;

/// JSON that is not a usable pod.
#[derive(Debug, thiserror::Error)]
pub enum ManifestParseError {
    /// Invalid JSON, or a field of a wrong type.
    #[error("parsing the manifest as v1.Pod")]
    Parse(#[source] serde_json::Error),
    /// A required field is missing.
    #[error("the manifest has no {0}")]
    Missing(&'static str),
    /// The pod could not be serialized.
    #[error("serializing the pod as JSON")]
    Write(#[source] serde_json::Error),
}

/// The desired state of a pod. Cheap to clone.
#[derive(Clone)]
pub struct Manifest(Arc<ManifestInner>);

struct ManifestInner {
    name: String,
    namespace: String,
    uid: PodUid,
    raw: Bytes,
    /// Computed from `raw` on first use: most readers of a manifest need none.
    digest: OnceLock<String>,
    /// Several times as large as `raw`, from which it follows.
    parsed: OnceLock<Box<DecodedManifest>>,
}

impl Manifest {
    /// Parses a pod and copies its JSON. Unknown fields remain in [`Manifest::raw`].
    pub fn from_json(raw: &[u8]) -> Result<Self, ManifestParseError> {
        let pod: Pod = serde_json::from_slice(raw).map_err(ManifestParseError::Parse)?;
        // The bytes of a gRPC message share its buffer, which would stay allocated.
        Self::build(pod, Bytes::copy_from_slice(raw), OnceLock::new())
    }

    /// The same without a copy, for bytes that have a buffer of their own.
    pub fn from_bytes(raw: Bytes) -> Result<Self, ManifestParseError> {
        let pod: Pod = serde_json::from_slice(&raw).map_err(ManifestParseError::Parse)?;
        Self::build(pod, raw, OnceLock::new())
    }

    /// The same with the digest that the sender has computed, so that the bytes are parsed once;
    /// empty if it has computed none.
    pub fn from_bytes_with_digest(raw: Bytes, digest: &str) -> Result<Self, ManifestParseError> {
        let pod: Pod = serde_json::from_slice(&raw).map_err(ManifestParseError::Parse)?;
        let known = OnceLock::new();
        if !digest.is_empty() {
            let _ = known.set(digest.to_owned());
        }
        Self::build(pod, raw, known)
    }

    /// A manifest from a parsed pod.
    pub fn from_pod(pod: Pod) -> Result<Self, ManifestParseError> {
        let value = serde_json::to_value(&pod).map_err(ManifestParseError::Write)?;
        let raw = serde_json::to_vec(&value).map_err(ManifestParseError::Write)?;
        Self::build(pod, raw.into(), OnceLock::new())
    }

    fn build(pod: Pod, raw: Bytes, digest: OnceLock<String>) -> Result<Self, ManifestParseError> {
        let required = |field: &Option<String>, name| match field.as_deref() {
            None | Some("") => Err(ManifestParseError::Missing(name)),
            Some(text) => Ok(text.to_owned()),
        };
        let name = required(&pod.metadata.name, "metadata.name")?;
        let namespace = required(&pod.metadata.namespace, "metadata.namespace")?;
        let uid = required(&pod.metadata.uid, "metadata.uid")?;
        let spec = pod.spec.ok_or(ManifestParseError::Missing("spec"))?;
        Ok(Self(Arc::new(ManifestInner {
            name,
            namespace,
            uid: PodUid::from(uid),
            raw,
            digest,
            parsed: OnceLock::from(Box::new(DecodedManifest::new(pod.metadata, spec))),
        })))
    }

    fn parsed(&self) -> &DecodedManifest {
        self.0.parsed.get_or_init(|| {
            // It was parsed before, so this cannot fail.
            let pod: Pod = serde_json::from_slice(&self.0.raw).unwrap_or_default();
            let spec = pod.spec.unwrap_or_default();
            Box::new(DecodedManifest::new(pod.metadata, spec))
        })
    }

    /// The same manifest, which is parsed when it is next read. For pods at rest: the parsed objects take
    /// several times the memory of their JSON.
    pub fn unparsed(&self) -> Self {
        if !self.is_parsed() {
            return self.clone();
        }
        Self(Arc::new(ManifestInner {
            name: self.0.name.clone(),
            namespace: self.0.namespace.clone(),
            uid: self.0.uid.clone(),
            raw: self.0.raw.clone(),
            digest: self.0.digest.clone(),
            parsed: OnceLock::new(),
        }))
    }

    /// Whether the parsed objects are in memory.
    pub fn is_parsed(&self) -> bool {
        self.0.parsed.get().is_some()
    }

    /// The manifest with a changed spec and the digest of the original.
    pub(crate) fn with_spec(&self, change: impl FnOnce(&mut PodSpec)) -> Self {
        let mut pod = self.to_pod();
        if let Some(spec) = &mut pod.spec {
            change(spec);
        }
        let raw = serde_json::to_vec(&pod).map_or_else(|_| self.0.raw.clone(), Bytes::from);
        let digest = OnceLock::from(self.digest().to_owned());
        // The required fields are all there, so this cannot fail.
        Self::build(pod, raw, digest).unwrap_or_else(|_| self.clone())
    }

    /// The API object without a status.
    pub fn to_pod(&self) -> Pod {
        Pod {
            metadata: self.parsed().metadata.clone(),
            spec: Some(self.parsed().spec.clone()),
            status: None,
        }
    }

    /// The pod's metadata.
    pub fn metadata(&self) -> &ObjectMeta {
        &self.parsed().metadata
    }

    /// The pod's spec.
    pub fn spec(&self) -> &PodSpec {
        &self.parsed().spec
    }

    /// The original JSON, shared.
    pub fn raw(&self) -> &Bytes {
        &self.0.raw
    }

    /// A hash of the manifest, to detect changes: of all but the status, the API server's bookkeeping
    /// and the annotations that the node writes. Stable across restarts and versions.
    pub fn digest(&self) -> &str {
        self.0.digest.get_or_init(|| {
            // Valid JSON, as it has been parsed as a pod.
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
        &self.0.name
    }

    /// The pod's namespace.
    pub fn namespace(&self) -> &str {
        &self.0.namespace
    }

    /// `<name>_<namespace>`.
    pub fn full_name(&self) -> String {
        names::full_name(self.name(), self.namespace())
    }

    /// The generation of the spec, for pods from the API server.
    pub fn generation(&self) -> Option<i64> {
        self.parsed().metadata.generation
    }

    /// One of the pod's annotations.
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.parsed()
            .metadata
            .annotations
            .as_ref()?
            .get(key)
            .map(String::as_str)
    }

    /// The regular containers.
    pub fn containers(&self) -> &[Container] {
        &self.parsed().spec.containers
    }

    /// The init containers, sidecars among them, in the order in which they start.
    pub fn init_containers(&self) -> &[Container] {
        self.parsed()
            .spec
            .init_containers
            .as_deref()
            .unwrap_or_default()
    }

    /// The ephemeral containers.
    pub fn ephemeral_containers(&self) -> &[Container] {
        &self.parsed().ephemeral
    }

    /// All containers with their kinds: init and sidecars, then regular, then ephemeral.
    pub fn all_containers(&self) -> impl Iterator<Item = (ContainerKind, &Container)> {
        let init = self.init_containers().iter();
        let init = init.map(|container| (kind_of_init(container), container));
        let regular = self
            .containers()
            .iter()
            .map(|container| (ContainerKind::Regular, container));
        let ephemeral = self
            .parsed()
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

    /// The target of an ephemeral container, if it has one.
    pub fn ephemeral_target(&self, name: &str) -> Option<&str> {
        let list = self
            .parsed()
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
        RestartPolicy::parse(self.parsed().spec.restart_policy.as_deref())
    }

    /// The restart policy of a container: its own, or else the pod's.
    pub fn container_restart_policy(&self, container: &Container) -> RestartPolicy {
        match container.restart_policy.as_deref() {
            Some(own) => RestartPolicy::parse(Some(own)),
            None => self.restart_policy(),
        }
    }

    /// The time that the containers have to stop.
    pub fn termination_grace(&self) -> Duration {
        let seconds = self
            .parsed()
            .spec
            .termination_grace_period_seconds
            .unwrap_or(30);
        Duration::from_secs(u64::try_from(seconds).unwrap_or(0))
    }

    /// When the pod's deletion was requested.
    pub fn deletion_timestamp(&self) -> Option<Timestamp> {
        self.parsed()
            .metadata
            .deletion_timestamp
            .as_ref()
            .map(|time| time.0)
    }

    /// The grace period of the pod's deletion.
    pub fn deletion_grace(&self) -> Option<Duration> {
        let seconds = self.parsed().metadata.deletion_grace_period_seconds?;
        Some(Duration::from_secs(u64::try_from(seconds).unwrap_or(0)))
    }

    /// When the pod was created at the API server.
    pub fn creation_timestamp(&self) -> Option<Timestamp> {
        self.parsed()
            .metadata
            .creation_timestamp
            .as_ref()
            .map(|time| time.0)
    }

    /// Whether the pod uses the host's network.
    pub fn host_network(&self) -> bool {
        self.parsed().spec.host_network.unwrap_or(false)
    }

    /// The pod's source, from its annotation.
    pub fn source(&self) -> Option<&str> {
        self.annotation(pod_annotation::CONFIG_SOURCE)
    }

    /// When this node first saw the pod, from its annotation.
    pub fn seen_at(&self) -> Option<Timestamp> {
        self.annotation(pod_annotation::CONFIG_SEEN)?.parse().ok()
    }

    /// Whether the pod came from a file or a URL.
    pub fn is_static(&self) -> bool {
        self.source()
            .is_some_and(|source| source != pod_annotation::source::API)
    }

    /// Whether the pod is the API server's mirror of a static pod.
    pub fn is_mirror(&self) -> bool {
        self.annotation(pod_annotation::CONFIG_MIRROR).is_some()
    }

    /// The pod's priority.
    pub fn priority(&self) -> i32 {
        self.parsed().spec.priority.unwrap_or(0)
    }

    /// Whether the pod is never evicted and may preempt others.
    pub fn is_critical(&self) -> bool {
        self.is_static() || self.is_mirror() || self.priority() >= SYSTEM_CRITICAL_PRIORITY
    }
}

impl PartialEq for Manifest {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0.raw == other.0.raw
    }
}

impl Eq for Manifest {}

impl fmt::Debug for Manifest {
    // Only names, as the environment may contain secrets.
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
