//! Bodies of patches.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn types(status: &PodStatus) -> Vec<String> {
    let conditions = status.conditions.iter().flatten();
    conditions
        .map(|c| format!("{}={}", c.type_, c.status))
        .collect()
}

#[test]
fn equivalent_statuses_are_not_patched() {
    let cases = [
        ("/conditions/0/lastProbeTime", Value::Null),
        ("/reason", json!("")),
        ("/containerStatuses/0/lastState", json!({})),
        ("/resources", json!({})),
        ("/containerStatuses/0/volumeMounts", json!([])),
    ];
    for (pointer, value) in cases {
        let current = with(running(), &[(pointer, value)]);
        assert_eq!(
            patched(current, running(), rules(true)).0,
            None,
            "{pointer}"
        );
    }
    let amounts = |cpu: &str, memory: &str| {
        with(
            running(),
            &[
                (
                    "/allocatedResources",
                    json!({ "cpu": cpu, "memory": memory }),
                ),
                ("/resources", json!({ "limits": { "cpu": cpu } })),
            ],
        )
    };
    assert_eq!(
        patched(
            amounts("500m", "1Gi"),
            amounts("0.5", "1024Mi"),
            rules(true)
        )
        .0,
        None
    );
    let (body, _) = patched(amounts("500m", "1Gi"), amounts("1", "1Gi"), rules(true));
    assert_eq!(
        body.unwrap(),
        json!({ "allocatedResources": { "cpu": "1" }, "resources": { "limits": { "cpu": "1" } } })
    );
}

#[test]
fn times_are_truncated_and_preserved_from_the_api_server() {
    let mut ours = running();
    ours["startTime"] = json!("2026-01-01T00:05:00.123456Z");
    ours["conditions"][0]["lastTransitionTime"] = json!("2026-01-01T00:09:00Z");
    ours["containerStatuses"][0]["state"]["running"]["startedAt"] =
        json!("2026-01-01T00:00:02.75Z");
    // After a restart without persisted state, the times of the API server stay.
    assert_eq!(patched(running(), ours, rules(true)).0, None);
}

#[test]
fn only_changed_fields_are_sent() {
    let unready = with(
        running(),
        &[
            ("/conditions/0", condition("Ready", "False", 9)),
            ("/conditions/0/reason", json!("ContainersNotReady")),
            ("/podIPs/-", json!({ "ip": "fd00::2" })),
        ],
    );
    let (body, after) = patched(running(), unready.clone(), rules(true));
    let body = body.unwrap();
    assert_eq!(body["conditions"].as_array().unwrap().len(), 1);
    assert_eq!(
        body["podIPs"],
        json!([{ "$patch": "replace" }, { "ip": "10.0.0.2" }, { "ip": "fd00::2" }])
    );
    assert_eq!(after, status(unready.clone()));
    // And back: fields that are gone are removed.
    let (body, after) = patched(
        unready,
        with(
            running(),
            &[("/conditions/0", condition("Ready", "True", 11))],
        ),
        rules(true),
    );
    assert_eq!(body.unwrap()["conditions"][0]["reason"], Value::Null);
    assert_eq!(after.pod_ips.unwrap().len(), 1);
}

#[test]
fn fields_of_others_stay() {
    let current = with(
        running(),
        &[
            ("/conditions/-", condition("example.com/gate", "True", 5)),
            ("/conditions/-", condition("DisruptionTarget", "True", 6)),
            ("/conditions/-", condition("PodResizePending", "True", 7)),
            (
                "/resourceClaimStatuses",
                json!([{ "name": "gpu", "resourceClaimName": "p-gpu" }]),
            ),
        ],
    );
    let (body, after) = patched(current, running(), rules(true));
    assert_eq!(
        body.unwrap()["conditions"],
        json!([{ "$patch": "delete", "type": "PodResizePending" }]),
        "an owned condition that no longer holds is removed"
    );
    let types = types(&after);
    assert!(
        types.contains(&"example.com/gate=True".to_owned()),
        "{types:?}"
    );
    assert!(
        types.contains(&"DisruptionTarget=True".to_owned()),
        "{types:?}"
    );
    assert!(after.resource_claim_statuses.is_some());
}

