//! Everything that setting one volume up takes.

use super::builtin::{Medium, PathCheck};
use super::csi_volume::{CsiVolume, RequiredUpdate};
use super::files::VolumeFiles;
use super::nfs_volume::NfsVolume;
use super::resize::{Expansion, VolumeSize};

/// Everything that setting one volume up takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MountPlan {
    /// An empty directory.
    EmptyDir {
        /// Where it is stored.
        medium: Medium,
        /// The group that owns it.
        gid: Option<u32>,
    },
    /// A path of the node.
    HostPath {
        /// The path.
        path: String,
        /// What must be there.
        check: PathCheck,
    },
    /// Files with known content.
    Files(VolumeFiles),
    /// A directory or a disk of the node, mounted below the pod's directory.
    Local(Box<LocalVolume>),
    /// A block device of the node.
    LocalDevice {
        /// The path of the device.
        path: String,
        /// The size reported for its claim.
        size: VolumeSize,
    },
    /// An NFS export.
    Nfs(Box<NfsVolume>),
    /// A volume of a CSI driver.
    Csi(Box<CsiVolume>),
}

/// A local persistent volume.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LocalVolume {
    /// The directory or the block device.
    pub path: String,
    /// The file system of a disk; one without is formatted with it.
    pub fs_type: String,
    /// Mount options.
    pub mount_options: Vec<String>,
    /// Mounted read-only.
    pub read_only: bool,
    /// The group that owns the content.
    pub gid: Option<u32>,
    /// Skip the change of ownership where the root directory has it already.
    pub on_root_mismatch: bool,
    /// The size.
    pub size: VolumeSize,
}

impl MountPlan {
    /// Whether all that it takes is here: directories and files of this node, whose content is known.
    pub fn is_self_contained(&self) -> bool {
        matches!(self, MountPlan::EmptyDir { .. } | MountPlan::Files(_))
    }

    /// The size, of volumes that can be expanded.
    pub fn size(&self) -> Option<VolumeSize> {
        match self {
            MountPlan::Csi(csi) if !csi.ephemeral => Some(csi.size),
            MountPlan::Local(local) => Some(local.size),
            MountPlan::LocalDevice { size, .. } => Some(*size),
            _ => None,
        }
    }

    /// What is to be done for its expansion.
    pub fn expansion(&self) -> Expansion {
        self.size().unwrap_or_default().expansion
    }

    fn without_size(&self) -> MountPlan {
        let mut plan = self.clone();
        match &mut plan {
            MountPlan::Local(local) => local.size = VolumeSize::default(),
            MountPlan::LocalDevice { size, .. } => *size = VolumeSize::default(),
            _ => {}
        }
        plan
    }

    /// What turns a volume that was mounted by this plan into the desired one.
    pub fn required_update(&self, desired: &MountPlan) -> RequiredUpdate {
        match (self, desired) {
            (MountPlan::Csi(mounted), MountPlan::Csi(desired)) => mounted.required_update(desired),
            _ if self == desired => RequiredUpdate::None,
            _ => match (self.size(), desired.size()) {
                (Some(has), Some(to)) if self.without_size() == desired.without_size() => {
                    match has.needs_expansion(to) {
                        true => RequiredUpdate::Expand,
                        false => RequiredUpdate::None,
                    }
                }
                _ => RequiredUpdate::SetUp,
            },
        }
    }

    /// `requiresRepublish`: the driver is called periodically while the volume is mounted.
    pub fn requires_republish(&self) -> bool {
        matches!(self, MountPlan::Csi(csi) if csi.republish && !csi.block)
    }

    /// The name in the Node's `volumesInUse`, if it has been attached.
    pub fn in_use(&self) -> Option<String> {
        match self {
            MountPlan::Csi(csi) => csi.in_use(),
            _ => None,
        }
    }
}
