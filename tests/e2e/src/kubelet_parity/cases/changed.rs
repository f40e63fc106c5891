use serde_json::{Value, json};

use super::{case, container, ready, runs};
use crate::RUNS;
use crate::kubelet_parity::{Case, ScenarioStep};

/// Changes of running pods.
pub fn cases() -> Vec<Case> {
    [plain(), deletions(), additions(), resizes()].concat()
}

fn sized(cpu: &str, memory: &str) -> Value {
    json!({ "requests": { "cpu": cpu, "memory": memory }, "limits": { "cpu": cpu, "memory": memory } })
}

fn plain() -> Vec<Case> {
    let mut scheduled = runs("scheduled", &json!({}), vec![ready()]);
    if let Some(spec) = scheduled.object.1["spec"].as_object_mut() {
        spec.remove("nodeName");
    }
    let mut stays = runs("static", &json!({}), vec![ready()]);
    stays.object.0 = "static";
    let mut ends = case(
        "static-ends",
        "exit 1",
        &json!({ "restartPolicy": "Never" }),
        vec![super::ended()],
    );
    ends.object.0 = "static";
    let volumes = json!({
        "volumes": [
            { "name": "map", "configMap": { "name": "settings" } },
            { "name": "scratch", "emptyDir": {} },
        ],
        "container": { "volumeMounts": [
            { "name": "map", "mountPath": "/map", "readOnly": true, "recursiveReadOnly": "IfPossible" },
            { "name": "scratch", "mountPath": "/scratch" },
        ] },
    });
    let levels = json!({ "resources": { "requests": { "cpu": "20m", "memory": "20Mi" }, "limits": { "cpu": "30m", "memory": "32Mi" } } });
    let user = json!({
        "securityContext": { "runAsUser": 1000, "runAsGroup": 1000, "fsGroup": 2000, "supplementalGroups": [3000] },
    });
    let gate = json!({ "readinessGates": [{ "conditionType": "example.com/open" }] });
    let open =
        json!({ "status": { "conditions": [{ "type": "example.com/open", "status": "True" }] } });
    vec![
        runs("plain", &json!({}), vec![ready()]),
        scheduled,
        stays,
        ends,
        runs("volumes", &volumes, vec![ready()]),
        runs(
            "guaranteed",
            &json!({ "container": { "resources": sized("20m", "20Mi") } }),
            vec![ready()],
        ),
        runs(
            "burstable",
            &json!({ "container": { "resources": { "requests": { "cpu": "20m" } } } }),
            vec![ready()],
        ),
        runs("pod-level", &levels, vec![ready()]),
        runs("user", &user, vec![ready()]),
        runs(
            "host-network",
            &json!({ "hostNetwork": true }),
            vec![ready()],
        ),
        runs(
            "stop-signal",
            &json!({ "os": { "name": "linux" }, "container": { "lifecycle": { "stopSignal": "SIGUSR1" } } }),
            vec![ready()],
        ),
        runs(
            "gate",
            &gate,
            vec![
                ScenarioStep::Until("closed", |pod| {
                    pod["status"]["containerStatuses"][0]["ready"] == true
                }),
                ScenarioStep::Change("/status", open),
                ready(),
            ],
        ),
    ]
}

