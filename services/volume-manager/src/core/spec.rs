//! The volumes that a pod asks for.

use std::collections::BTreeSet;

use super::api_objects::{CsiSource, PersistentVolume};
use super::blocked::Blocked;
use super::builtin::Medium;
use super::certificates::{CertificateKey, CertificateSource};
use super::cluster_trust_bundle::TrustBundleSource;
use super::csi_volume::InlineVolume;
use super::files::VolumeFile;
use super::layout;
use super::mount_plan::MountPlan;
use super::pod::PodContext;
use super::reference_key::ReferenceKey;
use super::tokens::PodTokenKey;
use super::usage::VolumeUse;

/// The volumes of one pod that some container uses, in the manifest's order.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PodVolumeSpec {
    /// The volumes.
    pub volumes: Vec<VolumeSpec>,
}

impl PodVolumeSpec {
    /// All objects that the volumes name directly.
    pub fn objects(&self) -> BTreeSet<ReferenceKey> {
        let keys = self.file_sources().filter_map(|source| match source {
            FileSource::Object(source) => Some(source.key.clone()),
            FileSource::TrustBundle(source) => Some(source.key.clone()),
            FileSource::Static(_) | FileSource::Token(_) | FileSource::Certificate(_) => None,
        });
        let claims = self
            .volumes
            .iter()
            .filter_map(|volume| match &volume.source {
                VolumeSource::Claim(claim) => Some(claim.key.clone()),
                _ => None,
            });
        keys.chain(claims).collect()
    }

    /// All service account tokens that the volumes project.
    pub fn tokens(&self) -> impl Iterator<Item = &PodTokenKey> {
        self.file_sources().filter_map(|source| match source {
            FileSource::Token(source) => Some(&source.key),
            _ => None,
        })
    }

    /// All pod certificates that the volumes project.
    pub fn certificates(&self) -> impl Iterator<Item = &CertificateKey> {
        self.file_sources().filter_map(|source| match source {
            FileSource::Certificate(source) => Some(&source.key),
            _ => None,
        })
    }

    /// The volume of this name.
    pub fn volume(&self, name: &str) -> Option<&VolumeSpec> {
        self.volumes.iter().find(|volume| volume.name == name)
    }

    /// The volumes that are had by a claim.
    pub fn claims(&self) -> impl Iterator<Item = &ClaimSpec> {
        self.volumes
            .iter()
            .filter_map(|volume| match &volume.source {
                VolumeSource::Claim(claim) => Some(claim),
                _ => None,
            })
    }

    /// The inline volumes of former in-tree plugins.
    pub fn migrated(&self) -> impl Iterator<Item = &MigratedVolume> {
        self.volumes
            .iter()
            .filter_map(|volume| match &volume.source {
                VolumeSource::Migrated(migrated) => Some(&**migrated),
                _ => None,
            })
    }

    fn file_sources(&self) -> impl Iterator<Item = &FileSource> {
        self.volumes.iter().flat_map(|volume| match &volume.source {
            VolumeSource::Files(spec) => spec.sources.as_slice(),
            _ => &[],
        })
    }
}

/// One volume of a manifest.
#[derive(Debug, Clone, PartialEq)]
pub struct VolumeSpec {
    /// The name, a DNS label.
    pub name: String,
    /// The source.
    pub source: VolumeSource,
}

impl VolumeSpec {
    /// The directory name of the volume's plugin; `None` for a volume that cannot be had here.
    pub fn plugin(&self) -> Option<&'static str> {
        match &self.source {
            VolumeSource::Builtin(MountPlan::EmptyDir { .. }) => Some(layout::EMPTY_DIR),
            VolumeSource::Builtin(MountPlan::HostPath { .. }) => Some(layout::HOST_PATH),
            VolumeSource::Builtin(MountPlan::Nfs(_)) => Some(layout::NFS),
            VolumeSource::Files(spec) => Some(spec.plugin),
            VolumeSource::Claim(_) => Some(layout::UNRESOLVED),
            VolumeSource::Inline(_) | VolumeSource::Migrated(_) => Some(layout::CSI),
            VolumeSource::Builtin(
                MountPlan::Files(_)
                | MountPlan::Local(_)
                | MountPlan::LocalDevice { .. }
                | MountPlan::Csi(_),
            )
            | VolumeSource::Unsupported(_) => None,
        }
    }
}

