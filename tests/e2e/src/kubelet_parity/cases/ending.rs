use serde_json::{Value, json};

use super::{backs_off, case, container, ended, ready, restarts, runs};
use crate::RUNS;
use crate::kubelet_parity::{Case, ScenarioStep};

/// Pods that terminate, or crash repeatedly.
pub fn cases() -> Vec<Case> {
    [
        exits(),
        inits(),
        sidecars(),
        rules(),
        probes(),
        messages(),
        jobs(),
    ]
    .concat()
}

fn policy(policy: &str) -> Value {
    json!({ "restartPolicy": policy })
}

fn exits() -> Vec<Case> {
    let restarted = || {
        ScenarioStep::Once("waits longer", |pod| {
            let waiting = &pod["status"]["containerStatuses"][0]["state"]["waiting"]["message"];
            let message = waiting.as_str().unwrap_or_default();
            message.starts_with("back-off 20s")
        })
    };
    let two = json!({ "restartPolicy": "Never", "containers": [
        container("main", "exit 0", &json!({})), container("other", RUNS, &json!({})),
    ] });
    let two_fail = json!({ "restartPolicy": "Never", "containers": [
        container("main", "exit 0", &json!({})), container("other", "exit 4", &json!({})),
    ] });
    let oom = json!({ "restartPolicy": "Never", "container": { "resources": { "limits": { "memory": "16Mi" } } } });
    vec![
        case("never-0", "exit 0", &policy("Never"), vec![ended()]),
        case("never-1", "exit 1", &policy("Never"), vec![ended()]),
        case(
            "never-killed",
            "kill -9 $$",
            &policy("Never"),
            vec![ended()],
        ),
        // Truncated to one byte.
        case("never-300", "exit 300", &policy("Never"), vec![ended()]),
        // The exit code of an OOM kill without one.
        case("never-137", "exit 137", &policy("Never"), vec![ended()]),
        case(
            "on-failure-0",
            "exit 0",
            &policy("OnFailure"),
            vec![ended()],
        ),
        case(
            "on-failure-1",
            "exit 1",
            &policy("OnFailure"),
            vec![backs_off(), restarted()],
        ),
        case("always-0", "exit 0", &policy("Always"), vec![backs_off()]),
        case(
            "always-1",
            "exit 1",
            &policy("Always"),
            vec![backs_off(), restarted()],
        ),
        case(
            "one-of-two",
            "",
            &two,
            vec![ScenarioStep::Until("one ended", |pod| {
                pod["status"]["containerStatuses"][0]["state"]["terminated"].is_object()
            })],
        ),
        case("two-of-two", "", &two_fail, vec![ended()]),
        case(
            "oom",
            "x=$(head -c 100m /dev/zero | tr '\\0' x); echo $x",
            &oom,
            vec![ended()],
        ),
        case(
            "deadline",
            RUNS,
            &json!({ "activeDeadlineSeconds": 15 }),
            vec![ended()],
        ),
    ]
}

fn inits() -> Vec<Case> {
    let init = |name: &str, script: &str| container(name, script, &json!({}));
    let two = json!({ "initContainers": [init("first", "exit 0"), init("second", "sleep 1")] });
    let fails = json!({ "restartPolicy": "Never", "initContainers": [init("first", "exit 3"), init("second", "exit 0")] });
    let restarted =
        json!({ "initContainers": [init("first", "exit 3"), init("second", "exit 0")] });
    let bad = json!({ "initContainers": [container("first", "", &json!({ "image": "127.0.0.1:1/none:1" }))] });
    vec![
        runs("inits", &two, vec![ready()]),
        runs("init-fails", &fails, vec![ended()]),
        runs("init-again", &restarted, vec![backs_off()]),
        runs(
            "init-image",
            &bad,
            vec![ScenarioStep::Until("backs off", |pod| {
                super::waits(pod, "ImagePullBackOff")
            })],
        ),
    ]
}

