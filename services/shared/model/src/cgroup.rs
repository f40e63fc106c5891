//! Names of cgroups, for both of the drivers that a runtime can have.

use crate::ids::PodUid;
use crate::qos::QosClass;

/// How cgroups are named and by whom they are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Driver {
    /// Plain directories.
    Cgroupfs,
    /// Slices of systemd.
    Systemd,
}

impl Driver {
    /// Reads the word of the configuration.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "cgroupfs" => Some(Self::Cgroupfs),
            "systemd" => Some(Self::Systemd),
            _ => None,
        }
    }
}

/// Where all pods live below the root.
const KUBEPODS: &str = "kubepods";

/// A cgroup by the names from the root down.
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

    /// The cgroup of a class; Guaranteed pods sit directly below kubepods.
    pub fn class(root: &str, class: QosClass) -> Self {
        let kubepods = Self::kubepods(root);
        match class {
            QosClass::Guaranteed => kubepods,
            QosClass::Burstable => kubepods.child("burstable"),
            QosClass::BestEffort => kubepods.child("besteffort"),
        }
    }

    /// The cgroup of one pod.
    pub fn pod(root: &str, class: QosClass, uid: &PodUid) -> Self {
        Self::class(root, class).child(&format!("pod{uid}"))
    }

    /// A cgroup that the configuration names by its path. Under systemd the last slice alone says
    /// which one it is.
    pub fn configured(path: &str, driver: Driver) -> Self {
        let mut parts = path.split('/').filter(|part| !part.is_empty());
        match driver {
            Driver::Cgroupfs => Self(parts.map(str::to_owned).collect()),
            Driver::Systemd => {
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

    /// The path below the cgroup mount, beginning with a slash.
    pub fn path(&self, driver: Driver) -> String {
        match driver {
            Driver::Cgroupfs => format!("/{}", self.0.join("/")),
            Driver::Systemd => {
                // Each slice repeats the names of those above it; a dash means "below".
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

    /// What the runtime is told as the parent of a pod's containers: the whole
    /// path, or with systemd the last slice alone.
    pub fn parent_for_runtime(&self, driver: Driver) -> String {
        let path = self.path(driver);
        match driver {
            Driver::Cgroupfs => path,
            Driver::Systemd => path.rsplit('/').next().unwrap_or_default().to_owned(),
        }
    }
}

/// A part of cgroupRoot may be given as a slice already.
fn unescape_slice(part: &str) -> String {
    part.strip_suffix(".slice")
        .map_or_else(|| part.to_owned(), |name| name.replace('_', "-"))
}

/// The pod that a directory below kubepods belongs to, in either driver's naming.
pub fn pod_uid_of(dir_name: &str) -> Option<PodUid> {
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
    fn names_in_both_drivers() {
        let uid = PodUid::from("1-2-3");
        let name = |class| CgroupName::pod("/", class, &uid);
        assert_eq!(
            name(QosClass::Guaranteed).path(Driver::Cgroupfs),
            "/kubepods/pod1-2-3"
        );
        assert_eq!(
            name(QosClass::Burstable).path(Driver::Cgroupfs),
            "/kubepods/burstable/pod1-2-3"
        );
        assert_eq!(
            name(QosClass::BestEffort).path(Driver::Systemd),
            "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod1_2_3.slice"
        );
        assert_eq!(
            name(QosClass::Burstable).parent_for_runtime(Driver::Systemd),
            "kubepods-burstable-pod1_2_3.slice"
        );
        assert_eq!(
            name(QosClass::Burstable).parent_for_runtime(Driver::Cgroupfs),
            "/kubepods/burstable/pod1-2-3"
        );
        assert_eq!(
            CgroupName::kubepods("/node/agent").path(Driver::Systemd),
            "/node.slice/node-agent.slice/node-agent-kubepods.slice"
        );
    }

    #[test]
    fn names_from_the_configuration() {
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
            for (driver, path) in [(Driver::Cgroupfs, cgroupfs), (Driver::Systemd, systemd)] {
                assert_eq!(CgroupName::configured(named, driver).path(driver), path);
            }
        }
    }

    #[test]
    fn a_directory_tells_its_pod() {
        for driver in [Driver::Cgroupfs, Driver::Systemd] {
            for class in [
                QosClass::Guaranteed,
                QosClass::Burstable,
                QosClass::BestEffort,
            ] {
                let uid = PodUid::from("0f-1e");
                let path = CgroupName::pod("/", class, &uid).path(driver);
                let last = path.rsplit('/').next().unwrap();
                assert_eq!(pod_uid_of(last), Some(uid), "{path}");
            }
        }
        for other in [
            "kubepods.slice",
            "burstable",
            "kubepods-burstable.slice",
            "pod",
            "system.slice",
        ] {
            assert_eq!(pod_uid_of(other), None, "{other}");
        }
    }
}
