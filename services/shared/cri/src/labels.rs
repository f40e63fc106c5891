//! Labels and annotations of sandboxes and containers.

use std::collections::HashMap;

/// Label: the pod's name.
pub const POD_NAME: &str = "io.kubernetes.pod.name";
/// Label: the pod's namespace.
pub const POD_NAMESPACE: &str = "io.kubernetes.pod.namespace";
/// Label: the pod's uid.
pub const POD_UID: &str = "io.kubernetes.pod.uid";
/// Label: the container's name in the pod.
pub const CONTAINER_NAME: &str = "io.kubernetes.container.name";

/// Annotation: the hash of the container's spec, in hex.
pub const CONTAINER_HASH: &str = "io.kubernetes.container.hash";
/// Annotation: the container's restart count.
pub const RESTART_COUNT: &str = "io.kubernetes.container.restartCount";
/// Annotation: the path of the container's termination message.
pub const TERMINATION_MESSAGE_PATH: &str = "io.kubernetes.container.terminationMessagePath";
/// Annotation: `File` or `FallbackToLogsOnError`.
pub const TERMINATION_MESSAGE_POLICY: &str = "io.kubernetes.container.terminationMessagePolicy";
/// Annotation: the preStop handler as JSON, for pods without a manifest.
pub const PRE_STOP_HANDLER: &str = "io.kubernetes.container.preStopHandler";
/// Annotation: the container's ports as JSON, for pods without a manifest.
pub const PORTS: &str = "io.kubernetes.container.ports";
/// Annotation: the pod's grace period in seconds, for pods without a manifest.
pub const POD_TERMINATION_GRACE: &str = "io.kubernetes.pod.terminationGracePeriod";
/// Annotation: the grace period of the pod's deletion in seconds.
pub const POD_DELETION_GRACE: &str = "io.kubernetes.pod.deletionGracePeriod";

/// The pod of a sandbox or container, from its labels.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodLabels {
    /// The pod's uid.
    pub uid: String,
    /// The pod's namespace.
    pub namespace: String,
    /// The pod's name.
    pub name: String,
}

impl PodLabels {
    /// Reads the labels; `None` if they are incomplete, as for containers of other clients.
    pub fn read(labels: &HashMap<String, String>) -> Option<Self> {
        let text = |key| labels.get(key).filter(|v: &&String| !v.is_empty()).cloned();
        Some(Self {
            uid: text(POD_UID)?,
            namespace: text(POD_NAMESPACE)?,
            name: text(POD_NAME)?,
        })
    }

    /// Writes the labels, and replaces the pod's own ones of the same names.
    pub fn write(&self, labels: &mut HashMap<String, String>) {
        labels.insert(POD_UID.to_owned(), self.uid.clone());
        labels.insert(POD_NAMESPACE.to_owned(), self.namespace.clone());
        labels.insert(POD_NAME.to_owned(), self.name.clone());
    }
}

/// The container's name, from its labels.
pub fn container_name(labels: &HashMap<String, String>) -> Option<&str> {
    labels
        .get(CONTAINER_NAME)
        .map(String::as_str)
        .filter(|name| !name.is_empty())
}

/// The kubelet's annotations of a container, which can be read without the pod's manifest.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ContainerAnnotations {
    /// The hash of the container's spec.
    pub hash: Option<u64>,
    /// The restart count.
    pub restart_count: Option<u32>,
    /// The path of the termination message; empty for none.
    pub termination_message_path: Option<String>,
    /// `File` or `FallbackToLogsOnError`.
    pub termination_message_policy: Option<String>,
    /// The preStop handler as JSON.
    pub pre_stop_handler: Option<String>,
    /// The ports as JSON.
    pub ports: Option<String>,
    /// The pod's grace period in seconds.
    pub pod_termination_grace: Option<i64>,
    /// The grace period of the pod's deletion in seconds.
    pub pod_deletion_grace: Option<i64>,
}

impl ContainerAnnotations {
    /// Reads the annotations from any map. Missing and invalid ones stay unset.
    pub fn read<'a>(annotation: impl Fn(&str) -> Option<&'a String>) -> Self {
        let text = |key| annotation(key).cloned();
        Self {
            hash: text(CONTAINER_HASH).and_then(|v| u64::from_str_radix(&v, 16).ok()),
            restart_count: text(RESTART_COUNT).and_then(|v| v.parse().ok()),
            termination_message_path: text(TERMINATION_MESSAGE_PATH),
            termination_message_policy: text(TERMINATION_MESSAGE_POLICY),
            pre_stop_handler: text(PRE_STOP_HANDLER),
            ports: text(PORTS),
            pod_termination_grace: text(POD_TERMINATION_GRACE).and_then(|v| v.parse().ok()),
            pod_deletion_grace: text(POD_DELETION_GRACE).and_then(|v| v.parse().ok()),
        }
    }

    /// Writes the annotations that are set.
    pub fn write(&self, annotations: &mut HashMap<String, String>) {
        let mut put = |key: &str, value: Option<String>| {
            if let Some(value) = value {
                annotations.insert(key.to_owned(), value);
            }
        };
        put(CONTAINER_HASH, self.hash.map(|v| format!("{v:x}")));
        put(RESTART_COUNT, self.restart_count.map(|v| v.to_string()));
        put(
            TERMINATION_MESSAGE_PATH,
            self.termination_message_path.clone(),
        );
        put(
            TERMINATION_MESSAGE_POLICY,
            self.termination_message_policy.clone(),
        );
        put(PRE_STOP_HANDLER, self.pre_stop_handler.clone());
        put(PORTS, self.ports.clone());
        put(
            POD_TERMINATION_GRACE,
            self.pod_termination_grace.map(|v| v.to_string()),
        );
        put(
            POD_DELETION_GRACE,
            self.pod_deletion_grace.map(|v| v.to_string()),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn incomplete_labels_are_ignored() {
        let mut labels = HashMap::new();
        assert_eq!(PodLabels::read(&labels), None);
        labels.insert(POD_UID.to_owned(), "u".to_owned());
        labels.insert(POD_NAME.to_owned(), String::new());
        labels.insert(POD_NAMESPACE.to_owned(), "n".to_owned());
        assert_eq!(PodLabels::read(&labels), None);
    }

    #[test]
    fn hashes_are_hexadecimal() {
        let mut annotations = HashMap::new();
        let container = ContainerAnnotations {
            hash: Some(0xbeef),
            ..Default::default()
        };
        container.write(&mut annotations);
        assert_eq!(annotations[CONTAINER_HASH], "beef");
    }

    proptest! {
        #[test]
        fn annotations_round_trip(hash: Option<u64>, restarts: Option<u32>, path: Option<String>, grace: Option<i64>) {
            let container = ContainerAnnotations {
                hash, restart_count: restarts, termination_message_path: path,
                pod_deletion_grace: grace, ..Default::default()
            };
            let mut annotations = HashMap::new();
            container.write(&mut annotations);
            prop_assert_eq!(ContainerAnnotations::read(|key| annotations.get(key)), container);
        }

        #[test]
        fn arbitrary_annotations_never_panic(values: [String; 4]) {
            let keys = [CONTAINER_HASH, RESTART_COUNT, POD_DELETION_GRACE, POD_TERMINATION_GRACE];
            let annotations: HashMap<String, String> = keys.iter().map(|k| (*k).to_owned()).zip(values).collect();
            ContainerAnnotations::read(|key| annotations.get(key));
        }
    }
}
