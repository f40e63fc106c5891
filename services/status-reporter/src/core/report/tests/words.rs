//! What is patched.

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
fn the_same_is_not_said_again_however_it_is_written() {
    let cases = [
        ("/conditions/0/lastProbeTime", Value::Null),
        ("/reason", json!("")),
        ("/containerStatuses/0/lastState", json!({})),
        ("/resources", json!({})),
        ("/containerStatuses/0/volumeMounts", json!([])),
    ];
    for (pointer, value) in cases {
        let held = with(running(), &[(pointer, value)]);
        assert_eq!(told(held, running(), true).0, None, "{pointer}");
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
        told(amounts("500m", "1Gi"), amounts("0.5", "1024Mi"), true).0,
        None
    );
    let (body, _) = told(amounts("500m", "1Gi"), amounts("1", "1Gi"), true);
    assert_eq!(
        body.unwrap(),
        json!({ "allocatedResources": { "cpu": "1" }, "resources": { "limits": { "cpu": "1" } } })
    );
}

#[test]
fn times_of_others_making_are_cut_and_kept() {
    let mut ours = running();
    ours["startTime"] = json!("2026-01-01T00:05:00.123456Z");
    ours["conditions"][0]["lastTransitionTime"] = json!("2026-01-01T00:09:00Z");
    ours["containerStatuses"][0]["state"]["running"]["startedAt"] =
        json!("2026-01-01T00:00:02.75Z");
    // After a restart of ours with everything forgotten: the cluster's times hold.
    assert_eq!(told(running(), ours, true).0, None);
}

#[test]
fn only_what_differs_is_sent() {
    let unready = with(
        running(),
        &[
            ("/conditions/0", condition("Ready", "False", 9)),
            ("/conditions/0/reason", json!("ContainersNotReady")),
            ("/podIPs/-", json!({ "ip": "fd00::2" })),
        ],
    );
    let (body, after) = told(running(), unready.clone(), true);
    let body = body.unwrap();
    assert_eq!(body["conditions"].as_array().unwrap().len(), 1);
    assert_eq!(
        body["podIPs"],
        json!([{ "$patch": "replace" }, { "ip": "10.0.0.2" }, { "ip": "fd00::2" }])
    );
    assert_eq!(after, status(unready.clone()));
    // And back: what is no more is taken out.
    let (body, after) = told(
        unready,
        with(
            running(),
            &[("/conditions/0", condition("Ready", "True", 11))],
        ),
        true,
    );
    assert_eq!(body.unwrap()["conditions"][0]["reason"], Value::Null);
    assert_eq!(after.pod_ips.unwrap().len(), 1);
}

#[test]
fn what_others_write_stays() {
    let held = with(
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
    let (body, after) = told(held, running(), true);
    assert_eq!(
        body.unwrap()["conditions"],
        json!([{ "$patch": "delete", "type": "PodResizePending" }]),
        "the pending resize is ours, and over"
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
fn drift_is_set_right() {
    let held = with(
        running(),
        &[
            ("/phase", json!("Pending")),
            ("/podIP", json!("10.9.9.9")),
            ("/message", json!("hello")),
            ("/containerStatuses", Value::Null),
        ],
    );
    let (body, after) = told(held, running(), true);
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
fn an_end_waits_for_its_containers_and_brings_disruption_with_it() {
    let (body, _) = told(running(), evicted(), true);
    assert_eq!(body, None, "nothing of the end while a container may run");
    let (_, after) = told(running(), evicted(), false);
    assert_eq!(after.phase.as_deref(), Some("Failed"));
    assert_eq!(after.reason.as_deref(), Some("Evicted"));
    let types = types(&after);
    assert!(types.contains(&"DisruptionTarget=True".to_owned()));
    assert!(types.contains(&"Ready=False".to_owned()), "{types:?}");
    assert!(types.contains(&"ContainersReady=False".to_owned()));
}

#[test]
fn an_end_is_never_taken_back() {
    let held = with(
        evicted(),
        &[("/conditions/3", condition("other", "True", 1))],
    );
    for (ours, may_run) in [(running(), true), (running(), false), (evicted(), false)] {
        let (_, after) = told(held.clone(), ours, may_run);
        assert_eq!(after.phase.as_deref(), Some("Failed"));
        assert_eq!(after.reason.as_deref(), Some("Evicted"));
        assert!(types(&after).contains(&"Ready=False".to_owned()));
    }
}

#[test]
fn last_words_share_their_room() {
    let ended = json!({ "terminated": { "exitCode": 1, "message": "é".repeat(5000) } });
    let mut ours = running();
    let mut second = ours["containerStatuses"][0].clone();
    second["name"] = json!("b");
    second["state"] = ended;
    ours["containerStatuses"]
        .as_array_mut()
        .unwrap()
        .insert(0, second);
    let (_, after) = told(running(), ours, true);
    let list = after.container_statuses.unwrap();
    assert_eq!((list[0].name.as_str(), list[1].name.as_str()), ("a", "b"));
    let state = list[1].state.as_ref().unwrap();
    let message = state.terminated.as_ref().unwrap().message.as_ref().unwrap();
    assert_eq!(message.len(), 6144);
}

proptest! {
    /// Whatever the cluster holds, one patch says all there is to say.
    #[test]
    fn one_patch_is_enough(
        held in proptest::collection::vec(0_usize..9, 0..5),
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
        told(changed(&held), changed(&ours), may_run);
    }
}
