use polylet_harness::{HarnessError, Node};
use serde_json::{Value, json};

/// The image that the harness makes.
pub(crate) const IMAGE: &str = "docker.io/library/polylet-test:1";

/// Runs until it is told to end, and ends at once.
pub(crate) const SCRIPT: &str = "trap 'exit 0' TERM; while :; do sleep 3600 & wait $!; done";

/// A kind of pod.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    Bare,
    Volumes,
}

impl Kind {
    pub(crate) const ALL: [Self; 2] = [Self::Bare, Self::Volumes];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Bare => "bare",
            Self::Volumes => "volumes",
        }
    }

    pub(crate) fn manifest(self, name: &str) -> String {
        let mut pod = pod(name);
        if let Self::Volumes = self {
            pod["spec"]["volumes"] = json!([
                {"name": "config", "configMap": {"name": "bench"}},
                {"name": "secret", "secret": {"secretName": "bench"}},
                {"name": "work", "emptyDir": {}},
            ]);
            pod["spec"]["containers"][0]["volumeMounts"] = json!([
                {"name": "config", "mountPath": "/etc/bench"},
                {"name": "secret", "mountPath": "/etc/secret"},
                {"name": "work", "mountPath": "/work"},
            ]);
        }
        pod.to_string()
    }
}

/// A pod that is not restarted.
pub(crate) fn once(name: &str) -> String {
    let mut pod = pod(name);
    pod["spec"]["restartPolicy"] = json!("Never");
    pod.to_string()
}

fn pod(name: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "terminationGracePeriodSeconds": 5,
            "containers": [{
                "name": "main",
                "image": IMAGE,
                "imagePullPolicy": "IfNotPresent",
                "command": ["sh", "-c", SCRIPT],
            }],
        },
    })
}

/// The objects that pods with volumes refer to.
pub(crate) fn put_objects(node: &Node) -> Result<(), HarnessError> {
    let config = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "bench"},
        "data": {"a": "1", "b": "2"},
    });
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "bench"},
        "stringData": {"key": "value"},
    });
    node.put("bench-config.json", &config.to_string())?;
    node.put("bench-secret.json", &secret.to_string())
}