#[test]
fn drift_is_repaired() {
    let current = with(
        running(),
        &[
            ("/phase", json!("Pending")),
            ("/podIP", json!("10.9.9.9")),
            ("/message", json!("hello")),
            ("/containerStatuses", Value::Null),
        ],
    );
    let (body, after) = patched(current, running(), rules(true));
    let body = body.unwrap();
    assert_eq!(body["message"], Value::Null);
    assert_eq!(body["containerStatuses"].as_array().unwrap().len(), 1);
    assert_eq!(after, status(running()));
}

fn evicted() -> Value {
    with(
        running(),
        &[
            ("/phase", json!("Failed")),
            ("/reason", json!("Evicted")),
            ("/message", json!("The node was low on resource: memory.")),
            ("/conditions/-", condition("DisruptionTarget", "True", 9)),
        ],
    )
}

#[test]
fn terminal_phase_waits_for_containers_and_brings_disruption_target() {
    let (body, _) = patched(running(), evicted(), rules(true));
    assert_eq!(body, None, "no terminal phase while a container may run");
    let (_, after) = patched(running(), evicted(), rules(false));
    assert_eq!(after.phase.as_deref(), Some("Failed"));
    assert_eq!(after.reason.as_deref(), Some("Evicted"));
    let types = types(&after);
    assert!(types.contains(&"DisruptionTarget=True".to_owned()));
    assert!(types.contains(&"Ready=False".to_owned()), "{types:?}");
    assert!(types.contains(&"ContainersReady=False".to_owned()));
}

#[test]
fn terminal_phase_is_never_taken_back() {
    let current = with(
        evicted(),
        &[("/conditions/3", condition("other", "True", 1))],
    );
    for (ours, may_run) in [(running(), true), (running(), false), (evicted(), false)] {
        let (_, after) = patched(current.clone(), ours, rules(may_run));
        assert_eq!(after.phase.as_deref(), Some("Failed"));
        assert_eq!(after.reason.as_deref(), Some("Evicted"));
        assert!(types(&after).contains(&"Ready=False".to_owned()));
    }
}

#[test]
fn static_pod_that_starts_over_takes_its_terminal_phase_back() {
    let rules = PhaseRules {
        may_run: true,
        is_static: true,
    };
    for ended in [
        evicted(),
        with(running(), &[("/phase", json!("Succeeded"))]),
    ] {
        let (_, after) = patched(ended, running(), rules);
        assert_eq!(after.phase.as_deref(), Some("Running"));
        assert_eq!((after.reason.clone(), after.message.clone()), (None, None));
        assert!(types(&after).contains(&"Ready=True".to_owned()));
    }
    // It ends only once no container runs, too.
    let (body, _) = patched(running(), evicted(), rules);
    assert_eq!(body, None);
}

#[test]
fn termination_messages_share_a_limit() {
    let ended = json!({ "terminated": { "exitCode": 1, "message": "é".repeat(5000) } });
    let mut ours = running();
    let mut second = ours["containerStatuses"][0].clone();
    second["name"] = json!("b");
    second["state"] = ended;
    ours["containerStatuses"]
        .as_array_mut()
        .unwrap()
        .insert(0, second);
    let (_, after) = patched(running(), ours, rules(true));
    let list = after.container_statuses.unwrap();
    assert_eq!((list[0].name.as_str(), list[1].name.as_str()), ("a", "b"));
    let state = list[1].state.as_ref().unwrap();
    let message = state.terminated.as_ref().unwrap().message.as_ref().unwrap();
    assert_eq!(message.len(), 6144);
}

proptest! {
    /// Whatever the API server has, one patch brings it up to date.
    #[test]
    fn one_patch_is_enough(
        current in proptest::collection::vec(0_usize..9, 0..5),
        ours in proptest::collection::vec(0_usize..9, 0..5),
        may_run in any::<bool>(),
    ) {
        let changed = |numbers: &[usize]| {
            let all = [
                ("/phase", json!("Failed")), ("/reason", json!("Evicted")), ("/podIP", Value::Null),
                ("/podIPs", json!([])), ("/conditions", json!([])), ("/startTime", Value::Null),
                ("/conditions", json!([condition("Ready", "False", 8), condition("x", "True", 1), condition("DisruptionTarget", "True", 1)])),
                ("/containerStatuses", Value::Null), ("/allocatedResources", json!({ "cpu": "1" })),
            ];
            let changes: Vec<_> = numbers.iter().map(|n| all[*n].clone()).collect();
            with(running(), &changes)
        };
        patched(changed(&current), changed(&ours), rules(may_run));
    }
}
