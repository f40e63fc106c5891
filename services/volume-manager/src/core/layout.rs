//! Paths below the root directory: the kubelet's layout exactly, so that either agent can take over
//! a node with its pods running.

use std::path::{Path, PathBuf};

use polylet_model::PodUid;
use serde::{Deserialize, Serialize};

/// Directory name of emptyDir volumes, and of the `ready` markers of volumes.
pub const EMPTY_DIR: &str = "kubernetes.io~empty-dir";
/// Directory name of ConfigMap volumes.
pub const CONFIG_MAP: &str = "kubernetes.io~configmap";
/// Directory name of Secret volumes.
pub const SECRET: &str = "kubernetes.io~secret";
/// Directory name of downward API volumes.
pub const DOWNWARD_API: &str = "kubernetes.io~downward-api";
/// Directory name of projected volumes.
pub const PROJECTED: &str = "kubernetes.io~projected";
/// Plugin name of hostPath volumes, which have no directory here.
pub const HOST_PATH: &str = "kubernetes.io~host-path";
/// Directory name of local persistent volumes.
pub const LOCAL: &str = "kubernetes.io~local-volume";
/// Directory name of NFS volumes.
pub const NFS: &str = "kubernetes.io~nfs";
/// Directory name of volumes of CSI drivers.
pub const CSI: &str = "kubernetes.io~csi";
/// Plugin name of block devices of CSI drivers.
pub const CSI_DEVICE: &str = "devices/kubernetes.io~csi";
/// Plugin name of block devices that are local persistent volumes.
pub const LOCAL_DEVICE: &str = "devices/kubernetes.io~local-volume";
/// Directory of a pod's links to its block devices.
pub const DEVICES: &str = "volumeDevices";
/// Plugin name of a claim whose volume is not known yet.
pub const UNRESOLVED: &str = "";
/// Directory of the bind mounts of subPaths.
pub const SUB_PATHS: &str = "volume-subpaths";
/// Directory of this service's own metadata of a pod.
pub const METADATA: &str = "polylet.dev~volume";

/// A volume within its pod: plugin name and volume name.
pub type VolumeKey = (String, String);

/// Identifies one volume of one pod.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct VolumeId {
    /// The uid of the pod.
    pub uid: PodUid,
    /// The plugin name.
    pub plugin: String,
    /// The name of the volume in the pod, or of the persistent volume.
    pub name: String,
}

impl VolumeId {
    /// The volume `name` of plugin `plugin` in pod `uid`.
    pub fn new(uid: impl Into<PodUid>, plugin: &str, name: &str) -> Self {
        let (uid, plugin, name) = (uid.into(), plugin.into(), name.into());
        Self { uid, plugin, name }
    }

    /// The volume within its pod.
    pub fn key(&self) -> VolumeKey {
        (self.plugin.clone(), self.name.clone())
    }
}

/// Whether the content of such a volume belongs to the pod and is deleted with it. The content of
/// all other volumes is never deleted.
pub fn is_owned(plugin: &str) -> bool {
    [EMPTY_DIR, CONFIG_MAP, SECRET, DOWNWARD_API, PROJECTED].contains(&plugin)
}

/// Whether the volume consists of files that the atomic writer writes.
pub fn is_files(plugin: &str) -> bool {
    plugin != EMPTY_DIR && is_owned(plugin)
}

/// Whether such a volume is always a tmpfs.
pub fn in_memory(plugin: &str) -> bool {
    [SECRET, DOWNWARD_API, PROJECTED].contains(&plugin)
}

/// The paths below the root directory.
#[derive(Debug, Clone)]
pub struct Layout {
    root: PathBuf,
}

impl Layout {
    /// The layout under `root`.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// The root directory.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The directory of all pods.
    pub fn pods(&self) -> PathBuf {
        self.root.join("pods")
    }

    /// The directory of a pod.
    pub fn pod(&self, uid: &str) -> PathBuf {
        self.pods().join(uid)
    }

    /// The directory of a volume, or the link to a block device.
    pub fn volume(&self, id: &VolumeId) -> PathBuf {
        let pod = self.pod(&id.uid);
        match device_plugin(&id.plugin) {
            Some(plugin) => pod.join(DEVICES).join(plugin).join(&id.name),
            None => pod.join("volumes").join(&id.plugin).join(&id.name),
        }
    }

    /// The path that containers mount.
    pub fn mounted(&self, id: &VolumeId) -> PathBuf {
        let volume = self.volume(id);
        match id.plugin.as_str() {
            // Beside it is `vol_data.json`.
            CSI => volume.join("mount"),
            _ => volume,
        }
    }

    /// The directory of the volumes of CSI drivers on this node.
    pub fn csi_plugins(&self) -> PathBuf {
        self.root.join("plugins/kubernetes.io/csi")
    }

    /// The staging path of a CSI volume; `volume` is the digest of its handle.
    pub fn staging(&self, driver: &str, volume: &str) -> PathBuf {
        let drivers = self.csi_plugins();
        drivers.join(driver).join(volume).join("globalmount")
    }

    /// The bind mount of a pod's block device.
    pub fn device(&self, id: &VolumeId) -> PathBuf {
        let all = match id.plugin.as_str() {
            CSI_DEVICE => self.csi_devices().join(&id.name).join("dev"),
            _ => {
                let local = "plugins/kubernetes.io/local-volume/volumeDevices";
                self.root.join(local).join(&id.name)
            }
        };
        all.join(id.uid.as_str())
    }