fn deletions() -> Vec<Case> {
    let with = |grace: u32, more: Value| {
        let mut more = more;
        more["terminationGracePeriodSeconds"] = grace.into();
        more
    };
    let hook = json!({ "container": { "lifecycle": { "preStop": { "exec": { "command": ["sleep", "1"] } } } } });
    let init = json!({ "initContainers": [container("first", RUNS, &json!({}))] });
    let secret = json!({
        "volumes": [{ "name": "it", "secret": { "secretName": "none" } }],
        "container": { "volumeMounts": [{ "name": "it", "mountPath": "/it" }] },
    });
    let starts = || ScenarioStep::Until("starts", |pod| pod["status"]["startTime"].is_string());
    let delete = || ScenarioStep::Delete(Value::Null);
    let eviction = json!({ "apiVersion": "policy/v1", "kind": "Eviction", "metadata": { "name": "evicted", "namespace": "default" } });
    let finalizer = json!({ "metadata": { "finalizers": ["example.com/stays"] } });
    vec![
        runs("end-hook", &with(5, hook), vec![ready(), delete()]),
        case(
            "end-deaf",
            "trap '' TERM; while :; do sleep 1; done",
            &with(1, json!({})),
            vec![ready(), delete()],
        ),
        case(
            "end-fails",
            "trap 'exit 3' TERM; while :; do sleep 3600 & wait $!; done",
            &with(5, json!({})),
            vec![ready(), delete()],
        ),
        runs(
            "end-now",
            &json!({}),
            vec![
                ready(),
                ScenarioStep::Delete(json!({ "gracePeriodSeconds": 0 })),
            ],
        ),
        runs(
            "end-init",
            &with(2, init),
            vec![
                ScenarioStep::Until("init runs", |pod| {
                    pod["status"]["initContainerStatuses"][0]["state"]["running"].is_object()
                }),
                delete(),
            ],
        ),
        runs("end-waiting", &secret, vec![starts(), delete()]),
        runs(
            "end-image",
            &json!({ "container": { "image": "127.0.0.1:1/none:1" } }),
            vec![
                ScenarioStep::Until("backs off", |pod| super::waits(pod, "ImagePullBackOff")),
                delete(),
            ],
        ),
        case(
            "end-crashing",
            "exit 1",
            &json!({}),
            vec![super::backs_off(), delete()],
        ),
        case(
            "end-done",
            "exit 0",
            &json!({ "restartPolicy": "Never" }),
            vec![super::ended(), delete()],
        ),
        runs(
            "evicted",
            &json!({}),
            vec![ready(), ScenarioStep::Create("/eviction", eviction)],
        ),
        runs(
            "finalized",
            &json!({}),
            vec![
                ready(),
                ScenarioStep::Change("", finalizer),
                delete(),
                ScenarioStep::Until("ended", |pod| {
                    pod["status"]["containerStatuses"][0]["state"]["terminated"].is_object()
                        && ["Succeeded", "Failed"]
                            .contains(&pod["status"]["phase"].as_str().unwrap_or_default())
                }),
                ScenarioStep::Change(
                    "",
                    json!({ "metadata": { "$deleteFromPrimitiveList/finalizers": ["example.com/stays"] } }),
                ),
            ],
        ),
    ]
}

fn additions() -> Vec<Case> {
    let debug = |script: &str| {
        json!({ "spec": { "ephemeralContainers": [{
        "name": "debug", "image": "polylet-test:1", "command": ["sh", "-c", script], "targetContainerName": "main",
    }] } })
    };
    let bad = json!({ "spec": { "ephemeralContainers": [{ "name": "debug", "image": "none:1", "imagePullPolicy": "Never" }] } });
    let label = json!({ "metadata": { "labels": { "a": "b" } } });
    let image = json!({ "spec": { "containers": [{ "name": "main", "image": "docker.io/library/polylet-test:1" }] } });
    let state = |kind: &'static str| match kind {
        "terminated" => ScenarioStep::Until("debug ended", |pod| {
            pod["status"]["ephemeralContainerStatuses"][0]["state"]["terminated"].is_object()
        }),
        "waiting" => ScenarioStep::Until("debug waits", |pod| {
            let waiting = &pod["status"]["ephemeralContainerStatuses"][0]["state"]["waiting"];
            waiting["reason"] == "ErrImageNeverPull"
        }),
        _ => ScenarioStep::Until("debug runs", |pod| {
            pod["status"]["ephemeralContainerStatuses"][0]["state"]["running"].is_object()
        }),
    };
    vec![
        runs(
            "debugged",
            &json!({}),
            vec![
                ready(),
                ScenarioStep::Change("/ephemeralcontainers", debug("exit 5")),
                state("terminated"),
            ],
        ),
        case(
            "debugging",
            // The debug container shares the process namespace and exits before the other containers.
            "trap 'sleep 2; exit 0' TERM; while :; do sleep 3600 & wait $!; done",
            &json!({}),
            vec![
                ready(),
                ScenarioStep::Change("/ephemeralcontainers", debug(RUNS)),
                state("running"),
            ],
        ),
        runs(
            "debug-image",
            &json!({}),
            vec![
                ready(),
                ScenarioStep::Change("/ephemeralcontainers", bad),
                state("waiting"),
            ],
        ),
        runs(
            "labelled",
            &json!({}),
            vec![ready(), ScenarioStep::Change("", label), ready()],
        ),
        runs(
            "image-changed",
            &json!({}),
            vec![
                ready(),
                ScenarioStep::Change("", image),
                ScenarioStep::Until("again", |pod| {
                    super::restarts(pod, "containerStatuses") == 1
                        && polylet_harness::cluster::is_ready(pod)
                }),
            ],
        ),
        runs(
            "deadline-set",
            &json!({}),
            vec![
                ready(),
                ScenarioStep::Change("", json!({ "spec": { "activeDeadlineSeconds": 1 } })),
                super::ended(),
            ],
        ),
    ]
}

