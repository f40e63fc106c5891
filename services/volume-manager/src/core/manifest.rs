//! Reads a pod's manifest for what it asks of its volumes.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1 as api;
use k8s_openapi::api::core::v1::Pod;
use polylet_model::constants::pod_annotation;
use serde::Deserialize;
use serde::de::IgnoredAny;
use thiserror::Error;

use super::csi::{ForPod, Inline};
use super::downward;
use super::facts::CsiSource;
use super::layout;
use super::objects::{ObjectKey, ObjectKind};
use super::plain;
use super::spec::{
    Allocatable, ClaimSpec, FilesSpec, Item, Medium, ObjectSource, PodName, PodSpec, SetUp, Source,
    Used, Volume, Wants,
};
use super::usage::{least, pod_memory_limit, used};

/// Why a manifest cannot be read.
#[derive(Debug, Error)]
pub enum ManifestError {
    /// It is not a `v1.Pod`.
    #[error("the manifest is not a v1.Pod")]
    NotAPod(#[source] serde_json::Error),
    /// Its group for volumes is no group.
    #[error("spec.securityContext.fsGroup: {0} is not a group id")]
    FsGroup(i64),
}

/// The names of each volume's fields: k8s-openapi leaves out a source that it does not know, and
/// a volume without a source is an emptyDir.
#[derive(Deserialize)]
struct Raw {
    spec: Option<RawSpec>,
}

#[derive(Deserialize)]
struct RawSpec {
    volumes: Option<Vec<BTreeMap<String, IgnoredAny>>>,
}

/// What the pod asks for, from its JSON.
pub fn read(json: &[u8], node: Allocatable) -> Result<PodSpec, ManifestError> {
    let pod: Pod = serde_json::from_slice(json).map_err(ManifestError::NotAPod)?;
    let raw: Raw = serde_json::from_slice(json).map_err(ManifestError::NotAPod)?;
    let fields = raw.spec.and_then(|spec| spec.volumes).unwrap_or_default();
    let Some(spec) = &pod.spec else {
        return Ok(PodSpec::default());
    };
    let gid = match spec
        .security_context
        .as_ref()
        .and_then(|context| context.fs_group)
    {
        Some(gid) => Some(u32::try_from(gid).map_err(|_| ManifestError::FsGroup(gid))?),
        None => None,
    };
    let memory = least(
        pod_memory_limit(spec),
        Some(node.memory).filter(|bytes| *bytes > 0),
    );
    let annotations = pod.metadata.annotations.as_ref();
    let source = annotations.and_then(|all| all.get(pod_annotation::CONFIG_SOURCE));
    let reader = Reader {
        pod: &pod,
        node,
        gid,
        memory,
        cluster: source.is_none_or(|source| source == "api"),
    };
    let used = used(spec);
    let mut volumes = Vec::new();
    let mut seen = BTreeSet::new();
    for (volume, fields) in spec.volumes.iter().flatten().zip(fields) {
        // The runtime mounts images: there is nothing here to do.
        if volume.image.is_some() {
            continue;
        }
        let how = used.get(volume.name.as_str());
        if let Some(how) = how.filter(|_| seen.insert(volume.name.as_str())) {
            let mut wants = reader.wants(volume, &fields).unwrap_or_else(Wants::Refused);
            if let Wants::Claim(claim) = &mut wants {
                claim.used = *how;
            }
            volumes.push(Volume {
                name: volume.name.clone(),
                wants,
            });
        }
    }
    Ok(PodSpec { volumes })
}

/// A file mode that the API allows.
pub(super) fn mode(mode: i32) -> Result<u32, String> {
    let given = u32::try_from(mode).ok().filter(|mode| *mode <= 0o777);
    given.ok_or_else(|| format!("mode {mode} is not between 0 and 0777"))
}

pub(super) fn default_mode(given: Option<i32>) -> Result<u32, String> {
    mode(given.unwrap_or(0o644))
}

fn items(items: Option<&Vec<api::KeyToPath>>) -> Result<Vec<Item>, String> {
    let item = |item: &api::KeyToPath| {
        let mode = item.mode.map(mode).transpose()?;
        Ok(Item {
            key: item.key.clone(),
            path: item.path.clone(),
            mode,
        })
    };
    items.into_iter().flatten().map(item).collect()
}

impl Reader<'_> {
    fn empty_dir(&self, source: &api::EmptyDirVolumeSource) -> Result<SetUp, String> {
        let medium = plain::medium(source, self.pod, self.memory)?;
        Ok(SetUp::EmptyDir {
            medium,
            gid: self.gid,
        })
    }
}

