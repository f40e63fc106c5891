//! What people are told of a step that was taken: upstream's events.

use super::growth::Growth;
use super::layout::{self, Layout, VolumeId};
use super::plan::{Asked, Step};

/// Whom something is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum About {
    /// The pod.
    Pod,
    /// The claim that the pod has the volume by.
    Claim,
    /// The persistent volume behind the claim.
    Persistent,
}

/// One event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Word {
    /// Whom it is about.
    pub about: About,
    /// Something is amiss.
    pub warning: bool,
    /// Its reason.
    pub reason: &'static str,
    /// Its words.
    pub message: String,
}

/// What is told of a step that was taken well, on a node of this name. What containers could use
/// before, as after a restart of this process, is no news.
pub fn of_done(step: &Step, was_usable: bool, node: &str, layout: &Layout) -> Vec<Word> {
    let grown = |id| both(id, false, "MountVolume.NodeExpandVolume succeeded", node);
    match step {
        Step::Ask(id, _, Asked::Grow) => grown(id),
        Step::SetUp(id, what) => {
            let mut words = match was_usable {
                true => Vec::new(),
                false => mapped(id, layout),
            };
            match what.growth() {
                Growth::Asked => words.extend(grown(id)),
                Growth::Forbidden if !was_usable => words.extend(forbidden(id)),
                _ => {}
            }
            words
        }
        Step::Ask(..) | Step::TearDown(_) | Step::RemovePod(_) => Vec::new(),
    }
}

/// What is told of a node that may write volumes in memory to a disk: its reason and its words.
pub const ON_DISK: (&str, &str) = (
    "PossibleMemoryBackedVolumesOnDisk",
    "The tmpfs noswap option is not supported. Memory-backed volumes (e.g. secrets, emptyDirs, etc.) \
     might be swapped to disk and should no longer be considered secure.",
);

/// What is told of a disk with another file system than was asked for, which cannot be mounted.
pub fn of_mismatch(id: &VolumeId, why: &str) -> Word {
    Word {
        about: About::Persistent,
        warning: true,
        reason: "FailedMountOnFilesystemMismatch",
        message: said("MountVolume failed", id, why),
    }
}

/// What is told of a volume whose group takes long to be changed: the first time, and how many files
/// are done at the next ones.
pub fn of_group(id: &VolumeId, layout: &Layout, files: Option<u64>) -> Word {
    let at = layout.mounted(id);
    let at = at.strip_prefix(layout.pods()).unwrap_or(&at).display();
    let message = match files {
        None => format!(
            "Setting volume ownership for {at} is taking longer than expected, consider using OnRootMismatch - \
             https://kubernetes.io/docs/tasks/configure-pod-container/security-context/#configure-volume-permission-and-ownership-change-policy-for-pods"
        ),
        Some(files) => format!("Setting volume ownership for {at}, processed {files} files."),
    };
    Word {
        about: About::Pod,
        warning: true,
        reason: "VolumePermissionChangeInProgress",
        message,
    }
}

fn forbidden(id: &VolumeId) -> Vec<Word> {
    let why = "requested read-only file system";
    both(id, true, "MountVolume.NodeExpandVolume failed", why)
}

/// What pod and claim are told of growth.
fn both(id: &VolumeId, warning: bool, what: &str, more: &str) -> Vec<Word> {
    let reason = match warning {
        true => "FileSystemResizeFailed",
        false => "FileSystemResizeSuccessful",
    };
    let word = |about| Word {
        about,
        warning,
        reason,
        message: said(what, id, more),
    };
    [About::Pod, About::Claim].map(word).into()
}

/// A device is there: where it is kept for the node, and where for the pod.
fn mapped(id: &VolumeId, layout: &Layout) -> Vec<Word> {
    if layout::device_of(&id.plugin).is_none() {
        return Vec::new();
    }
    let (device, link) = (layout.device(id), layout.volume(id));
    let places = [("globalMapPath", device), ("volumeMapPath", link)];
    let word = |(what, path): (&str, std::path::PathBuf)| {
        let at = path.parent().unwrap_or(&path).display().to_string();
        Word {
            about: About::Pod,
            warning: false,
            reason: "SuccessfulMountVolume",
            message: said(
                "MapVolume.MapPodDevice succeeded",
                id,
                &format!("{what} {at:?}"),
            ),
        }
    };
    places.map(word).into()
}

fn said(what: &str, id: &VolumeId, more: &str) -> String {
    format!("{what} for volume \"{}\" {more}", id.name)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::core::growth::Size;
    use crate::core::spec::SetUp;

    fn told(step: &Step, was_usable: bool) -> Vec<(bool, &'static str, String)> {
        let words = of_done(step, was_usable, "n1", &Layout::new("/r"));
        let told = words.into_iter();
        told.map(|word| (word.warning, word.reason, word.message))
            .collect()
    }

    fn device(growth: Growth) -> (VolumeId, Arc<SetUp>) {
        let set_up = SetUp::LocalDevice {
            path: "/dev/x".into(),
            size: Size { bytes: 1, growth },
        };
        let id = VolumeId::new("u1", layout::LOCAL_DEVICE, "pv");
        (id, Arc::new(set_up))
    }

    #[test]
    fn upstreams_words() {
        let (id, what) = device(Growth::None);
        let set_up = Step::SetUp(id.clone(), what.clone());
        let mapped = |at: &str| {
            let message = format!("MapVolume.MapPodDevice succeeded for volume \"pv\" {at}");
            (false, "SuccessfulMountVolume", message)
        };
        let kept = "globalMapPath \"/r/plugins/kubernetes.io/local-volume/volumeDevices/pv\"";
        let link = "volumeMapPath \"/r/pods/u1/volumeDevices/kubernetes.io~local-volume\"";
        assert_eq!(told(&set_up, false), [mapped(kept), mapped(link)]);
        // After a restart there is no news.
        assert_eq!(told(&set_up, true), []);
        assert_eq!(told(&Step::TearDown(id.clone()), true), []);

        let grown = "MountVolume.NodeExpandVolume succeeded for volume \"pv\" n1";
        let grown = (false, "FileSystemResizeSuccessful", grown.to_owned());
        let both = [grown.clone(), grown];
        assert_eq!(told(&Step::Ask(id, what, Asked::Grow), true), both);
        let (id, what) = device(Growth::Asked);
        assert_eq!(told(&Step::SetUp(id, what), true), both);

        let (id, what) = device(Growth::Forbidden);
        let why =
            "MountVolume.NodeExpandVolume failed for volume \"pv\" requested read-only file system";
        let no = (true, "FileSystemResizeFailed", why.to_owned());
        let set_up = Step::SetUp(id, what);
        assert_eq!(told(&set_up, false)[2..], [no.clone(), no]);
        assert_eq!(told(&set_up, true), []);

        let id = VolumeId::new("u1", layout::CSI, "pv");
        let group = |files| of_group(&id, &Layout::new("/r"), files).message;
        let first = "Setting volume ownership for u1/volumes/kubernetes.io~csi/pv/mount is taking longer than expected, consider using OnRootMismatch - https://";
        assert!(group(None).starts_with(first));
        let next = "Setting volume ownership for u1/volumes/kubernetes.io~csi/pv/mount, processed 7 files.";
        assert_eq!(group(Some(7)), next);
    }
}