fn resizes() -> Vec<Case> {
    let change = |resources: Value| {
        ScenarioStep::Change(
            "/resize",
            json!({ "spec": { "containers": [{ "name": "main", "resources": resources }] } }),
        )
    };
    let start = || json!({ "container": { "resources": sized("20m", "20Mi") } });
    let mut restart = start();
    restart["container"]["resizePolicy"] =
        json!([{ "resourceName": "memory", "restartPolicy": "RestartContainer" }]);
    let pending = || {
        ScenarioStep::Until("pending", |pod| {
            polylet_harness::cluster::condition(pod, "PodResizePending") == Some("True")
        })
    };
    fn is(pod: &Value, cpu: &str, memory: &str) -> bool {
        let limits = &pod["status"]["containerStatuses"][0]["resources"]["limits"];
        limits["cpu"] == cpu
            && limits["memory"] == memory
            && polylet_harness::cluster::is_ready(pod)
    }
    let holder =
        json!({ "restartPolicy": "Never", "container": { "resources": sized("500m", "20Mi") } });
    let mut deferred = runs(
        "resize-deferred",
        &start(),
        vec![
            ready(),
            // Together with the other pods of this list it fits once the holder is gone.
            change(sized("1600m", "20Mi")),
            pending(),
            ScenarioStep::DeleteOther("resize-holder"),
            ScenarioStep::Until("more", |pod| is(pod, "1600m", "20Mi")),
        ],
    );
    deferred.after = Some("resize-holder");
    vec![
        runs(
            "resize-up",
            &start(),
            vec![
                ready(),
                change(sized("30m", "30Mi")),
                ScenarioStep::Until("more", |pod| is(pod, "30m", "30Mi")),
            ],
        ),
        runs(
            "resize-down",
            &start(),
            vec![
                ready(),
                change(sized("10m", "16Mi")),
                ScenarioStep::Until("less", |pod| is(pod, "10m", "16Mi")),
            ],
        ),
        runs(
            "resize-restart",
            &restart,
            vec![
                ready(),
                change(sized("20m", "30Mi")),
                ScenarioStep::Until("more", |pod| {
                    is(pod, "20m", "30Mi") && super::restarts(pod, "containerStatuses") == 1
                }),
            ],
        ),
        runs(
            "resize-too-low",
            &start(),
            vec![
                ready(),
                change(sized("20m", "128Ki")),
                ScenarioStep::Until("refused", |pod| {
                    polylet_harness::cluster::condition(pod, "PodResizeInProgress") == Some("True")
                }),
            ],
        ),
        runs(
            "resize-infeasible",
            &start(),
            vec![ready(), change(sized("100", "20Mi")), ready()],
        ),
        runs(
            "resize-holder",
            &holder,
            vec![ready(), ScenarioStep::WaitDeleted],
        ),
        deferred,
    ]
}
