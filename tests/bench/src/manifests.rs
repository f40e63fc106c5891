use polylet_harness::{HarnessError, Node};
use serde_json::{Value, json};

use crate::baseline::BaselineShape;

/// The image built by the harness.
pub(crate) const IMAGE: &str = "docker.io/library/polylet-test:1";

/// Runs until SIGTERM and exits immediately.
pub(crate) const SCRIPT: &str = "trap 'exit 0' TERM; while :; do sleep 3600 & wait $!; done";

/// Command of an init container.
pub(crate) const INIT_SCRIPT: &str = "true";

/// A mount of a volume: its name, the path in the container, and whether it is read-only.
pub(crate) type VolumeMount = (&'static str, &'static str, bool);

/// The volumes of pods that have some, and the token that they have in a cluster.
pub(crate) const VOLUMES_AND_TOKEN: &[VolumeMount] = &[
    ("config", "/etc/bench", true),
    ("secret", "/etc/secret", true),
    ("work", "/work", false),
    (
        "token",
        "/var/run/secrets/kubernetes.io/serviceaccount",
        true,
    ),
];
/// The same without the token.
pub(crate) const VOLUMES: &[VolumeMount] = VOLUMES_AND_TOKEN.split_at(3).0;

/// A kind of pod.
#[derive(Clone, Copy)]
pub(crate) enum ManifestKind {
    Bare,
    /// With a ConfigMap, a Secret and an emptyDir.
    Volumes,
    /// With volumes, an init container, and startup and readiness probes.
    Full,
}

impl ManifestKind {
    pub(crate) const ALL: [Self; 3] = [Self::Bare, Self::Volumes, Self::Full];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Bare => "bare",
            Self::Volumes => "volumes",
            Self::Full => "full",
        }
    }

    /// Label in the table.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::Bare => "bare",
            Self::Volumes => "ConfigMap, Secret, emptyDir",
            Self::Full => "init container, volumes, probes",
        }
    }

    /// Whether the pod has an init container.
    pub(crate) fn has_init(self) -> bool {
        matches!(self, Self::Full)
    }

    /// What raw calls are to do for such a pod.
    pub(crate) fn baseline(self) -> BaselineShape {
        let volumes = match self {
            Self::Bare => &[],
            Self::Volumes | Self::Full => VOLUMES,
        };
        BaselineShape {
            init: self.has_init(),
            volumes,
        }
    }

    pub(crate) fn manifest(self, name: &str) -> String {
        let mut pod = pod(name);
        if !matches!(self, Self::Bare) {
            pod["spec"]["volumes"] = json!([
                {"name": "config", "configMap": {"name": "bench"}},
                {"name": "secret", "secret": {"secretName": "bench"}},
                {"name": "work", "emptyDir": {}},
            ]);
            let mount = |(name, path, _): &VolumeMount| json!({"name": name, "mountPath": path});
            let mounts: Vec<Value> = VOLUMES.iter().map(mount).collect();
            pod["spec"]["containers"][0]["volumeMounts"] = mounts.into();
        }
        if self.has_init() {
            pod["spec"]["initContainers"] = json!([{
                "name": "init",
                "image": IMAGE,
                "imagePullPolicy": "IfNotPresent",
                "command": ["sh", "-c", INIT_SCRIPT],
                "volumeMounts": [{"name": "work", "mountPath": "/work"}],
            }]);
            // The command exits immediately, to measure the propagation of a probe result and not
            // the start of a server. The runtime's cost of two execs is included.
            let probe = json!({"exec": {"command": ["true"]}, "periodSeconds": 1});
            pod["spec"]["containers"][0]["startupProbe"] = probe.clone();
            pod["spec"]["containers"][0]["readinessProbe"] = probe;
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

/// Number of containers in a pod with probes.
pub(crate) const PROBED: usize = 10;

/// A pod of [`PROBED`] containers, the first of which runs an HTTP server. With `exec`, one exec probe
/// a second for each container; otherwise one HTTP and one TCP probe.
pub(crate) fn probed(name: &str, exec: bool) -> String {
    let each = |mut probe: Value| {
        probe["periodSeconds"] = json!(1);
        probe
    };
    let mut pod = pod(name);
    let containers = (0..PROBED).map(|n| {
        let mut container = pod["spec"]["containers"][0].clone();
        container["name"] = json!(format!("c{n}"));
        if n == 0 {
            let serve = "echo well > /www/index.html; exec httpd -f -p 8080 -h /www";
            container["command"] = json!(["sh", "-c", serve]);
        }
        if exec {
            container["readinessProbe"] = each(json!({"exec": {"command": ["true"]}}));
        } else {
            let get = json!({"httpGet": {"path": "/index.html", "port": 8080}});
            container["livenessProbe"] = each(json!({"tcpSocket": {"port": 8080}}));
            container["readinessProbe"] = each(get);
        }
        container
    });
    pod["spec"]["containers"] = containers.collect();
    pod.to_string()
}

/// A pod with a readiness probe to this port on the node, every second.
pub(crate) fn asked(name: &str, port: u16) -> String {
    let mut pod = pod(name);
    pod["spec"]["containers"][0]["readinessProbe"] = json!({
        "httpGet": {"host": "127.0.0.1", "port": port},
        "periodSeconds": 1,
        "failureThreshold": 1,
    });
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

/// The ConfigMap and Secret referenced by pods with volumes.
pub(crate) fn objects() -> [Value; 2] {
    let config = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "bench"},
        "data": {"a": "1", "b": "2"},
    });
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "bench"},
        "stringData": {"key": "value"},
    });
    [config, secret]
}

/// Writes these objects as manifests of a standalone node.
pub(crate) fn put_objects(node: &Node) -> Result<(), HarnessError> {
    let [config, secret] = objects();
    node.put("bench-config.json", &config.to_string())?;
    node.put("bench-secret.json", &secret.to_string())
}