/// The source of a volume.
#[derive(Debug, Clone, PartialEq)]
pub enum VolumeSource {
    /// emptyDir, hostPath or NFS: needs nothing but the manifest.
    Builtin(MountPlan),
    /// Files from sources that may change.
    Files(FilesSpec),
    /// The volume that a claim is bound to.
    Claim(ClaimSpec),
    /// An inline volume of a CSI driver.
    Inline(Box<InlineVolume>),
    /// An inline volume of a former in-tree plugin, as its CSI driver has it.
    Migrated(Box<MigratedVolume>),
    /// The volume cannot be had on this node, and why.
    Unsupported(Blocked),
}

/// An inline volume of a former in-tree plugin.
#[derive(Debug, Clone, PartialEq)]
pub struct MigratedVolume {
    /// The volume as a persistent volume of its CSI driver.
    pub persistent: PersistentVolume,
    /// Its source.
    pub source: CsiSource,
    /// The pod.
    pub pod_context: PodContext,
}

/// A volume by claim.
#[derive(Debug, Clone, PartialEq)]
pub struct ClaimSpec {
    /// The claim.
    pub key: ReferenceKey,
    /// The claim of a generic ephemeral volume: the pod must own it.
    pub ephemeral: bool,
    /// Mounted read-only.
    pub read_only: bool,
    /// How containers use the volume.
    pub usage: VolumeUse,
    /// The pod.
    pub pod_context: PodContext,
}

/// A volume made of files.
#[derive(Debug, Clone, PartialEq)]
pub struct FilesSpec {
    /// The directory name of the plugin.
    pub plugin: &'static str,
    /// Where the files are stored.
    pub medium: Medium,
    /// The pod's `fsGroup`.
    pub gid: Option<u32>,
    /// The sources; later ones overwrite earlier ones, as upstream.
    pub sources: Vec<FileSource>,
}

/// A source of files.
#[derive(Debug, Clone, PartialEq)]
pub enum FileSource {
    /// A ConfigMap or Secret.
    Object(ObjectSource),
    /// Files from the manifest itself, or why they cannot be made.
    Static(Result<Vec<(String, VolumeFile)>, String>),
    /// A service account token.
    Token(TokenSource),
    /// One or more ClusterTrustBundles.
    TrustBundle(TrustBundleSource),
    /// A pod certificate and its key.
    Certificate(CertificateSource),
}

/// A service account token as a file.
#[derive(Debug, Clone, PartialEq)]
pub struct TokenSource {
    /// The token.
    pub key: PodTokenKey,
    /// The path of the file.
    pub path: String,
    /// The mode of the file.
    pub mode: u32,
    /// The owner: the one user that all containers run as, if there is one.
    pub uid: Option<u32>,
}

/// A ConfigMap or Secret as files.
#[derive(Debug, Clone, PartialEq)]
pub struct ObjectSource {
    /// The object.
    pub key: ReferenceKey,
    /// The keys to project; all keys if empty.
    pub items: Vec<KeyPath>,
    /// The mode of files whose item has none.
    pub mode: u32,
    /// The object, or keys of it, may be missing.
    pub optional: bool,
}

/// One key of an object and its path in the volume.
#[derive(Debug, Clone, PartialEq)]
pub struct KeyPath {
    /// The key.
    pub key: String,
    /// The path of the file.
    pub path: String,
    /// The mode of the file.
    pub mode: Option<u32>,
}

/// Allocatable resources of the node: the default of missing limits in the downward API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Allocatable {
    /// CPU in millicores.
    pub cpu_milli: u64,
    /// Memory in bytes.
    pub memory: u64,
    /// Ephemeral storage in bytes.
    pub ephemeral_storage: u64,
}