/// Reads the volumes of one pod.
pub(super) struct Reader<'a> {
    pub(super) pod: &'a Pod,
    node: Allocatable,
    pub(super) gid: Option<u32>,
    /// The bound of volumes in memory.
    memory: Option<u64>,
    /// The pod comes from the API server, and refers to objects of the cluster.
    pub(super) cluster: bool,
}

const SUPPORTED: &str = "emptyDir, hostPath, configMap, secret, downwardAPI, projected, persistentVolumeClaim, ephemeral, csi";

impl Reader<'_> {
    fn wants(
        &self,
        volume: &api::Volume,
        fields: &BTreeMap<String, IgnoredAny>,
    ) -> Result<Wants, String> {
        let name = &volume.name;
        if !layout::is_safe_volume_name(name) {
            return Err(format!(
                "{name:?} is not a volume name: it must be a DNS label"
            ));
        }
        let sources: Vec<_> = fields.keys().filter(|field| *field != "name").collect();
        if sources.len() > 1 {
            return Err(format!(
                "volume \"{name}\" has more than one source: {sources:?}"
            ));
        }
        let in_memory = Medium::Memory { size: self.memory };
        if let Some(source) = &volume.empty_dir {
            return self.empty_dir(source).map(Wants::Plain);
        }
        if let Some(source) = &volume.host_path {
            return plain::host_path(source).map(Wants::Plain);
        }
        if let Some(source) = &volume.config_map {
            let object = self.object(
                ObjectKind::ConfigMap,
                &source.name,
                source.items.as_ref(),
                default_mode(source.default_mode)?,
                source.optional,
            )?;
            return Ok(self.files(layout::CONFIG_MAP, Medium::Disk, vec![object]));
        }
        if let Some(source) = &volume.secret {
            let object = self.object(
                ObjectKind::Secret,
                source.secret_name.as_deref().unwrap_or_default(),
                source.items.as_ref(),
                default_mode(source.default_mode)?,
                source.optional,
            )?;
            return Ok(self.files(layout::SECRET, in_memory, vec![object]));
        }
        if let Some(source) = &volume.downward_api {
            let mode = default_mode(source.default_mode)?;
            let ready = self.downward(source.items.as_ref(), mode);
            return Ok(self.files(layout::DOWNWARD_API, in_memory, vec![ready]));
        }
        if let Some(source) = &volume.projected {
            return Ok(self.files(layout::PROJECTED, in_memory, self.projected(name, source)?));
        }
        if let Some(source) = &volume.persistent_volume_claim {
            let read_only = source.read_only.unwrap_or(false);
            return self.claim(name, &source.claim_name, false, read_only);
        }
        if volume.ephemeral.is_some() {
            let pod = self.pod.metadata.name.as_deref().unwrap_or_default();
            return self.claim(name, &format!("{pod}-{name}"), true, false);
        }
        if let Some(source) = &volume.csi {
            return self.inline(name, source);
        }
        match sources.first() {
            // The API's default.
            None => self
                .empty_dir(&api::EmptyDirVolumeSource::default())
                .map(Wants::Plain),
            Some(other) => Err(format!(
                "volume \"{name}\" is of type {other}, which this node does not support: supported are {SUPPORTED}"
            )),
        }
    }

    fn claim(
        &self,
        volume: &str,
        claim: &str,
        made_for_pod: bool,
        read_only: bool,
    ) -> Result<Wants, String> {
        if !self.cluster {
            return Err(format!(
                "volume \"{volume}\" needs a claim, which only a pod of the API server can have"
            ));
        }
        Ok(Wants::Claim(ClaimSpec {
            key: ObjectKey {
                kind: ObjectKind::Claim,
                namespace: self.namespace(),
                name: claim.to_owned(),
                cluster: true,
            },
            made_for_pod,
            read_only,
            used: Used::default(),
            for_pod: self.for_pod(),
        }))
    }

    fn inline(&self, volume: &str, source: &api::CSIVolumeSource) -> Result<Wants, String> {
        if !self.cluster {
            return Err(format!(
                "volume \"{volume}\" is a CSI driver's, which only a pod of the API server can have"
            ));
        }
        let secret = source.node_publish_secret_ref.as_ref();
        let source = CsiSource {
            driver: source.driver.clone(),
            fs_type: source.fs_type.clone().unwrap_or_default(),
            read_only: source.read_only.unwrap_or(false),
            attributes: source.volume_attributes.clone().unwrap_or_default(),
            publish_secret: secret.map(|secret| (self.namespace(), secret.name.clone())),
            ..CsiSource::default()
        };
        let for_pod = self.for_pod();
        Ok(Wants::Inline(Box::new(Inline { source, for_pod })))
    }

    /// The pod, as claims and drivers are told of it.
    fn for_pod(&self) -> ForPod {
        let metadata = &self.pod.metadata;
        ForPod {
            pod: PodName {
                uid: metadata.uid.clone().unwrap_or_default(),
                namespace: self.namespace(),
                name: metadata.name.clone().unwrap_or_default(),
            },
            service_account: self.service_account(),
            gid: self.gid,
            on_root_mismatch: self.on_root_mismatch(),
        }
    }

    fn on_root_mismatch(&self) -> bool {
        let spec = self.pod.spec.as_ref();
        let context = spec.and_then(|spec| spec.security_context.as_ref());
        let policy = context.and_then(|context| context.fs_group_change_policy.as_deref());
        policy == Some("OnRootMismatch")
    }

    /// The name of the pod's service account.
    pub(super) fn service_account(&self) -> String {
        let spec = self.pod.spec.as_ref();
        let account = spec.and_then(|spec| spec.service_account_name.clone());
        let account = account.filter(|name| !name.is_empty());
        account.unwrap_or_else(|| "default".to_owned())
    }

    fn files(&self, plugin: &'static str, medium: Medium, sources: Vec<Source>) -> Wants {
        Wants::Files(FilesSpec {
            plugin,
            medium,
            gid: self.gid,
            sources,
        })
    }

    /// The pod's namespace.
    pub(super) fn namespace(&self) -> String {
        let namespace = self.pod.metadata.namespace.clone();
        namespace.unwrap_or_else(|| "default".into())
    }

    pub(super) fn object(
        &self,
        kind: ObjectKind,
        name: &str,
        keys: Option<&Vec<api::KeyToPath>>,
        mode: u32,
        optional: Option<bool>,
    ) -> Result<Source, String> {
        if name.is_empty() {
            return Err(format!("the {} has no name", kind.word()));
        }
        Ok(Source::Object(ObjectSource {
            key: ObjectKey {
                kind,
                namespace: self.namespace(),
                name: name.into(),
                cluster: self.cluster,
            },
            items: items(keys)?,
            mode,
            optional: optional.unwrap_or(false),
        }))
    }

    pub(super) fn downward(
        &self,
        items: Option<&Vec<api::DownwardAPIVolumeFile>>,
        mode: u32,
    ) -> Source {
        let items = items.map(Vec::as_slice).unwrap_or_default();
        Source::Ready(downward::files(items, self.pod, self.node, mode))
    }
}
