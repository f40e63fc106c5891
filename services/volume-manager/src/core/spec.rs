//! What a pod asks for, volume by volume, in the words of this service.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::certificates::{CertificateKey, CertificateSource};
use super::csi::{Csi, ForPod, Inline, Lacks};
use super::growth::{Growth, Size};
use super::layout;
use super::objects::{Bytes, ObjectKey};
use super::tokens::TokenKey;
use super::trust::TrustSource;

/// Names one pod.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PodName {
    /// Its uid: the key of everything.
    pub uid: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// The volumes of one pod that some container uses, in the manifest's order.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PodSpec {
    /// Them.
    pub volumes: Vec<Volume>,
}

impl PodSpec {
    /// All objects that the pod's volumes refer to.
    pub fn objects(&self) -> BTreeSet<ObjectKey> {
        let keys = self.sources().filter_map(|source| match source {
            Source::Object(source) => Some(source.key.clone()),
            Source::Trust(source) => Some(source.key.clone()),
            Source::Ready(_) | Source::Token(_) | Source::Certificate(_) => None,
        });
        let claims = self
            .volumes
            .iter()
            .filter_map(|volume| match &volume.wants {
                Wants::Claim(spec) => Some(spec.key.clone()),
                _ => None,
            });
        keys.chain(claims).collect()
    }

    /// All tokens that the pod's volumes hold.
    pub fn tokens(&self) -> impl Iterator<Item = &TokenKey> {
        self.sources().filter_map(|source| match source {
            Source::Token(source) => Some(&source.key),
            _ => None,
        })
    }

    /// All certificates that the pod's volumes hold.
    pub fn certificates(&self) -> impl Iterator<Item = &CertificateKey> {
        self.sources().filter_map(|source| match source {
            Source::Certificate(source) => Some(&source.key),
            _ => None,
        })
    }

    fn sources(&self) -> impl Iterator<Item = &Source> {
        self.volumes.iter().flat_map(|volume| match &volume.wants {
            Wants::Files(spec) => spec.sources.as_slice(),
            _ => &[],
        })
    }
}

/// One volume of a manifest.
#[derive(Debug, Clone, PartialEq)]
pub struct Volume {
    /// Its name, a DNS label.
    pub name: String,
    /// What it asks for.
    pub wants: Wants,
}

impl Volume {
    /// The directory name of the volume's plugin, if there is one for it here.
    pub fn plugin(&self) -> Option<&'static str> {
        match &self.wants {
            Wants::Plain(SetUp::EmptyDir { .. }) => Some(layout::EMPTY_DIR),
            Wants::Plain(SetUp::HostPath { .. }) => Some(layout::HOST_PATH),
            Wants::Files(spec) => Some(spec.plugin),
            Wants::Claim(_) => Some(layout::UNRESOLVED),
            Wants::Inline(_) => Some(layout::CSI),
            Wants::Plain(
                SetUp::Files(_) | SetUp::Local(_) | SetUp::LocalDevice { .. } | SetUp::Csi(_),
            )
            | Wants::Refused(_) => None,
        }
    }
}

/// A volume by way of a claim.
#[derive(Debug, Clone, PartialEq)]
pub struct ClaimSpec {
    /// The claim.
    pub key: ObjectKey,
    /// It has to be made for the pod: of a generic ephemeral volume.
    pub made_for_pod: bool,
    /// Mounted read-only.
    pub read_only: bool,
    /// How containers use it.
    pub used: Used,
    /// The pod.
    pub for_pod: ForPod,
}

/// How a pod's containers use a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Used {
    /// Some container mounts it (`volumeMounts`).
    pub mounted: bool,
    /// Some container has it as a device (`volumeDevices`).
    pub mapped: bool,
}

/// What a volume asks for.
#[derive(Debug, Clone, PartialEq)]
pub enum Wants {
    /// All that is needed is known.
    Plain(SetUp),
    /// Files out of sources that come and change.
    Files(FilesSpec),
    /// Whatever a claim is bound to.
    Claim(ClaimSpec),
    /// A driver's, described by the manifest.
    Inline(Box<Inline>),
    /// It cannot be had on this node; why.
    Refused(String),
}

/// Everything that setting one volume up takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SetUp {
    /// A fresh directory.
    EmptyDir {
        /// On what.
        medium: Medium,
        /// The group that shall own it.
        gid: Option<u32>,
    },
    /// A path of the node.
    HostPath {
        /// It.
        path: String,
        /// What must be there.
        check: PathCheck,
    },
    /// Files with a known content.
    Files(Files),
    /// A directory or a disk of the node, mounted where the pod's volumes are.
    Local(Box<Local>),
    /// A block device of the node, to be handed to the pod's containers.
    LocalDevice {
        /// It.
        path: String,
        /// How large its claim is to say that it is.
        size: Size,
    },
    /// A volume of a CSI driver.
    Csi(Box<Csi>),
}

/// A local persistent volume.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Local {
    /// The directory, or the disk with a file system on it.
    pub path: String,
    /// The file system of a disk, and the one that it is given when it has none.
    pub fs_type: String,
    /// Options for the mount.
    pub mount_options: Vec<String>,
    /// Nobody may write.
    pub read_only: bool,
    /// The group that shall own all in it.
    pub gid: Option<u32>,
    /// What is right at its root is taken to be right all the way down.
    pub on_root_mismatch: bool,
    /// How large it is.
    pub size: Size,
}

