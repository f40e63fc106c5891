//! Where things are under the root directory: upstream's layout to the letter, so that a node can
//! change hands with its pods running.

use std::path::{Path, PathBuf};

/// Directory name of emptyDir volumes, and of the markers that say a volume was set up.
pub const EMPTY_DIR: &str = "kubernetes.io~empty-dir";
/// Directory name of ConfigMap volumes.
pub const CONFIG_MAP: &str = "kubernetes.io~configmap";
/// Directory name of Secret volumes.
pub const SECRET: &str = "kubernetes.io~secret";
/// Directory name of downward API volumes.
pub const DOWNWARD_API: &str = "kubernetes.io~downward-api";
/// Directory name of projected volumes.
pub const PROJECTED: &str = "kubernetes.io~projected";
/// Names hostPath volumes; nothing of theirs lies under the root directory.
pub const HOST_PATH: &str = "kubernetes.io~host-path";
/// Directory name of local persistent volumes.
pub const LOCAL: &str = "kubernetes.io~local-volume";
/// Directory name of volumes of CSI drivers.
pub const CSI: &str = "kubernetes.io~csi";
/// Block devices of CSI drivers: what pods have of them lies beside their volumes.
pub const CSI_DEVICE: &str = "devices/kubernetes.io~csi";
/// Block devices of local persistent volumes.
pub const LOCAL_DEVICE: &str = "devices/kubernetes.io~local-volume";
/// Directory of a pod's links to block devices.
pub const DEVICES: &str = "volumeDevices";
/// Stands for a plugin that is not known yet; nothing lies there.
pub const UNRESOLVED: &str = "";
/// Directory of what containers mount instead of a whole volume.
pub const SUB_PATHS: &str = "volume-subpaths";
/// Directory of what we note about a pod's volumes ourselves.
pub const OWN: &str = "polylet.dev~volume";

/// Names one volume of one pod, also one found on disk.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VolumeId {
    /// The pod.
    pub uid: String,
    /// The directory name of the volume's plugin.
    pub plugin: String,
    /// The volume's name in the pod.
    pub name: String,
}

impl VolumeId {
    /// The volume `name` of plugin `plugin` in pod `uid`.
    pub fn new(uid: &str, plugin: &str, name: &str) -> Self {
        let (uid, plugin, name) = (uid.into(), plugin.into(), name.into());
        Self { uid, plugin, name }
    }
}

/// Whether what lies in such a volume was put there by a node agent or by the pod itself, and goes
/// with it. What lies in any other was there before and is never removed.
pub fn is_ours(plugin: &str) -> bool {
    [EMPTY_DIR, CONFIG_MAP, SECRET, DOWNWARD_API, PROJECTED].contains(&plugin)
}

/// Whether the volume's files come from objects and are written by the atomic writer.
pub fn is_files(plugin: &str) -> bool {
    plugin != EMPTY_DIR && is_ours(plugin)
}

/// Whether such a volume is always in memory.
pub fn in_memory(plugin: &str) -> bool {
    [SECRET, DOWNWARD_API, PROJECTED].contains(&plugin)
}

/// The root directory and the names below it.
#[derive(Debug, Clone)]
pub struct Layout {
    root: PathBuf,
}

impl Layout {
    /// The layout under `root`.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// Where all pods are.
    pub fn pods(&self) -> PathBuf {
        self.root.join("pods")
    }

    /// One pod's directory.
    pub fn pod(&self, uid: &str) -> PathBuf {
        self.pods().join(uid)
    }

    /// One volume's directory.
    pub fn volume(&self, id: &VolumeId) -> PathBuf {
        let pod = self.pod(&id.uid);
        match device_of(&id.plugin) {
            Some(plugin) => pod.join(DEVICES).join(plugin).join(&id.name),
            None => pod.join("volumes").join(&id.plugin).join(&id.name),
        }
    }

