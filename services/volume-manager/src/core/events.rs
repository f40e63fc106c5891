//! Events about volumes, upstream's to the letter.

use super::layout::{self, Layout, VolumeId};
use super::operation::{Operation, VolumeUpdate};
use super::resize::Expansion;

/// The object that an event is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventTarget {
    /// The pod.
    Pod,
    /// The claim by which the pod has the volume.
    Claim,
    /// The persistent volume behind the claim.
    PersistentVolume,
}

/// One event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeEvent {
    /// The object.
    pub target: EventTarget,
    /// A warning event.
    pub warning: bool,
    /// The reason.
    pub reason: &'static str,
    /// The message.
    pub message: String,
}

/// The events of an operation that succeeded. A volume that was usable before, as after a restart of
/// this process, is not reported as mounted again.
pub fn succeeded(
    operation: &Operation,
    was_usable: bool,
    node: &str,
    layout: &Layout,
) -> Vec<VolumeEvent> {
    let expanded = |id| resize_events(id, false, "MountVolume.NodeExpandVolume succeeded", node);
    match operation {
        Operation::Update(id, _, VolumeUpdate::Expand) => expanded(id),
        Operation::SetUp(id, plan) => {
            let mut events = match was_usable {
                true => Vec::new(),
                false => mapped(id, layout),
            };
            match plan.expansion() {
                Expansion::Requested => events.extend(expanded(id)),
                Expansion::ReadOnly if !was_usable => events.extend(read_only(id)),
                _ => {}
            }
            events
        }
        Operation::Update(..) | Operation::TearDown(_) | Operation::RemovePodDir(_) => Vec::new(),
    }
}

/// Reason and message of a node that may swap volumes in memory to disk.
pub const MEMORY_SWAPPED: (&str, &str) = (
    "PossibleMemoryBackedVolumesOnDisk",
    "The tmpfs noswap option is not supported. Memory-backed volumes (e.g. secrets, emptyDirs, etc.) \
     might be swapped to disk and should no longer be considered secure.",
);

/// A disk that has another file system than specified and cannot be mounted.
pub fn filesystem_mismatch(id: &VolumeId, error: &str) -> VolumeEvent {
    VolumeEvent {
        target: EventTarget::PersistentVolume,
        warning: true,
        reason: "FailedMountOnFilesystemMismatch",
        message: message("MountVolume failed", id, error),
    }
}

/// A change of ownership that takes long: at first, and then with the number of files processed.
pub fn ownership_in_progress(id: &VolumeId, layout: &Layout, files: Option<u64>) -> VolumeEvent {
    let path = layout.mounted(id);
    let path = path.strip_prefix(layout.pods()).unwrap_or(&path).display();
    let message = match files {
        None => format!(
            "Setting volume ownership for {path} is taking longer than expected, consider using OnRootMismatch - \
             https://kubernetes.io/docs/tasks/configure-pod-container/security-context/#configure-volume-permission-and-ownership-change-policy-for-pods"
        ),
        Some(files) => format!("Setting volume ownership for {path}, processed {files} files."),
    };
    VolumeEvent {
        target: EventTarget::Pod,
        warning: true,
        reason: "VolumePermissionChangeInProgress",
        message,
    }
}

fn read_only(id: &VolumeId) -> Vec<VolumeEvent> {
    let error = "requested read-only file system";
    resize_events(id, true, "MountVolume.NodeExpandVolume failed", error)
}

/// The events of an expansion, for pod and claim.
fn resize_events(id: &VolumeId, warning: bool, what: &str, detail: &str) -> Vec<VolumeEvent> {
    let reason = match warning {
        true => "FileSystemResizeFailed",
        false => "FileSystemResizeSuccessful",
    };
    let event = |target| VolumeEvent {
        target,
        warning,
        reason,
        message: message(what, id, detail),
    };
    [EventTarget::Pod, EventTarget::Claim].map(event).into()
}

