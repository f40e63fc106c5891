//! Static pods that a kubelet left running keep their uid, so that they are not restarted.
//!
//! The kubelet's uid of a static pod is a hash of a dump of its own Go structures. It differs between
//! versions of the kubelet and cannot be computed here, so it is found: the kubelet makes a directory
//! `<namespace>_<name>_<uid>` for the logs of each pod when it first starts the pod. A pod takes over
//! the uid of such a directory if its manifest has not changed since the directory was made; one that
//! was changed while no node agent ran is another pod, as it would be to the kubelet. The uid in the
//! name is that of the annotation `kubernetes.io/config.hash` on the pod's sandbox, but needs no
//! container runtime, which may start later than the static pods are known.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;

/// The log directory of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodLogDirectory {
    /// Namespace of the pod.
    pub namespace: String,
    /// Name of the pod, with the node name.
    pub name: String,
    /// The uid, also of the pod's sandbox.
    pub uid: String,
    /// When the directory was made.
    pub created_at: Timestamp,
}

impl PodLogDirectory {
    /// From the name of a directory; `None` if it is not that of a static pod whose uid a node agent
    /// has generated. The API server's uids have another form.
    pub fn from_name(directory: &str, created_at: Timestamp) -> Option<PodLogDirectory> {
        let mut parts = directory.split('_');
        let (namespace, name, uid) = (parts.next()?, parts.next()?, parts.next()?);
        let is_hex = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
        let is_generated = uid.len() == 32 && uid.bytes().all(is_hex);
        let is_complete = parts.next().is_none() && !namespace.is_empty() && !name.is_empty();
        (is_generated && is_complete).then(|| PodLogDirectory {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            uid: uid.to_owned(),
            created_at,
        })
    }
}

/// The uids to adopt.
#[derive(Clone, Debug, Default)]
pub struct Adoption {
    /// Adopted uids by generated ones; these are persisted.
    pub adopted: BTreeMap<String, String>,
    /// Log directories at the start of this process.
    pub directories: Arc<[PodLogDirectory]>,
    /// When the manifest last changed; `None` if unknown, for which nothing is adopted.
    pub changed_at: Option<Timestamp>,
}

impl Adoption {
    /// The uid of a static pod whose generated uid is `generated`.
    pub fn uid<'a>(&'a self, generated: &'a str, namespace: &str, name: &str) -> &'a str {
        if let Some(adopted) = self.adopted.get(generated) {
            return adopted;
        }
        let Some(changed_at) = self.changed_at else {
            return generated;
        };
        let is_of_pod = |directory: &&PodLogDirectory| {
            directory.namespace == namespace && directory.name == name
        };
        let of_pod = || self.directories.iter().filter(is_of_pod);
        // It already runs under its own uid.
        if of_pod().any(|directory| directory.uid == generated) {
            return generated;
        }
        of_pod()
            .filter(|directory| directory.created_at >= changed_at)
            .max_by_key(|directory| directory.created_at)
            .map_or(generated, |directory| &directory.uid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GENERATED: &str = "00000000000000000000000000000001";
    const KUBELET: &str = "8cd7ba3c5c3ea8ff1f3ffa1d1f5ae6ab";
    const OLDER: &str = "c3f1d09bd1b6c8a1a1fb0bb1b6d8e4d2";

    fn second(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn log_directories_of_static_pods_are_recognized() {
        let of = |name: &str| {
            let directory = PodLogDirectory::from_name(name, second(1))?;
            Some((directory.namespace, directory.name, directory.uid))
        };
        // As a kubelet makes them, beside the annotation kubernetes.io/config.hash of the sandbox.
        for (name, pod, config_hash) in [
            (
                "kube-system_etcd-kind-control-plane_8cd7ba3c5c3ea8ff1f3ffa1d1f5ae6ab",
                ("kube-system", "etcd-kind-control-plane"),
                "8cd7ba3c5c3ea8ff1f3ffa1d1f5ae6ab",
            ),
            (
                "kube-system_kube-apiserver-n1.example.com_c3f1d09bd1b6c8a1a1fb0bb1b6d8e4d2",
                ("kube-system", "kube-apiserver-n1.example.com"),
                "c3f1d09bd1b6c8a1a1fb0bb1b6d8e4d2",
            ),
        ] {
            let (namespace, pod) = (pod.0.to_owned(), pod.1.to_owned());
            assert_eq!(of(name), Some((namespace, pod, config_hash.to_owned())));
        }
        for other in [
            "default_web_0b7b3e1c-55d5-4d6f-9d8f-6a4b0a3f2a11",
            "default_web_8CD7BA3C5C3EA8FF1F3FFA1D1F5AE6AB",
            "default_web_8cd7ba3c",
            "default__8cd7ba3c5c3ea8ff1f3ffa1d1f5ae6ab",
            "a_b_8cd7ba3c5c3ea8ff1f3ffa1d1f5ae6ab_d",
            "lost+found",
            "",
        ] {
            assert_eq!(of(other), None, "{other}");
        }
    }

    #[test]
    fn a_uid_is_adopted_unless_the_manifest_changed_since() {
        let directory = |name: &str, uid: &str, at: i64| PodLogDirectory {
            namespace: "kube-system".to_owned(),
            name: name.to_owned(),
            uid: uid.to_owned(),
            created_at: second(at),
        };
        let kubelet = || directory("etcd-n1", KUBELET, 100);
        for (directories, changed_at, expected, case) in [
            (vec![kubelet()], Some(90), KUBELET, "left running"),
            (vec![kubelet()], Some(100), KUBELET, "started at once"),
            (vec![kubelet()], Some(101), GENERATED, "changed since"),
            (vec![kubelet()], None, GENERATED, "unknown change"),
            (vec![], Some(90), GENERATED, "never ran"),
            (
                vec![directory("etcd-n2", KUBELET, 100)],
                Some(90),
                GENERATED,
                "another pod",
            ),
            (
                vec![directory("etcd-n1", OLDER, 50), kubelet()],
                Some(40),
                KUBELET,
                "the newer of two",
            ),
            (
                vec![directory("etcd-n1", GENERATED, 80), kubelet()],
                Some(40),
                GENERATED,
                "runs under its own uid",
            ),
        ] {
            let adoption = Adoption {
                directories: directories.into(),
                changed_at: changed_at.map(second),
                ..Adoption::default()
            };
            let uid = adoption.uid(GENERATED, "kube-system", "etcd-n1");
            assert_eq!(uid, expected, "{case}");
        }
    }

    #[test]
    fn an_adopted_uid_stays() {
        let adoption = Adoption {
            adopted: [(GENERATED.to_owned(), KUBELET.to_owned())].into(),
            ..Adoption::default()
        };
        assert_eq!(adoption.uid(GENERATED, "kube-system", "etcd-n1"), KUBELET);
        assert_eq!(adoption.uid(OLDER, "kube-system", "etcd-n1"), OLDER);
    }
}