    /// Where containers find the volume.
    pub fn mounted(&self, id: &VolumeId) -> PathBuf {
        let volume = self.volume(id);
        match id.plugin.as_str() {
            // What its driver is told of it lies beside.
            CSI => volume.join("mount"),
            _ => volume,
        }
    }

    /// Where a driver's volume is mounted for the whole node; `volume` is the hash of its handle.
    pub fn staged(&self, driver: &str, volume: &str) -> PathBuf {
        let drivers = self.root.join("plugins/kubernetes.io/csi");
        drivers.join(driver).join(volume).join("globalmount")
    }

    /// Where a block device of a pod is bound for as long as the pod has it.
    pub fn device(&self, id: &VolumeId) -> PathBuf {
        let all = match id.plugin.as_str() {
            CSI_DEVICE => self.csi_devices().join(&id.name).join("dev"),
            _ => {
                let local = "plugins/kubernetes.io/local-volume/volumeDevices";
                self.root.join(local).join(&id.name)
            }
        };
        all.join(&id.uid)
    }

    /// Where a disk that is a local persistent volume is mounted for the whole node.
    pub fn local_disk(&self, name: &str) -> PathBuf {
        let all = self.root.join("plugins/kubernetes.io/local-volume/mounts");
        all.join(name)
    }

    /// What is told of the block devices of CSI drivers, by persistent volume.
    pub fn csi_devices(&self) -> PathBuf {
        self.root.join("plugins/kubernetes.io/csi/volumeDevices")
    }

    /// Where drivers make themselves known.
    pub fn plugins_registry(&self) -> PathBuf {
        self.root.join("plugins_registry")
    }

    /// Where parts of one of its volumes are bound for containers.
    pub fn sub_paths(&self, uid: &str, volume: &str) -> PathBuf {
        self.pod(uid).join(SUB_PATHS).join(volume)
    }

    /// The pod's note about its volumes.
    pub fn note(&self, uid: &str) -> PathBuf {
        self.pod(uid).join("plugins").join(OWN).join("pod.json")
    }
}

/// Where, below a pod's directory, a part of a volume is bound for a container's mount.
pub fn sub_path(pod: &Path, volume: &str, container: &str, mount_index: u32) -> PathBuf {
    let volume = pod.join(SUB_PATHS).join(volume);
    volume.join(container).join(mount_index.to_string())
}

/// Below the pod's directory: the directory in which `ready` says that the volume was set up.
/// Volumes made of files wrap an emptyDir, and upstream's marker says so.
pub fn marker(id: &VolumeId) -> PathBuf {
    let name = match id.plugin.as_str() {
        EMPTY_DIR => id.name.clone(),
        _ => format!("wrapped_{}", id.name),
    };
    Path::new("plugins").join(EMPTY_DIR).join(name)
}

/// The plugin in whose directory the links to its block devices lie, if its volumes are that.
pub fn device_of(plugin: &str) -> Option<&str> {
    plugin.strip_prefix("devices/")
}

/// Whether a pod's uid can name a directory. Uids come from outside.
pub fn is_safe_uid(uid: &str) -> bool {
    let known = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    !uid.is_empty() && uid.len() <= 128 && !uid.starts_with('.') && uid.chars().all(known)
}

/// Whether the name of a persistent volume can name a directory: a DNS subdomain.
pub fn is_safe_spec_name(name: &str) -> bool {
    let known = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-.".contains(c);
    !name.is_empty() && name.len() <= 253 && !name.starts_with('.') && name.chars().all(known)
}

/// Whether a volume's name is the DNS label that the API asks for.
pub fn is_safe_volume_name(name: &str) -> bool {
    let known = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let ends = |c: Option<char>| c.is_some_and(|c| c != '-');
    let len = 1..=63;
    len.contains(&name.len())
        && name.chars().all(known)
        && ends(name.chars().next())
        && ends(name.chars().next_back())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_upstreams() {
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
    fn names_that_could_leave_the_tree_are_refused() {
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