/// The events of a mapped block device: its paths for the node and for the pod.
fn mapped(id: &VolumeId, layout: &Layout) -> Vec<VolumeEvent> {
    if layout::device_plugin(&id.plugin).is_none() {
        return Vec::new();
    }
    let (device, link) = (layout.device(id), layout.volume(id));
    let paths = [("globalMapPath", device), ("volumeMapPath", link)];
    let event = |(what, path): (&str, std::path::PathBuf)| {
        let dir = path.parent().unwrap_or(&path).display().to_string();
        VolumeEvent {
            target: EventTarget::Pod,
            warning: false,
            reason: "SuccessfulMountVolume",
            message: message(
                "MapVolume.MapPodDevice succeeded",
                id,
                &format!("{what} {dir:?}"),
            ),
        }
    };
    paths.map(event).into()
}

fn message(what: &str, id: &VolumeId, detail: &str) -> String {
    format!("{what} for volume \"{}\" {detail}", id.name)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::core::mount_plan::MountPlan;
    use crate::core::resize::VolumeSize;

    fn events(operation: &Operation, was_usable: bool) -> Vec<(bool, &'static str, String)> {
        let events = succeeded(operation, was_usable, "n1", &Layout::new("/r"));
        let events = events.into_iter();
        events
            .map(|event| (event.warning, event.reason, event.message))
            .collect()
    }

    fn device(expansion: Expansion) -> (VolumeId, Arc<MountPlan>) {
        let set_up = MountPlan::LocalDevice {
            path: "/dev/x".into(),
            size: VolumeSize {
                bytes: 1,
                expansion,
            },
        };
        let id = VolumeId::new("u1", layout::LOCAL_DEVICE, "pv");
        (id, Arc::new(set_up))
    }

    #[test]
    fn events_are_those_of_the_kubelet() {
        let (id, plan) = device(Expansion::None);
        let set_up = Operation::SetUp(id.clone(), plan.clone());
        let mapped = |at: &str| {
            let message = format!("MapVolume.MapPodDevice succeeded for volume \"pv\" {at}");
            (false, "SuccessfulMountVolume", message)
        };
        let global = "globalMapPath \"/r/plugins/kubernetes.io/local-volume/volumeDevices/pv\"";
        let link = "volumeMapPath \"/r/pods/u1/volumeDevices/kubernetes.io~local-volume\"";
        assert_eq!(events(&set_up, false), [mapped(global), mapped(link)]);
        // Not again after a restart.
        assert_eq!(events(&set_up, true), []);
        assert_eq!(events(&Operation::TearDown(id.clone()), true), []);

        let grown = "MountVolume.NodeExpandVolume succeeded for volume \"pv\" n1";
        let grown = (false, "FileSystemResizeSuccessful", grown.to_owned());
        let both = [grown.clone(), grown];
        assert_eq!(
            events(&Operation::Update(id, plan, VolumeUpdate::Expand), true),
            both
        );
        let (id, plan) = device(Expansion::Requested);
        assert_eq!(events(&Operation::SetUp(id, plan), true), both);

        let (id, plan) = device(Expansion::ReadOnly);
        let text =
            "MountVolume.NodeExpandVolume failed for volume \"pv\" requested read-only file system";
        let failed = (true, "FileSystemResizeFailed", text.to_owned());
        let set_up = Operation::SetUp(id, plan);
        assert_eq!(events(&set_up, false)[2..], [failed.clone(), failed]);
        assert_eq!(events(&set_up, true), []);

        let id = VolumeId::new("u1", layout::CSI, "pv");
        let group = |files| ownership_in_progress(&id, &Layout::new("/r"), files).message;
        let first = "Setting volume ownership for u1/volumes/kubernetes.io~csi/pv/mount is taking longer than expected, consider using OnRootMismatch - https://";
        assert!(group(None).starts_with(first));
        let next = "Setting volume ownership for u1/volumes/kubernetes.io~csi/pv/mount, processed 7 files.";
        assert_eq!(group(Some(7)), next);
    }
}