fn sidecars() -> Vec<Case> {
    let beside = |script: &str, more: Value| {
        let mut sidecar = container("beside", script, &more);
        sidecar["restartPolicy"] = "Always".into();
        json!([sidecar])
    };
    let probe = |command: &str| json!({ "exec": { "command": [command] }, "periodSeconds": 1 });
    let good = beside(
        RUNS,
        json!({ "startupProbe": probe("true"), "readinessProbe": probe("true") }),
    );
    let unready = beside(RUNS, json!({ "readinessProbe": probe("false") }));
    let unstarted =
        json!({ "exec": { "command": ["false"] }, "periodSeconds": 1, "failureThreshold": 100 });
    let unlively =
        json!({ "exec": { "command": ["false"] }, "periodSeconds": 1, "failureThreshold": 2 });
    let both = json!([
        container("first", "exit 0", &json!({})),
        good[0].clone(),
        container("last", "exit 0", &json!({})),
    ]);
    let once = |sidecars: &Value| json!({ "restartPolicy": "Never", "initContainers": sidecars });
    vec![
        runs("sidecar", &json!({ "initContainers": both }), vec![ready()]),
        case("sidecar-done", "exit 0", &once(&good), vec![ended()]),
        case("sidecar-failed", "exit 2", &once(&good), vec![ended()]),
        case(
            "sidecar-killed",
            "exit 0",
            &json!({ "restartPolicy": "Never", "terminationGracePeriodSeconds": 1,
            "initContainers": beside("sleep 1000", json!({})) }),
            vec![ended()],
        ),
        runs(
            "sidecar-crashes",
            // Its startup probe never succeeds.
            &json!({ "initContainers": beside("exit 1", json!({ "startupProbe": probe("true") })) }),
            vec![backs_off()],
        ),
        runs(
            "sidecar-unready",
            &json!({ "initContainers": unready }),
            vec![ScenarioStep::Until("runs", |pod| {
                pod["status"]["containerStatuses"][0]["ready"] == true
            })],
        ),
        runs(
            "sidecar-unlively",
            &json!({ "initContainers": beside(RUNS, json!({ "livenessProbe": unlively })) }),
            vec![ScenarioStep::Once("again", |pod| {
                restarts(pod, "initContainerStatuses") == 1
            })],
        ),
        runs(
            "sidecar-unstarted",
            &json!({ "initContainers": beside(RUNS, json!({ "startupProbe": unstarted })) }),
            vec![ScenarioStep::Until("runs", |pod| {
                pod["status"]["initContainerStatuses"][0]["state"]["running"].is_object()
            })],
        ),
    ]
}

fn rules() -> Vec<Case> {
    let volume = json!([{ "name": "kept", "emptyDir": {} }]);
    let mounts = json!([{ "name": "kept", "mountPath": "/kept" }]);
    let first =
        |then: &str, code: u32| format!("if mkdir /kept/once; then exit {code}; fi; {then}");
    let rule = |action: &str| json!([{ "action": action, "exitCodes": { "operator": "In", "values": [42] } }]);
    let with_rule = |action: &str| {
        json!({
            "restartPolicy": "Never", "volumes": volume,
            "container": { "volumeMounts": mounts, "restartPolicy": "Never", "restartPolicyRules": rule(action) },
        })
    };
    let mut restart_all = with_rule("RestartAllContainers");
    restart_all["initContainers"] = json!([container("first", "exit 0", &json!({}))]);
    // Terminated together with them: a running init container and a sidecar.
    let mut together = restart_all.clone();
    let mut sidecar = container("beside", RUNS, &json!({}));
    sidecar["restartPolicy"] = "Always".into();
    together["initContainers"] = json!([sidecar]);
    let exits_once = format!("if mkdir /kept/once; then sleep 3; exit 42; fi; {RUNS}");
    together["containers"] = json!([
        container("main", &exits_once, &restart_all["container"]),
        container("other", RUNS, &json!({})),
    ]);
    let own = json!({ "restartPolicy": "Never", "containers": [
        container("main", "exit 0", &json!({})),
        container("again", "exit 1", &json!({ "restartPolicy": "OnFailure" })),
    ] });
    vec![
        case(
            "rule",
            &first("exit 0", 42),
            &with_rule("Restart"),
            vec![ended()],
        ),
        case(
            "rule-other",
            "exit 41",
            &with_rule("Restart"),
            vec![ended()],
        ),
        case(
            "rule-all",
            &first(RUNS, 42),
            &restart_all,
            vec![ScenarioStep::Until("again", |pod| {
                restarts(pod, "containerStatuses") == 1 && polylet_harness::cluster::is_ready(pod)
            })],
        ),
        case(
            "rule-all-others",
            "",
            &together,
            vec![ScenarioStep::Until("again", |pod| {
                restarts(pod, "containerStatuses") == 1 && polylet_harness::cluster::is_ready(pod)
            })],
        ),
        case("own-policy", "", &own, vec![backs_off()]),
    ]
}

