//! Names of directories and files that other programs depend on.

use std::path::{Path, PathBuf};

use crate::ids::{ContainerId, PodUid};

/// The longest file name of common file systems.
const MAX_FILE_NAME: usize = 255;

/// `<namespace>_<name>_<uid>`: the name of a pod's log directory.
pub fn pod_log_dir_name(namespace: &str, name: &str, uid: &PodUid) -> String {
    format!("{namespace}_{name}_{uid}")
}

/// A pod's log directory below `pod_logs_dir` (`/var/log/pods`).
pub fn pod_log_dir(pod_logs_dir: &Path, namespace: &str, name: &str, uid: &PodUid) -> PathBuf {
    pod_logs_dir.join(pod_log_dir_name(namespace, name, uid))
}

/// Parses the name of a pod's log directory.
pub fn parse_pod_log_dir(dir_name: &str) -> Option<(&str, &str, PodUid)> {
    let mut parts = dir_name.split('_');
    let (namespace, name, uid) = (parts.next()?, parts.next()?, parts.next()?);
    let is_complete = parts.next().is_none() && ![namespace, name, uid].contains(&"");
    is_complete.then(|| (namespace, name, PodUid::from(uid)))
}

/// `<container>/<attempt>.log`, relative to the pod's log directory: the CRI's `log_path`.
pub fn container_log_path(container: &str, attempt: u32) -> String {
    format!("{container}/{attempt}.log")
}

/// The name of the link in `/var/log/containers` for log collectors, truncated to the longest file
/// name.
pub fn container_log_link(
    name: &str,
    namespace: &str,
    container: &str,
    id: &ContainerId,
) -> String {
    let suffix = ".log";
    let mut link = format!("{name}_{namespace}_{container}-{id}");
    let mut end = MAX_FILE_NAME - suffix.len();
    if link.len() > end {
        while !link.is_char_boundary(end) {
            end -= 1;
        }
        link.truncate(end);
    }
    link + suffix
}

/// `<root>/pods/<uid>`: the directory of a pod.
pub fn pod_dir(root: &Path, uid: &PodUid) -> PathBuf {
    root.join("pods").join(uid.as_str())
}

/// `<root>/pods/<uid>/volumes`.
pub fn pod_volumes_dir(root: &Path, uid: &PodUid) -> PathBuf {
    pod_dir(root, uid).join("volumes")
}

/// `<root>/pods/<uid>/volumes/<plugin>/<volume>`, with the slash of a plugin's
/// name (`kubernetes.io/empty-dir`) written as `~`.
pub fn volume_dir(root: &Path, uid: &PodUid, plugin: &str, volume: &str) -> PathBuf {
    pod_volumes_dir(root, uid)
        .join(plugin.replace('/', "~"))
        .join(volume)
}

/// `<root>/pods/<uid>/containers/<name>`: the directory of a container's termination messages.
pub fn container_dir(root: &Path, uid: &PodUid, container: &str) -> PathBuf {
    pod_dir(root, uid).join("containers").join(container)
}

/// `<root>/pods/<uid>/containers/<name>/<8 hex digits>`: the termination message of one attempt. The
/// digits are random upstream; here they follow from the attempt, so that a repeated creation finds
/// the same file.
pub fn termination_log(root: &Path, uid: &PodUid, container: &str, attempt: u32) -> PathBuf {
    let digits = crate::hash::fnv1a_32(format!("{uid}/{container}/{attempt}").as_bytes());
    container_dir(root, uid, container).join(format!("{digits:08x}"))
}

/// `<root>/pods/<uid>/etc-hosts`.
pub fn etc_hosts(root: &Path, uid: &PodUid) -> PathBuf {
    pod_dir(root, uid).join("etc-hosts")
}

/// `<name>_<namespace>`: unique among the pods of a node at one time.
pub fn full_name(name: &str, namespace: &str) -> String {
    format!("{name}_{namespace}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_as_upstream() {
        let uid = PodUid::from("1-2");
        assert_eq!(pod_log_dir_name("default", "web", &uid), "default_web_1-2");
        assert_eq!(
            parse_pod_log_dir("default_web_1-2"),
            Some(("default", "web", uid.clone()))
        );
        for wrong in ["", "a_b", "a_b_c_d", "a__c", "web"] {
            assert_eq!(parse_pod_log_dir(wrong), None, "{wrong}");
        }
        assert_eq!(container_log_path("app", 3), "app/3.log");
        assert_eq!(
            container_log_link("web", "ns", "app", &"c1".into()),
            "web_ns_app-c1.log"
        );
        assert_eq!(
            volume_dir(Path::new("/r"), &uid, "kubernetes.io/empty-dir", "v"),
            Path::new("/r/pods/1-2/volumes/kubernetes.io~empty-dir/v")
        );
    }

    #[test]
    fn long_links_are_truncated_before_the_suffix() {
        let link = container_log_link(&"n".repeat(253), "ns", "app", &"c".into());
        assert_eq!(link.len(), 255);
        assert!(link.ends_with("n.log"));
    }

    #[test]
    fn termination_logs_of_one_attempt_have_one_path() {
        let at = |n| termination_log(Path::new("/r"), &"u".into(), "app", n);
        assert_eq!(at(1), at(1));
        assert_ne!(at(1), at(2));
        assert_eq!(at(1).file_name().map(|n| n.len()), Some(8));
    }
}
