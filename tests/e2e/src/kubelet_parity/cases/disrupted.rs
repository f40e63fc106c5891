use serde_json::{Value, json};

use super::{case, container, ready, runs};
use crate::RUNS;
use crate::kubelet_parity::{Case, ScenarioStep};

fn delete() -> ScenarioStep {
    ScenarioStep::Delete(Value::Null)
}

/// Pods that are deleted or preempted in different states.
pub fn deleted() -> Vec<Case> {
    let hook = json!({ "terminationGracePeriodSeconds": 5, "container": {
        "lifecycle": { "preStop": { "exec": { "command": ["sh", "-c", "exit 9"] } } },
    } });
    let mut sidecar = container("beside", RUNS, &json!({}));
    sidecar["restartPolicy"] = "Always".into();
    let downward = json!({
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
        // It exits by itself within the grace period.
        case(
            "end-long",
            "trap 'sleep 3; exit 6' TERM; while :; do sleep 3600 & wait $!; done",
            &json!({ "terminationGracePeriodSeconds": 60 }),
            vec![ready(), delete()],
        ),
        // A registry that never responds (`ParityRun::silent`).
        runs(
            "end-pulling",
            &json!({ "container": { "image": "127.0.0.1:18094/none:1" } }),
            vec![
                ScenarioStep::Until("pulls", |pod| pod["status"]["startTime"].is_string()),
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
            vec![
                ready(),
                ScenarioStep::Delete(json!({ "gracePeriodSeconds": 3 })),
            ],
        ),
        runs(
            "other-scheduler",
            &json!({ "schedulerName": "other" }),
            vec![ready()],
        ),
        runs(
            "downward-changes",
            &downward,
            vec![
                ScenarioStep::Until("runs", |pod| {
                    pod["status"]["containerStatuses"][0]["started"] == true
                }),
                ScenarioStep::Change("", change),
                ready(),
            ],
        ),
    ]
}

/// A pod that is preempted by one of higher priority.
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
        ScenarioStep::Once("goes", |pod| {
            pod["metadata"]["deletionTimestamp"].is_string()
        }),
        ScenarioStep::WaitDeleted,
    ];
    let mut high = scheduled("preempts", &bigger, vec![ready()]);
    high.after = Some("preempted");
    vec![scheduled("preempted", &big, low), high]
}

/// A pod that is evicted by a NoExecute taint.
pub fn tainted() -> Vec<Case> {
    let taint = json!([{ "key": "example.com/leave", "effect": "NoExecute" }]);
    vec![runs(
        "tainted",
        &json!({}),
        vec![
            ready(),
            ScenarioStep::Node(json!({ "spec": { "taints": taint } })),
            ScenarioStep::Once("goes", |pod| {
                pod["metadata"]["deletionTimestamp"].is_string()
            }),
            ScenarioStep::WaitDeleted,
            ScenarioStep::Node(json!({ "spec": { "taints": null } })),
        ],
    )]
}
