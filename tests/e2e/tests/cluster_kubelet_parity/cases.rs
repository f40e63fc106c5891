//! Test cases: pods and what happens to them.

use polylet_e2e::{RUNS, pod};
use serde_json::{Value, json};

/// How a case ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    /// The pod is deleted.
    Deleted,
    /// It is evicted, as a drain does.
    Evicted,
    /// Its static manifest is removed.
    Static,
}

/// A pod and what happens to it.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) pod: Value,
    pub(crate) how: How,
    /// Events to wait for before the end: reasons (`BackOff x2`), and patterns of messages (`Failed: *`).
    pub(crate) waits_for: &'static [&'static str],
    /// The same after the end.
    pub(crate) ends_with: &'static [&'static str],
}

impl Case {
    fn new(
        name: &'static str,
        script: &str,
        more: Value,
        waits_for: &'static [&'static str],
    ) -> Self {
        let mut pod: Value = serde_json::from_str(&pod(name, script, &more)).unwrap_or_default();
        pod["spec"]["nodeName"] = "node".into();
        pod["spec"]["terminationGracePeriodSeconds"] = more
            .get("terminationGracePeriodSeconds")
            .cloned()
            .unwrap_or(json!(1));
        Self {
            name,
            pod,
            how: How::Deleted,
            waits_for,
            ends_with: &[],
        }
    }

    fn ends(mut self, how: How, ends_with: &'static [&'static str]) -> Self {
        self.how = how;
        self.ends_with = ends_with;
        self
    }

    /// Name of its object in the API.
    pub(crate) fn object(&self) -> String {
        match self.how {
            How::Static => format!("{}-node", self.name),
            How::Deleted | How::Evicted => self.name.to_owned(),
        }
    }
}

/// Cases that take little time.
pub(crate) fn short() -> Vec<Case> {
    let exec =
        |command: &str| json!({ "exec": { "command": ["sh", "-c", command] }, "periodSeconds": 1 });
    vec![
        Case::new("good", RUNS, json!({}), &["Started"]).ends(How::Deleted, &["Killing"]),
        Case::new("evicted", RUNS, json!({}), &["Started"]).ends(How::Evicted, &["Killing"]),
        Case::new("still", RUNS, json!({}), &["Started"]).ends(How::Static, &["Killing"]),
        Case::new(
            "absent",
            RUNS,
            json!({ "container": { "image": "localhost:1/absent:1" } }),
            &["Pulling", "BackOff"],
        ),
        Case::new(
            "never",
            RUNS,
            json!({ "container": { "image": "localhost:1/absent:1", "imagePullPolicy": "Never" } }),
            &["ErrImageNeverPull"],
        ),
        Case::new(
            "misnamed",
            RUNS,
            json!({ "container": { "image": "localhost:1/ABSENT" } }),
            &["InspectFailed"],
        ),
        Case::new("crashes", "exit 3", json!({}), &["BackOff"]),
        Case::new(
            "unready",
            RUNS,
            json!({ "container": { "readinessProbe": exec("echo not yet; exit 1") } }),
            &["Unhealthy"],
        ),
        Case::new(
            "mapless",
            RUNS,
            json!({
                "volumes": [{ "name": "map", "configMap": { "name": "absent" } }],
                "container": { "volumeMounts": [{ "name": "map", "mountPath": "/map" }] },
            }),
            &["FailedMount"],
        ),
        Case::new(
            "unset",
            RUNS,
            json!({ "container": { "envFrom": [{ "configMapRef": { "name": "absent" } }] } }),
            &["Failed"],
        ),
        Case::new(
            "unhooked",
            RUNS,
            json!({ "container": { "lifecycle": {
                "postStart": { "exec": { "command": ["sh", "-c", "exit 4"] } },
            } } }),
            &["FailedPostStartHook", "Killing", "BackOff"],
        ),
        Case::new(
            "unstopped",
            RUNS,
            json!({ "container": { "lifecycle": {
                "preStop": { "exec": { "command": ["sh", "-c", "exit 5"] } },
            } } }),
            &["Started"],
        )
        .ends(How::Deleted, &["FailedPreStopHook", "Killing"]),
        Case::new(
            "late",
            RUNS,
            json!({ "activeDeadlineSeconds": 8 }),
            &["DeadlineExceeded"],
        ),
        Case::new(
            "large",
            RUNS,
            json!({ "container": { "resources": { "requests": { "cpu": "1000" } } } }),
            &["OutOfcpu"],
        ),
        Case::new(
            "elsewhere",
            RUNS,
            json!({ "nodeSelector": { "kubernetes.io/hostname": "other" } }),
            &["NodeAffinity"],
        ),
        Case::new(
            "rootless",
            RUNS,
            json!({ "container": { "securityContext": { "runAsNonRoot": true } } }),
            &["Failed"],
        ),
        Case::new(
            "wordless",
            RUNS,
            json!({ "container": { "command": ["/absent"] } }),
            &["Failed"],
        ),
    ]
}

