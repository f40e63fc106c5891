//! Names of cgroups, for both cgroup drivers.

use crate::ids::PodUid;
use crate::qos::QosClass;

/// How cgroups are named, and created by whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CgroupDriver {
    /// Directories, created by the kubelet and the runtime.
    Cgroupfs,
    /// Slices, created by systemd.
    Systemd,
}

impl CgroupDriver {
    /// Parses `cgroupDriver` of the configuration.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "cgroupfs" => Some(Self::Cgroupfs),
            "systemd" => Some(Self::Systemd),
            _ => None,
        }
    }
}

/// The cgroup of all pods, below the root.
const KUBEPODS: &str = "kubepods";

/// A cgroup, as the path of names from the root.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CgroupName(Vec<String>);

impl CgroupName {
    /// The cgroup of all pods below `root` (`/` or the configured cgroupRoot).
    pub fn kubepods(root: &str) -> Self {
        let above = root
            .split('/')
            .filter(|part| !part.is_empty())
            .map(unescape_slice);
        Self(above.chain([KUBEPODS.to_owned()]).collect())
    }

    /// The cgroup of a QoS class; Guaranteed pods are directly below kubepods.
    pub fn qos_class(root: &str, class: QosClass) -> Self {
        let kubepods = Self::kubepods(root);
        match class {
            QosClass::Guaranteed => kubepods,
            QosClass::Burstable => kubepods.child("burstable"),
            QosClass::BestEffort => kubepods.child("besteffort"),
        }
    }

    /// The cgroup of one pod.
    pub fn pod(root: &str, class: QosClass, uid: &PodUid) -> Self {
        Self::qos_class(root, class).child(&format!("pod{uid}"))
    }

    /// A cgroup that the configuration names by its path. With systemd, the last slice alone
    /// identifies it.
    pub fn from_config(path: &str, driver: CgroupDriver) -> Self {
        let mut parts = path.split('/').filter(|part| !part.is_empty());
        match driver {
            CgroupDriver::Cgroupfs => Self(parts.map(str::to_owned).collect()),
            CgroupDriver::Systemd => {
                let last = parts.next_back().unwrap_or_default();
                let name = last.strip_suffix(".slice").unwrap_or(last);
                Self(name.split('-').map(|part| part.replace('_', "-")).collect())
            }
        }
    }

    fn child(mut self, name: &str) -> Self {
        self.0.push(name.to_owned());
        self
    }

    /// The path below the cgroup mount, with a leading slash.
    pub fn path(&self, driver: CgroupDriver) -> String {
        match driver {
            CgroupDriver::Cgroupfs => format!("/{}", self.0.join("/")),
            CgroupDriver::Systemd => {
                // A slice's name contains those of its parents, separated by dashes.
                let mut path = String::new();
                let mut prefix = String::new();
                for part in &self.0 {
                    if !prefix.is_empty() {
                        prefix.push('-');
                    }
                    prefix.push_str(&part.replace('-', "_"));
                    path.push('/');
                    path.push_str(&prefix);
                    path.push_str(".slice");
                }
                path
            }
        }
    }

    /// The CRI's `cgroup_parent` of a pod: the whole path, or with systemd the last slice alone.
    pub fn cgroup_parent(&self, driver: CgroupDriver) -> String {
        let path = self.path(driver);
        match driver {
            CgroupDriver::Cgroupfs => path,
            CgroupDriver::Systemd => path.rsplit('/').next().unwrap_or_default().to_owned(),
        }
    }
}

/// An element of `cgroupRoot` may be a slice already.
fn unescape_slice(part: &str) -> String {
    part.strip_suffix(".slice")
        .map_or_else(|| part.to_owned(), |name| name.replace('_', "-"))
}

/// The uid of the pod that a directory below kubepods belongs to, for either driver.
pub fn pod_uid_from_dir_name(dir_name: &str) -> Option<PodUid> {
    let uid = match dir_name.strip_suffix(".slice") {
        Some(slice) => slice
            .rsplit('-')
            .next()?
            .strip_prefix("pod")?
            .replace('_', "-"),
        None => dir_name.strip_prefix("pod")?.to_owned(),
    };
    (!uid.is_empty()).then(|| PodUid::from(uid))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_for_both_drivers() {
        let uid = PodUid::from("1-2-3");
        let name = |class| CgroupName::pod("/", class, &uid);
        assert_eq!(
            name(QosClass::Guaranteed).path(CgroupDriver::Cgroupfs),
            "/kubepods/pod1-2-3"
        );
        assert_eq!(
            name(QosClass::Burstable).path(CgroupDriver::Cgroupfs),
            "/kubepods/burstable/pod1-2-3"
        );
        assert_eq!(
            name(QosClass::BestEffort).path(CgroupDriver::Systemd),
            "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod1_2_3.slice"
        );
        assert_eq!(
            name(QosClass::Burstable).cgroup_parent(CgroupDriver::Systemd),
            "kubepods-burstable-pod1_2_3.slice"
        );
        assert_eq!(
            name(QosClass::Burstable).cgroup_parent(CgroupDriver::Cgroupfs),
            "/kubepods/burstable/pod1-2-3"
        );
        assert_eq!(
            CgroupName::kubepods("/node/agent").path(CgroupDriver::Systemd),
            "/node.slice/node-agent.slice/node-agent-kubepods.slice"
        );
    }

    #[test]
    fn configured_cgroups() {
        for (named, cgroupfs, systemd) in [
            ("/system", "/system", "/system.slice"),
            ("/system.slice", "/system.slice", "/system.slice"),
            ("/kube-node", "/kube-node", "/kube.slice/kube-node.slice"),
            (
                "/kube.slice/kube-node_agent.slice",
                "/kube.slice/kube-node_agent.slice",
                "/kube.slice/kube-node_agent.slice",
            ),
        ] {
            for (driver, path) in [
                (CgroupDriver::Cgroupfs, cgroupfs),
                (CgroupDriver::Systemd, systemd),
            ] {
                assert_eq!(CgroupName::from_config(named, driver).path(driver), path);
            }
        }
    }

    #[test]
    fn pod_uids_of_directories() {
        for driver in [CgroupDriver::Cgroupfs, CgroupDriver::Systemd] {
            for class in [
                QosClass::Guaranteed,
                QosClass::Burstable,
                QosClass::BestEffort,
            ] {
                let uid = PodUid::from("0f-1e");
                let path = CgroupName::pod("/", class, &uid).path(driver);
                let last = path.rsplit('/').next().unwrap();
                assert_eq!(pod_uid_from_dir_name(last), Some(uid), "{path}");
            }
        }
        for other in [
            "kubepods.slice",
            "burstable",
            "kubepods-burstable.slice",
            "pod",
            "system.slice",
        ] {
            assert_eq!(pod_uid_from_dir_name(other), None, "{other}");
        }
    }
}
