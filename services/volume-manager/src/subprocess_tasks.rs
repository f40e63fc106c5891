//! All tasks of this service's child processes.

use polylet_kit::subprocess::SubprocessEntry;

use crate::volume::device::{MapDeviceTask, UnmapDeviceTask};
use crate::volume::format::{MountDiskTask, ResizeDiskTask};
use crate::volume::fs_group::SetOwnershipTask;
use crate::volume::host_path::{CheckPathTask, PathTypeTask};
use crate::volume::local_volume::BindLocalTask;
use crate::volume::nfs::MountNfsTask;
use crate::volume::removal::{RemovePodDirTask, RemoveVolumeTask};
use crate::volume::sub_path::BindSubPathsTask;
use crate::volume::tear_down::UnmountTask;

/// All tasks.
pub(crate) const TASKS: &[SubprocessEntry] = &[
    SubprocessEntry::new::<BindLocalTask>(),
    SubprocessEntry::new::<BindSubPathsTask>(),
    SubprocessEntry::new::<CheckPathTask>(),
    SubprocessEntry::new::<MapDeviceTask>(),
    SubprocessEntry::new::<MountDiskTask>(),
    SubprocessEntry::new::<MountNfsTask>(),
    SubprocessEntry::new::<PathTypeTask>(),
    SubprocessEntry::new::<RemovePodDirTask>(),
    SubprocessEntry::new::<RemoveVolumeTask>(),
    SubprocessEntry::new::<ResizeDiskTask>(),
    SubprocessEntry::new::<SetOwnershipTask>(),
    SubprocessEntry::new::<UnmapDeviceTask>(),
    SubprocessEntry::new::<UnmountTask>(),
];
