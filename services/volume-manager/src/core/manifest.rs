//! Parses a pod's manifest into the volumes that it asks for.

mod projected;
mod sources;

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1 as api;
use k8s_openapi::api::core::v1::Pod;
use polylet_model::constants::pod_annotation;
use serde_ignored::Path;
use thiserror::Error;

use self::sources::{UnknownSources, sources, unknown_source};
use super::api_objects::{self, CsiSource, PersistentVolume};
use super::blocked::Blocked;
use super::builtin::{self, Medium};
use super::csi_volume::InlineVolume;
use super::downward;
use super::files::{default_mode, mode};
use super::layout;
use super::mount_plan::MountPlan;
use super::pod::{PodContext, PodName};
use super::reference_key::{ObjectKind, ReferenceKey};
use super::spec::{
    Allocatable, ClaimSpec, FileSource, FilesSpec, KeyPath, MigratedVolume, ObjectSource,
    PodVolumeSpec, VolumeSource, VolumeSpec,
};
use super::usage::{VolumeUse, least, pod_memory_limit, used_volumes};

/// Why a manifest cannot be parsed.
#[derive(Debug, Error)]
pub enum ParsePodError {
    /// Not a `v1.Pod`.
    #[error("the manifest is not a v1.Pod")]
    NotAPod(#[source] serde_json::Error),
    /// `fsGroup` out of range.
    #[error("spec.securityContext.fsGroup: {0} is not a group id")]
    FsGroup(i64),
}

/// Parses the volumes of a pod from its JSON.
pub fn parse(json: &[u8], node: Allocatable) -> Result<PodVolumeSpec, ParsePodError> {
    let mut unknown = UnknownSources::new();
    let mut record = |path: Path<'_>| {
        if let Some((index, field)) = unknown_source(&path) {
            unknown.entry(index).or_default().push(field.to_owned());
        }
    };
    let mut json = serde_json::Deserializer::from_slice(json);
    let pod: Pod =
        serde_ignored::deserialize(&mut json, &mut record).map_err(ParsePodError::NotAPod)?;
    json.end().map_err(ParsePodError::NotAPod)?;
    let Some(spec) = &pod.spec else {
        return Ok(PodVolumeSpec::default());
    };
    let gid = match spec
        .security_context
        .as_ref()
        .and_then(|context| context.fs_group)
    {
        Some(gid) => Some(u32::try_from(gid).map_err(|_| ParsePodError::FsGroup(gid))?),
        None => None,
    };
    let memory = least(
        pod_memory_limit(spec),
        Some(node.memory).filter(|bytes| *bytes > 0),
    );
    let annotations = pod.metadata.annotations.as_ref();
    let source = annotations.and_then(|all| all.get(pod_annotation::CONFIG_SOURCE));
    let parser = ManifestParser {
        pod: &pod,
        node,
        gid,
        memory,
        cluster: source.is_none_or(|source| source == "api"),
    };
    let used = used_volumes(spec);
    let mut volumes = Vec::new();
    let mut seen = BTreeSet::new();
    for (index, volume) in spec.volumes.iter().flatten().enumerate() {
        // The runtime mounts images.
        if volume.image.is_some() {
            continue;
        }
        let usage = used.get(volume.name.as_str());
        if let Some(usage) = usage.filter(|_| seen.insert(volume.name.as_str())) {
            let sources = sources(volume, unknown.get(&index));
            let mut source = parser
                .volume_source(volume, &sources)
                .unwrap_or_else(|error| VolumeSource::Unsupported(Blocked::Failed(error)));
            if let VolumeSource::Claim(claim) = &mut source {
                claim.usage = *usage;
            }
            volumes.push(VolumeSpec {
                name: volume.name.clone(),
                source,
            });
        }
    }
    Ok(PodVolumeSpec { volumes })
}

fn items(items: Option<&Vec<api::KeyToPath>>) -> Result<Vec<KeyPath>, String> {
    let item = |item: &api::KeyToPath| {
        let mode = item.mode.map(mode).transpose()?;
        Ok(KeyPath {
            key: item.key.clone(),
            path: item.path.clone(),
            mode,
        })
    };
    items.into_iter().flatten().map(item).collect()
}

/// Parses the volumes of one pod.
struct ManifestParser<'a> {
    pod: &'a Pod,
    node: Allocatable,
    gid: Option<u32>,
    /// The limit of volumes in memory, in bytes.
    memory: Option<u64>,
    /// The pod comes from the API server and refers to objects of the cluster.
    cluster: bool,
}

const SUPPORTED: &str = "emptyDir, hostPath, nfs, configMap, secret, downwardAPI, projected, persistentVolumeClaim, ephemeral, csi";

