use serde_json::{Value, json};

use super::{case, container, ready, runs};
use crate::RUNS;
use crate::beside::{Case, Step};

fn delete() -> Step {
    Step::Delete(Value::Null)
}

/// Pods that go, and what they are at then.
pub fn deleted() -> Vec<Case> {
    let hook = json!({ "terminationGracePeriodSeconds": 5, "container": {
        "lifecycle": { "preStop": { "exec": { "command": ["sh", "-c", "exit 9"] } } },
    } });
    let mut sidecar = container("beside", RUNS, &json!({}));
    sidecar["restartPolicy"] = "Always".into();
    let told = json!({
        "volumes": [{ "name": "info", "downwardAPI": { "items": [
            { "path": "labels", "fieldRef": { "fieldPath": "metadata.labels" } },
            { "path": "annotations", "fieldRef": { "fieldPath": "metadata.annotations" } },
        ] } }],
        "container": {
            "volumeMounts": [{ "name": "info", "mountPath": "/info" }],
            "readinessProbe": {
                "exec": { "command": ["sh", "-c", "grep -q a=.b /info/labels && grep -q c=.d /info/annotations"] },
                "periodSeconds": 1, "timeoutSeconds": 10,
            },
        },
    });
    let change = json!({ "metadata": { "labels": { "a": "b" }, "annotations": { "c": "d" } } });
    vec![
        // It takes its time, and is not killed.
        case(
            "end-long",
            "trap 'sleep 3; exit 6' TERM; while :; do sleep 3600 & wait $!; done",
            &json!({ "terminationGracePeriodSeconds": 60 }),
            vec![ready(), delete()],
        ),
        // Nobody answers there (`Pair::silent`).
        runs(
            "end-pulling",
            &json!({ "container": { "image": "127.0.0.1:18094/none:1" } }),
            vec![
                Step::Until("pulls", |pod| pod["status"]["startTime"].is_string()),
                delete(),
            ],
        ),
        runs("end-hook-fails", &hook, vec![ready(), delete()]),
        runs(
            "end-sidecar",
            &json!({ "initContainers": [sidecar] }),
            vec![ready(), delete()],
        ),
        runs(
            "end-shorter",
            &json!({ "terminationGracePeriodSeconds": 60 }),
            vec![ready(), Step::Delete(json!({ "gracePeriodSeconds": 3 }))],
        ),
        runs(
            "other-scheduler",
            &json!({ "schedulerName": "other" }),
            vec![ready()],
        ),
        runs(
            "told-changes",
            &told,
            vec![
                Step::Until("runs", |pod| {
                    pod["status"]["containerStatuses"][0]["started"] == true
                }),
                Step::Change("", change),
                ready(),
            ],
        ),
    ]
}

/// A pod that has to go for a weightier one.
pub fn preempted() -> Vec<Case> {
    let big = json!({ "container": { "resources": { "requests": { "cpu": "1200m" } } } });
    let mut bigger = big.clone();
    bigger["priorityClassName"] = "high".into();
    let scheduled = |name: &str, more: &Value, steps| {
        let mut case = runs(name, more, steps);
        if let Some(spec) = case.object.1["spec"].as_object_mut() {
            spec.remove("nodeName");
        }
        case
    };
    let low = vec![
        Step::Once("goes", |pod| {
            pod["metadata"]["deletionTimestamp"].is_string()
        }),
        Step::Leaves,
    ];
    let mut high = scheduled("preempts", &bigger, vec![ready()]);
    high.after = Some("preempted");
    vec![scheduled("preempted", &big, low), high]
}

/// A pod that a taint of its node sends away.
pub fn tainted() -> Vec<Case> {
    let taint = json!([{ "key": "example.com/leave", "effect": "NoExecute" }]);
    vec![runs(
        "tainted",
        &json!({}),
        vec![
            ready(),
            Step::Node(json!({ "spec": { "taints": taint } })),
            Step::Once("goes", |pod| {
                pod["metadata"]["deletionTimestamp"].is_string()
            }),
            Step::Leaves,
            Step::Node(json!({ "spec": { "taints": null } })),
        ],
    )]
}