    /// The mount of a disk that is a local persistent volume, shared by its pods.
    pub fn local_disk(&self, name: &str) -> PathBuf {
        let all = self.root.join("plugins/kubernetes.io/local-volume/mounts");
        all.join(name)
    }

    /// The directory of the block devices of CSI drivers, by persistent volume.
    pub fn csi_devices(&self) -> PathBuf {
        self.root.join("plugins/kubernetes.io/csi/volumeDevices")
    }

    /// The directory in which plugins register.
    pub fn plugins_registry(&self) -> PathBuf {
        self.root.join("plugins_registry")
    }

    /// The directory of the subPath mounts of a volume.
    pub fn sub_paths(&self, uid: &str, volume: &str) -> PathBuf {
        self.pod(uid).join(SUB_PATHS).join(volume)
    }

    /// The metadata file of a pod.
    pub fn metadata(&self, uid: &str) -> PathBuf {
        self.pod(uid)
            .join("plugins")
            .join(METADATA)
            .join("pod.json")
    }
}

/// The bind mount of a subPath, below the pod's directory.
pub fn sub_path(pod: &Path, volume: &str, container: &str, mount_index: u32) -> PathBuf {
    let volume = pod.join(SUB_PATHS).join(volume);
    volume.join(container).join(mount_index.to_string())
}

/// The directory, relative to the pod's, of the marker `ready` of a volume that has been set up.
/// Upstream implements volumes of files as wrapped emptyDirs, which shows in the name.
pub fn marker(id: &VolumeId) -> PathBuf {
    let name = match id.plugin.as_str() {
        EMPTY_DIR => id.name.clone(),
        _ => format!("wrapped_{}", id.name),
    };
    Path::new("plugins").join(EMPTY_DIR).join(name)
}

/// The directory name of a plugin of block devices.
pub fn device_plugin(plugin: &str) -> Option<&str> {
    plugin.strip_prefix("devices/")
}

/// Whether a pod's uid, which comes from outside, is safe as the name of a directory.
pub fn is_safe_uid(uid: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    !uid.is_empty() && uid.len() <= 128 && !uid.starts_with('.') && uid.chars().all(allowed)
}

/// Whether the name of a persistent volume is safe as the name of a directory: a DNS subdomain.
pub fn is_safe_spec_name(name: &str) -> bool {
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-.".contains(c);
    !name.is_empty() && name.len() <= 253 && !name.starts_with('.') && name.chars().all(allowed)
}

/// The directory name of a volume whose name is not that of an API object, escaped as upstream;
/// `None` if it cannot be one.
pub fn escaped_spec_name(name: &str) -> Option<String> {
    let escaped = name.replace('/', "~");
    let is_safe = !escaped.is_empty()
        && escaped.len() <= 255
        && !escaped.starts_with('.')
        && !escaped.contains('\0');
    is_safe.then_some(escaped)
}

/// Whether a volume's name is a DNS label, as the API requires.
pub fn is_safe_volume_name(name: &str) -> bool {
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let ends = |c: Option<char>| c.is_some_and(|c| c != '-');
    let len = 1..=63;
    len.contains(&name.len())
        && name.chars().all(allowed)
        && ends(name.chars().next())
        && ends(name.chars().next_back())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_those_of_the_kubelet() {
        let layout = Layout::new("/r");
        let id = VolumeId::new("u1", CONFIG_MAP, "conf");
        assert_eq!(
            layout.volume(&id),
            Path::new("/r/pods/u1/volumes/kubernetes.io~configmap/conf")
        );
        assert_eq!(
            marker(&id),
            Path::new("plugins/kubernetes.io~empty-dir/wrapped_conf")
        );
        let id = VolumeId::new("u1", CSI_DEVICE, "pv");
        assert_eq!(
            layout.volume(&id),
            Path::new("/r/pods/u1/volumeDevices/kubernetes.io~csi/pv")
        );
        assert_eq!(
            layout.device(&id),
            Path::new("/r/plugins/kubernetes.io/csi/volumeDevices/pv/dev/u1")
        );
        let id = VolumeId::new("u1", LOCAL_DEVICE, "pv");
        assert_eq!(
            layout.device(&id),
            Path::new("/r/plugins/kubernetes.io/local-volume/volumeDevices/pv/u1")
        );
        let id = VolumeId::new("u1", EMPTY_DIR, "tmp");
        assert_eq!(
            marker(&id),
            Path::new("plugins/kubernetes.io~empty-dir/tmp")
        );
    }

    #[test]
    fn unsafe_names_are_refused() {
        for bad in ["", ".", "..", "a/b", "../a", "a b", "\0"] {
            assert!(!is_safe_uid(bad), "{bad:?}");
            assert!(!is_safe_volume_name(bad), "{bad:?}");
        }
        for bad in ["A", "-a", "a-", "a.b", &"a".repeat(64)] {
            assert!(!is_safe_volume_name(bad), "{bad:?}");
        }
        assert!(is_safe_uid("0a1b-9f_x.y"));
        assert!(is_safe_volume_name("kube-api-access-x7"));
    }
}