impl ManifestParser<'_> {
    fn volume_source(
        &self,
        volume: &api::Volume,
        sources: &[String],
    ) -> Result<VolumeSource, String> {
        let name = &volume.name;
        if !layout::is_safe_volume_name(name) {
            return Err(format!(
                "{name:?} is not a volume name: it must be a DNS label"
            ));
        }
        if sources.len() > 1 {
            return Err(format!(
                "volume \"{name}\" has more than one source: {sources:?}"
            ));
        }
        let in_memory = Medium::Memory { size: self.memory };
        if let Some(source) = &volume.empty_dir {
            return self.empty_dir(source).map(VolumeSource::Builtin);
        }
        if let Some(source) = &volume.host_path {
            let (path, check) = builtin::host_path(source)?;
            return Ok(VolumeSource::Builtin(MountPlan::HostPath { path, check }));
        }
        if let Some(source) = &volume.nfs {
            let nfs = Box::new(builtin::nfs(source)?);
            return Ok(VolumeSource::Builtin(MountPlan::Nfs(nfs)));
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
            let files = self.downward(source.items.as_ref(), mode);
            return Ok(self.files(layout::DOWNWARD_API, in_memory, vec![files]));
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
        if let Some(migrated) = api_objects::migrated(volume, &self.namespace()) {
            return Ok(self.migrated(name, migrated));
        }
        match sources.first() {
            // The API's default is an emptyDir.
            None => self
                .empty_dir(&api::EmptyDirVolumeSource::default())
                .map(VolumeSource::Builtin),
            Some(other) => {
                let detail = format!("{other} is not supported, supported are {SUPPORTED}");
                Ok(VolumeSource::Unsupported(Blocked::no_plugin(name, &detail)))
            }
        }
    }

    fn empty_dir(&self, source: &api::EmptyDirVolumeSource) -> Result<MountPlan, String> {
        let medium = builtin::medium(source, self.pod, self.memory)?;
        Ok(MountPlan::EmptyDir {
            medium,
            gid: self.gid,
        })
    }

    fn claim(
        &self,
        volume: &str,
        claim: &str,
        ephemeral: bool,
        read_only: bool,
    ) -> Result<VolumeSource, String> {
        if !self.cluster {
            return Err(format!(
                "volume \"{volume}\" needs a claim, which only a pod of the API server can have"
            ));
        }
        Ok(VolumeSource::Claim(ClaimSpec {
            key: ReferenceKey {
                kind: ObjectKind::Claim,
                namespace: self.namespace(),
                name: claim.to_owned(),
                cluster: true,
            },
            ephemeral,
            read_only,
            usage: VolumeUse::default(),
            pod_context: self.pod_context(),
        }))
    }

    fn inline(&self, volume: &str, source: &api::CSIVolumeSource) -> Result<VolumeSource, String> {
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
        let pod_context = self.pod_context();
        Ok(VolumeSource::Inline(Box::new(InlineVolume {
            source,
            pod_context,
        })))
    }

    fn migrated(
        &self,
        volume: &str,
        translated: Result<(PersistentVolume, CsiSource), Blocked>,
    ) -> VolumeSource {
        match translated {
            Ok(_) if !self.cluster => VolumeSource::Unsupported(Blocked::Failed(format!(
                "volume \"{volume}\" is a CSI driver's, which only a pod of the API server can have"
            ))),
            Ok((persistent, source)) => VolumeSource::Migrated(Box::new(MigratedVolume {
                persistent,
                source,
                pod_context: self.pod_context(),
            })),
            Err(blocked) => VolumeSource::Unsupported(blocked),
        }
    }

    /// The pod, for claims and drivers.
    fn pod_context(&self) -> PodContext {
        let metadata = &self.pod.metadata;
        PodContext {
            pod: PodName {
                uid: metadata.uid.clone().unwrap_or_default().into(),
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

    fn service_account(&self) -> String {
        let spec = self.pod.spec.as_ref();
        let account = spec.and_then(|spec| spec.service_account_name.clone());
        let account = account.filter(|name| !name.is_empty());
        account.unwrap_or_else(|| "default".to_owned())
    }

    fn files(
        &self,
        plugin: &'static str,
        medium: Medium,
        sources: Vec<FileSource>,
    ) -> VolumeSource {
        VolumeSource::Files(FilesSpec {
            plugin,
            medium,
            gid: self.gid,
            sources,
        })
    }

    fn namespace(&self) -> String {
        let namespace = self.pod.metadata.namespace.clone();
        namespace.unwrap_or_else(|| "default".into())
    }

    fn object(
        &self,
        kind: ObjectKind,
        name: &str,
        keys: Option<&Vec<api::KeyToPath>>,
        mode: u32,
        optional: Option<bool>,
    ) -> Result<FileSource, String> {
        if name.is_empty() {
            return Err(format!("the {} has no name", kind.resource()));
        }
        Ok(FileSource::Object(ObjectSource {
            key: ReferenceKey {
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

    fn downward(&self, items: Option<&Vec<api::DownwardAPIVolumeFile>>, mode: u32) -> FileSource {
        let items = items.map(Vec::as_slice).unwrap_or_default();
        FileSource::Static(downward::files(items, self.pod, self.node, mode))
    }
}
