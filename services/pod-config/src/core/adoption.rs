//! A static pod that runs keeps its uid for as long as its manifest is the one that it was made from,
//! whichever agent made it, so that it is not restarted.
//!
//! The uid of a kubelet of the same version is the generated one ([`super::kubelet_uid`]). Those of other
//! kubelets and of former versions of Polylet are found: an agent makes a directory
//! `<namespace>_<name>_<uid>` for the logs of each pod when it first starts the pod. A directory is of the
//! present manifest if its uid is known to be, or if the manifest has not changed since the directory was
//! made; a manifest that was changed while no node agent ran is another pod, as it would be to the kubelet.
//! The uid in the name is that of the annotation `kubernetes.io/config.hash` on the pod's sandbox, but
//! needs no container runtime, which may start later than the static pods are known.
//!
//! The uid is remembered under the fingerprint of the manifest, which all versions of Polylet compute
//! alike, so that neither a later version nor a former one gives the pod another.

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

/// What is known of the uids that pods run under.
#[derive(Clone, Debug, Default)]
pub struct Adoption {
    /// Uids by the fingerprints of their manifests; these are persisted.
    pub uids: BTreeMap<String, String>,
    /// Log directories at the start of this process.
    pub directories: Arc<[PodLogDirectory]>,
    /// When the manifest last changed; `None` if unknown.
    pub changed_at: Option<Timestamp>,
}

/// Uids that a manifest gives its pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManifestUids {
    /// Identifies the manifest; also the pod's uid in former versions of Polylet.
    pub fingerprint: String,
    /// The uid of a new pod.
    pub generated: String,
}

impl Adoption {
    /// The uid of a static pod.
    pub fn uid<'a>(&'a self, own: &'a ManifestUids, namespace: &str, name: &str) -> &'a str {
        let remembered = self.uids.get(&own.fingerprint).map(String::as_str);
        let of_manifest =
            |uid: &str| uid == own.fingerprint || uid == own.generated || remembered == Some(uid);
        // An agent that starts the pod under another uid ends it under the former one.
        let running = self
            .directories
            .iter()
            .filter(|directory| directory.namespace == namespace && directory.name == name)
            .filter(|directory| {
                let unchanged = self.changed_at.is_some_and(|at| directory.created_at >= at);
                unchanged || of_manifest(&directory.uid)
            })
            .max_by_key(|directory| (directory.created_at, of_manifest(&directory.uid)))
            .map(|directory| directory.uid.as_str());
        running.or(remembered).unwrap_or(&own.generated)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FINGERPRINT: &str = "f0000000000000000000000000000001";
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

    fn own() -> ManifestUids {
        ManifestUids {
            fingerprint: FINGERPRINT.to_owned(),
            generated: GENERATED.to_owned(),
        }
    }

    fn directory(name: &str, uid: &str, at: i64) -> PodLogDirectory {
        PodLogDirectory {
            namespace: "kube-system".to_owned(),
            name: name.to_owned(),
            uid: uid.to_owned(),
            created_at: second(at),
        }
    }

    #[test]
    fn a_uid_is_adopted_unless_the_manifest_changed_since() {
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
                vec![kubelet(), directory("etcd-n1", GENERATED, 110)],
                Some(40),
                GENERATED,
                "runs under its own uid",
            ),
            (
                vec![directory("etcd-n1", GENERATED, 100), kubelet()],
                Some(40),
                GENERATED,
                "its own uid, made at the same time",
            ),
            (
                vec![directory("etcd-n1", GENERATED, 80), kubelet()],
                Some(40),
                KUBELET,
                "a kubelet of another version took over",
            ),
            (
                vec![directory("etcd-n1", FINGERPRINT, 80)],
                Some(101),
                FINGERPRINT,
                "started by a former version of Polylet, its manifest written anew",
            ),
            (
                vec![directory("etcd-n1", GENERATED, 80)],
                Some(101),
                GENERATED,
                "its manifest written anew",
            ),
        ] {
            let adoption = Adoption {
                directories: directories.into(),
                changed_at: changed_at.map(second),
                ..Adoption::default()
            };
            let uid = adoption.uid(&own(), "kube-system", "etcd-n1").to_owned();
            assert_eq!(uid, expected, "{case}");
        }
    }

    #[test]
    fn a_remembered_uid_stays_until_another_agent_replaces_the_pod() {
        let uids = [(FINGERPRINT.to_owned(), KUBELET.to_owned())].into();
        let mut adoption = Adoption {
            uids,
            ..Adoption::default()
        };
        let uid = |adoption: &Adoption, own: &ManifestUids| {
            adoption.uid(own, "kube-system", "etcd-n1").to_owned()
        };
        assert_eq!(uid(&adoption, &own()), KUBELET);
        let changed = ManifestUids {
            fingerprint: OLDER.to_owned(),
            ..own()
        };
        assert_eq!(uid(&adoption, &changed), GENERATED);
        adoption.changed_at = Some(second(200));
        adoption.directories = [directory("etcd-n1", KUBELET, 100)].into();
        assert_eq!(uid(&adoption, &own()), KUBELET, "its manifest written anew");
        let replaced = directory("etcd-n1", GENERATED, 110);
        adoption.directories = [directory("etcd-n1", KUBELET, 100), replaced].into();
        assert_eq!(uid(&adoption, &own()), GENERATED);
    }
}
