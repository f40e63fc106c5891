use polylet_harness::{HarnessError, Node};
use serde_json::{Value, json};

/// The image that the harness makes.
pub(crate) const IMAGE: &str = "docker.io/library/polylet-test:1";

/// Runs until it is told to end, and ends at once.
pub(crate) const SCRIPT: &str = "trap 'exit 0' TERM; while :; do sleep 3600 & wait $!; done";

/// What an init container does.
pub(crate) const INIT_SCRIPT: &str = "true";

/// A kind of pod.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    Bare,
    /// With a ConfigMap, a Secret and an emptyDir.
    Volumes,
    /// With volumes, an init container, and startup and readiness probes.
    Full,
}

impl Kind {
    pub(crate) const ALL: [Self; 3] = [Self::Bare, Self::Volumes, Self::Full];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Bare => "bare",
            Self::Volumes => "volumes",
            Self::Full => "full",
        }
    }

    /// For the table.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::Bare => "bare",
            Self::Volumes => "ConfigMap, Secret, emptyDir",
            Self::Full => "init container, volumes, probes",
        }
    }

    /// Whether an init container comes first.
    pub(crate) fn has_init(self) -> bool {
        matches!(self, Self::Full)
    }

    pub(crate) fn manifest(self, name: &str) -> String {
        let mut pod = pod(name);
        if !matches!(self, Self::Bare) {
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
        if self.has_init() {
            pod["spec"]["initContainers"] = json!([{
                "name": "init",
                "image": IMAGE,
                "imagePullPolicy": "IfNotPresent",
                "command": ["sh", "-c", INIT_SCRIPT],
                "volumeMounts": [{"name": "work", "mountPath": "/work"}],
            }]);
            // A command that is done at once: what is measured is the path of a verdict and not
            // a server's start. The runtime's own share of two execs is in it.
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

/// Containers of a pod in which each is probed.
pub(crate) const PROBED: usize = 10;

/// A pod of [`PROBED`] containers, of which the first serves. With `exec` each second a command in
/// each container; otherwise one HTTP and one TCP probe for each.
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

/// A pod whose readiness is asked of this port on the node, each second.
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

/// The objects that pods with volumes refer to: a ConfigMap and a Secret.
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

/// The same as manifests of a node of its own.
pub(crate) fn put_objects(node: &Node) -> Result<(), HarnessError> {
    let [config, secret] = objects();
    node.put("bench-config.json", &config.to_string())?;
    node.put("bench-secret.json", &secret.to_string())
}