/// All cases, some of which take minutes.
pub(crate) fn all() -> Vec<Case> {
    let exec = |command: &str| {
        json!({ "exec": { "command": ["sh", "-c", command] },
            "periodSeconds": 1, "failureThreshold": 1 })
    };
    let http = |port: u16, path: &str| json!({ "httpGet": { "port": port, "path": path }, "periodSeconds": 1, "failureThreshold": 1 });
    let mut all = short();
    all.extend([
        Case::new(
            "unwell",
            RUNS,
            json!({ "container": { "livenessProbe": exec("echo sick; exit 1") } }),
            &["Unhealthy x2", "Killing", "BackOff"],
        ),
        Case::new(
            "unborn",
            RUNS,
            json!({ "container": { "startupProbe": exec("exit 1") } }),
            &["Unhealthy x2", "Killing", "BackOff"],
        ),
        Case::new(
            "deaf",
            RUNS,
            json!({ "container": { "livenessProbe": http(81, "/") } }),
            &["Unhealthy", "Killing"],
        ),
        Case::new(
            "wrong",
            "mkdir /w; echo hi > /w/index.html; exec httpd -f -p 82 -h /w",
            json!({ "container": { "readinessProbe": http(82, "/absent") } }),
            &["Unhealthy x2"],
        ),
        Case::new(
            "unlinked",
            RUNS,
            json!({ "container": { "readinessProbe": {
                "tcpSocket": { "port": 83 }, "periodSeconds": 1 } } }),
            &["Unhealthy"],
        ),
        Case::new(
            "ungreeted",
            RUNS,
            json!({ "container": { "readinessProbe": { "grpc": { "port": 84 }, "periodSeconds": 1 } } }),
            &["Unhealthy"],
        ),
        Case::new(
            "slow",
            RUNS,
            json!({ "container": { "readinessProbe": exec("sleep 100") } }),
            &["Unhealthy"],
        ),
        Case::new(
            "greedy",
            "x=$(yes | head -c 200000000); echo $x | wc -c",
            json!({ "restartPolicy": "Never",
                "container": { "resources": { "limits": { "memory": "20Mi" } } } }),
            &["Started"],
        ),
        Case::new(
            "staged",
            RUNS,
            json!({ "initContainers": [
                { "name": "one", "image": "polylet-test:1", "command": ["true"] },
                { "name": "two", "image": "polylet-test:1", "command": ["sh", "-c", "exit 7"] },
            ] }),
            &["BackOff"],
        ),
        Case::new(
            "beside",
            RUNS,
            json!({ "initContainers": [
                { "name": "side", "image": "polylet-test:1", "command": ["sh", "-c", RUNS],
                  "restartPolicy": "Always" },
            ] }),
            &["Started x2"],
        )
        .ends(How::Deleted, &["Killing x2"]),
        Case::new(
            "called",
            RUNS,
            json!({ "container": { "lifecycle": {
                "postStart": { "httpGet": { "port": 85, "path": "/" } },
            } } }),
            &["FailedPostStartHook", "Killing", "BackOff"],
        ),
        Case::new(
            "stubborn",
            "trap '' TERM; while :; do sleep 1; done",
            json!({ "container": { "lifecycle": {
                "preStop": { "exec": { "command": ["sleep", "100"] } },
            } } }),
            &["Started"],
        )
        .ends(How::Deleted, &["Killing", "FailedPreStopHook"]),
        Case::new(
            "secretless",
            RUNS,
            json!({
                "volumes": [{ "name": "s", "secret": { "secretName": "absent" } }],
                "container": { "volumeMounts": [{ "name": "s", "mountPath": "/s" }] },
            }),
            &["FailedMount"],
        ),
        Case::new(
            "pathless",
            RUNS,
            json!({
                "volumes": [{ "name": "p", "hostPath": { "path": "/absent/here", "type": "Directory" } }],
                "container": { "volumeMounts": [{ "name": "p", "mountPath": "/p" }] },
            }),
            &["FailedMount"],
        ),
        Case::new(
            "claimless",
            RUNS,
            json!({
                "volumes": [{ "name": "c", "persistentVolumeClaim": { "claimName": "absent" } }],
                "container": { "volumeMounts": [{ "name": "c", "mountPath": "/c" }] },
            }),
            // The first one may name other volumes, too, which are not mounted yet.
            &["FailedMount: *unmounted volumes=[c], unattached volumes=[], failed to process volumes=[c]: *"],
        ),
        Case::new(
            "keyless",
            RUNS,
            json!({ "container": { "env": [{ "name": "A", "valueFrom": {
                "secretKeyRef": { "name": "absent", "key": "k" } } }] } }),
            &["Failed"],
        ),
        Case::new(
            "passwordless",
            RUNS,
            json!({ "imagePullSecrets": [{ "name": "absent" }] }),
            &["FailedToRetrieveImagePullSecret", "Started"],
        ),
        Case::new(
            "subless",
            RUNS,
            json!({
                "volumes": [{ "name": "e", "emptyDir": {} }],
                "container": { "volumeMounts": [
                    { "name": "e", "mountPath": "/e", "subPathExpr": "$(ABSENT)" },
                ] },
            }),
            &["Failed"],
        ),
        Case::new("ends", "exit 0", json!({ "restartPolicy": "Never" }), &["Started"]),
        Case::new("fails", "exit 9", json!({ "restartPolicy": "Never" }), &["Started"]),
    ]);
    all
}