fn probes() -> Vec<Case> {
    let probe = |kind: &str, handler: Value| {
        let mut probe = json!({ "periodSeconds": 1, "failureThreshold": 2 });
        for (key, value) in handler.as_object().into_iter().flatten() {
            probe[key] = value.clone();
        }
        json!({ "container": { kind: probe } })
    };
    let unready = || {
        ScenarioStep::Until("runs", |pod| {
            pod["status"]["containerStatuses"][0]["state"]["running"].is_object()
        })
    };
    let restarted = || {
        ScenarioStep::Once("again", |pod| {
            restarts(pod, "containerStatuses") == 1
                && pod["status"]["containerStatuses"][0]["state"]["running"].is_object()
        })
    };
    let exec = json!({ "exec": { "command": ["false"] } });
    let mut slow = probe("startupProbe", exec.clone());
    slow["container"]["startupProbe"]["failureThreshold"] = 100.into();
    vec![
        runs(
            "unready-exec",
            &probe("readinessProbe", exec.clone()),
            vec![unready()],
        ),
        runs(
            "unready-http",
            &probe("readinessProbe", json!({ "httpGet": { "port": 1 } })),
            vec![unready()],
        ),
        runs(
            "unready-tcp",
            &probe("readinessProbe", json!({ "tcpSocket": { "port": 1 } })),
            vec![unready()],
        ),
        runs(
            "unready-grpc",
            &probe("readinessProbe", json!({ "grpc": { "port": 1 } })),
            vec![unready()],
        ),
        runs(
            "unlively",
            &probe("livenessProbe", exec.clone()),
            vec![restarted()],
        ),
        runs(
            "unlively-never",
            &{
                let mut more = probe("livenessProbe", exec.clone());
                more["restartPolicy"] = "Never".into();
                more
            },
            vec![ended()],
        ),
        runs("unstarted", &slow, vec![unready()]),
        runs(
            "unstarted-again",
            &probe("startupProbe", exec),
            vec![restarted()],
        ),
    ]
}

fn messages() -> Vec<Case> {
    let falls_back = json!({ "restartPolicy": "Never", "container": { "terminationMessagePolicy": "FallbackToLogsOnError" } });
    let elsewhere = json!({ "restartPolicy": "Never", "container": { "terminationMessagePath": "/tmp/message" } });
    let hook = |command: Value| json!({ "container": { "lifecycle": { "postStart": { "exec": { "command": command } } } } });
    vec![
        case(
            "message-file",
            "echo -n why > /dev/termination-log; exit 1",
            &json!({ "restartPolicy": "Never" }),
            vec![ended()],
        ),
        case(
            "message-log",
            "echo one; echo two; exit 1",
            &falls_back,
            vec![ended()],
        ),
        case(
            "message-both",
            "echo one; echo -n two > /dev/termination-log; exit 1",
            &falls_back,
            vec![ended()],
        ),
        case(
            "message-none",
            "echo one; exit 0",
            &falls_back,
            vec![ended()],
        ),
        case(
            "message-long",
            "head -c 5000 /dev/zero | tr '\\0' x > /tmp/message; exit 0",
            &elsewhere,
            vec![ended()],
        ),
        runs("hooked", &hook(json!(["true"])), vec![ready()]),
        runs(
            "hook-fails",
            &hook(json!(["sh", "-c", "echo bad; exit 7"])),
            vec![ScenarioStep::Once("hook failed", |pod| {
                super::waits(pod, "PostStartHookError")
            })],
        ),
    ]
}

fn jobs() -> Vec<Case> {
    let job = |name: &str, script: &str| {
        let spec = json!({ "restartPolicy": "Never", "terminationGracePeriodSeconds": 2,
            "containers": [container("main", script, &json!({}))] });
        let object = json!({ "apiVersion": "batch/v1", "kind": "Job", "metadata": { "name": name },
            "spec": { "backoffLimit": 0, "template": { "spec": spec } } });
        Case {
            name: name.to_owned(),
            object: ("/apis/batch/v1/namespaces/default/jobs", object),
            after: None,
            steps: vec![ended()],
        }
    };
    vec![job("job-done", "exit 0"), job("job-failed", "exit 1")]
}
