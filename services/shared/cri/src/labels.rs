use std::collections::HashMap;

/// Label: the pod's name.
pub const POD_NAME: &str = "io.kubernetes.pod.name";
/// Label: the pod's namespace.
pub const POD_NAMESPACE: &str = "io.kubernetes.pod.namespace";
/// Label: the pod's uid.
pub const POD_UID: &str = "io.kubernetes.pod.uid";
/// Label: the container's name in the pod.
pub const CONTAINER_NAME: &str = "io.kubernetes.container.name";

/// Annotation: hash of the container's spec, in hex.
pub const CONTAINER_HASH: &str = "io.kubernetes.container.hash";
/// Annotation: how often the container was started before.
pub const RESTART_COUNT: &str = "io.kubernetes.container.restartCount";
/// Annotation: where the container writes its last words.
pub const TERMINATION_MESSAGE_PATH: &str = "io.kubernetes.container.terminationMessagePath";
/// Annotation: `File` or `FallbackToLogsOnError`.
pub const TERMINATION_MESSAGE_POLICY: &str = "io.kubernetes.container.terminationMessagePolicy";
/// Annotation: the preStop handler as JSON, for a pod whose spec is gone.
pub const PRE_STOP_HANDLER: &str = "io.kubernetes.container.preStopHandler";
/// Annotation: the container's ports as JSON, likewise.
pub const PORTS: &str = "io.kubernetes.container.ports";
/// Annotation: the pod's grace in seconds, likewise.
pub const POD_TERMINATION_GRACE: &str = "io.kubernetes.pod.terminationGracePeriod";
/// Annotation: the grace its deletion asked for, in seconds.
pub const POD_DELETION_GRACE: &str = "io.kubernetes.pod.deletionGracePeriod";

/// The pod that a sandbox or container says it belongs to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodLabels {
    /// Its uid.
    pub uid: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl PodLabels {
    /// Reads them; `None` for what is not a pod's.
    pub fn read(labels: &HashMap<String, String>) -> Option<Self> {
        let text = |key| labels.get(key).filter(|v: &&String| !v.is_empty()).cloned();
        Some(Self {
            uid: text(POD_UID)?,
            namespace: text(POD_NAMESPACE)?,
            name: text(POD_NAME)?,
        })
    }

    /// Writes them, over whatever the pod's own labels say under these names.
    pub fn write(&self, labels: &mut HashMap<String, String>) {
        labels.insert(POD_UID.to_owned(), self.uid.clone());
        labels.insert(POD_NAMESPACE.to_owned(), self.namespace.clone());
        labels.insert(POD_NAME.to_owned(), self.name.clone());
    }
}

/// The container's name, where the labels have it.
pub fn container_name(labels: &HashMap<String, String>) -> Option<&str> {
    labels
        .get(CONTAINER_NAME)
        .map(String::as_str)
        .filter(|name| !name.is_empty())
}

/// What a container carries about itself, readable without the pod's spec.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ContainerNotes {
    /// Hash of its spec.
    pub hash: Option<u64>,
    /// How often it was started before.
    pub restart_count: Option<u32>,
    /// Where it writes its last words; empty means nowhere.
    pub termination_message_path: Option<String>,
    /// `File` or `FallbackToLogsOnError`.
    pub termination_message_policy: Option<String>,
    /// The preStop handler as JSON.
    pub pre_stop_handler: Option<String>,
    /// The ports as JSON.
    pub ports: Option<String>,
    /// The pod's grace in seconds.
    pub pod_termination_grace: Option<i64>,
    /// The grace its deletion asked for, in seconds.
    pub pod_deletion_grace: Option<i64>,
}

impl ContainerNotes {
    /// Reads them from a map of any kind; what is missing or makes no sense stays unset.
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

    /// Writes what is set.
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
    fn what_is_no_pods_is_not_read() {
        let mut labels = HashMap::new();
        assert_eq!(PodLabels::read(&labels), None);
        labels.insert(POD_UID.to_owned(), "u".to_owned());
        labels.insert(POD_NAME.to_owned(), String::new());
        labels.insert(POD_NAMESPACE.to_owned(), "n".to_owned());
        assert_eq!(PodLabels::read(&labels), None);
    }

    #[test]
    fn the_hash_is_hex() {
        let mut annotations = HashMap::new();
        let notes = ContainerNotes {
            hash: Some(0xbeef),
            ..Default::default()
        };
        notes.write(&mut annotations);
        assert_eq!(annotations[CONTAINER_HASH], "beef");
    }

    proptest! {
        #[test]
        fn notes_come_back(hash: Option<u64>, restarts: Option<u32>, path: Option<String>, grace: Option<i64>) {
            let notes = ContainerNotes {
                hash, restart_count: restarts, termination_message_path: path,
                pod_deletion_grace: grace, ..Default::default()
            };
            let mut annotations = HashMap::new();
            notes.write(&mut annotations);
            prop_assert_eq!(ContainerNotes::read(|key| annotations.get(key)), notes);
        }

        #[test]
        fn foreign_annotations_do_no_harm(values: [String; 4]) {
            let keys = [CONTAINER_HASH, RESTART_COUNT, POD_DELETION_GRACE, POD_TERMINATION_GRACE];
            let annotations: HashMap<String, String> = keys.iter().map(|k| (*k).to_owned()).zip(values).collect();
            ContainerNotes::read(|key| annotations.get(key));
        }
    }
}