impl SetUp {
    /// How large it is, of volumes that can grow.
    pub fn size(&self) -> Option<Size> {
        match self {
            SetUp::Csi(csi) if !csi.ephemeral => Some(csi.size),
            SetUp::Local(local) => Some(local.size),
            SetUp::LocalDevice { size, .. } => Some(*size),
            _ => None,
        }
    }

    /// What has to be done for its growth.
    pub fn growth(&self) -> Growth {
        self.size().unwrap_or_default().growth
    }

    /// The same, whatever its size.
    fn of_any_size(&self) -> SetUp {
        let mut same = self.clone();
        match &mut same {
            SetUp::Local(local) => local.size = Size::default(),
            SetUp::LocalDevice { size, .. } => *size = Size::default(),
            _ => {}
        }
        same
    }

    /// What this, which is held, lacks of what is wanted.
    pub fn lacks(&self, wanted: &SetUp) -> Lacks {
        match (self, wanted) {
            (SetUp::Csi(held), SetUp::Csi(wanted)) => held.lacks(wanted),
            _ if self == wanted => Lacks::Nothing,
            _ => match (self.size(), wanted.size()) {
                (Some(has), Some(to)) if self.of_any_size() == wanted.of_any_size() => {
                    match has.grows_to(to) {
                        true => Lacks::Growth,
                        false => Lacks::Nothing,
                    }
                }
                _ => Lacks::All,
            },
        }
    }

    /// Whether its driver wants to be asked again and again.
    pub fn is_published_again(&self) -> bool {
        matches!(self, SetUp::Csi(csi) if csi.republish && !csi.block)
    }

    /// As the Node's status names it, if it has been attached.
    pub fn in_use(&self) -> Option<String> {
        match self {
            SetUp::Csi(csi) => csi.in_use(),
            _ => None,
        }
    }
}

/// What a directory lies on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Medium {
    /// The disk under the root directory.
    Disk,
    /// Memory, at most so many bytes where a bound is known.
    Memory {
        /// The bound.
        size: Option<u64>,
    },
    /// Huge pages of one size in bytes.
    HugePages {
        /// The size.
        page_size: u64,
    },
}

/// What a hostPath must be before the pod starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum PathCheck {
    /// Anything, or nothing.
    None,
    /// A directory, made with mode 0755 if there is nothing.
    DirectoryOrCreate,
    /// A directory.
    Directory,
    /// A file, made with mode 0644 if there is nothing.
    FileOrCreate,
    /// A file.
    File,
    /// A Unix socket.
    Socket,
    /// A character device.
    CharDevice,
    /// A block device.
    BlockDevice,
}

/// Files with a known content, ready to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Files {
    /// The bound of the memory they lie in; `None` for the disk.
    pub medium: Medium,
    /// The group that shall own them. Their modes allow for it already.
    pub gid: Option<u32>,
    /// The content by relative path.
    pub content: Arc<BTreeMap<String, File>>,
}

/// One file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct File {
    /// Its content.
    pub bytes: Bytes,
    /// Its mode, exactly.
    pub mode: u32,
    /// The user that owns it, where that is not the node's own.
    pub uid: Option<u32>,
}

/// A volume made of files.
#[derive(Debug, Clone, PartialEq)]
pub struct FilesSpec {
    /// The directory name of the plugin.
    pub plugin: &'static str,
    /// On what the files lie.
    pub medium: Medium,
    /// The pod's group for volumes.
    pub gid: Option<u32>,
    /// Later sources overwrite earlier ones, as upstream.
    pub sources: Vec<Source>,
}

/// Where files come from.
#[derive(Debug, Clone, PartialEq)]
pub enum Source {
    /// An object.
    Object(ObjectSource),
    /// The manifest itself; or why not.
    Ready(Result<Vec<(String, File)>, String>),
    /// A token of the pod's service account.
    Token(TokenSource),
    /// Trust anchors of the cluster.
    Trust(TrustSource),
    /// A key and certificate of the pod.
    Certificate(CertificateSource),
}

/// A token as a source of one file.
#[derive(Debug, Clone, PartialEq)]
pub struct TokenSource {
    /// Which.
    pub key: TokenKey,
    /// The file.
    pub path: String,
    /// Its mode.
    pub mode: u32,
    /// Who owns it: the one user of all containers, if there is one.
    pub uid: Option<u32>,
}

/// An object as a source of files.
#[derive(Debug, Clone, PartialEq)]
pub struct ObjectSource {
    /// Which.
    pub key: ObjectKey,
    /// Only these keys, at these paths; all keys when empty.
    pub items: Vec<Item>,
    /// The mode of files whose item names none.
    pub mode: u32,
    /// It may be missing, and keys of it too.
    pub optional: bool,
}

/// One key of an object.
#[derive(Debug, Clone, PartialEq)]
pub struct Item {
    /// The key.
    pub key: String,
    /// The file.
    pub path: String,
    /// Its mode, if it has one of its own.
    pub mode: Option<u32>,
}

/// What the node can give at most: the default of missing limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Allocatable {
    /// Thousandths of a core.
    pub cpu_milli: u64,
    /// Bytes of memory.
    pub memory: u64,
    /// Bytes of disk for containers.
    pub ephemeral_storage: u64,
}
