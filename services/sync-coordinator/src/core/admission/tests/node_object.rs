//! The Node object in the cluster.

use super::*;

fn present(labels: Value, taints: Value, allocatable: &[(&str, i64)]) -> NodeObject {
    NodeObject::Present {
        labels: serde_json::from_value(labels).unwrap(),
        taints: serde_json::from_value(taints).unwrap(),
        allocatable: numbers(allocatable),
    }
}

fn with_source(mut env: TestEnv, source: &str) -> TestEnv {
    let source = source.to_owned();
    env = with(env, |pod| {
        let key = "kubernetes.io/config.source".to_owned();
        let annotations = pod.metadata.annotations.get_or_insert_default();
        annotations.insert(key, source);
    });
    env
}

#[test]
fn api_pods_wait_for_the_node_object() {
    for (source, expected) in [("api", "waits for node"), ("file", "")] {
        let mut env = with_source(env(simple("Always", &["a"])), source);
        env.node.resources.node_object = NodeObject::NotSynced;
        assert_eq!(rejection(&env).0, expected, "{source}");
        env.node.resources.node_object = NodeObject::Absent;
        assert_eq!(rejection(&env).0, "", "{source}");
        // A pod admitted by the previous instance stays admitted.
        env.run_until_idle();
        env.node.resources.node_object = NodeObject::NotSynced;
        env.restart_process();
        assert_eq!(decision(&env), AdmissionDecision::Admitted);
    }
}

#[test]
fn labels_and_allocatable_of_the_node_object_count() {
    let mut spec = requesting(json!({"cpu": "1", "example.com/gpu": "2"}));
    let mut rejected = with_source(env(spec.clone()), "api");
    let gpus = present(
        json!({}),
        json!([]),
        &[("cpu", 4000), ("example.com/gpu", 1)],
    );
    rejected.node.resources.node_object = gpus;
    let amounts = "requested: 2, used: 0, capacity: 1";
    let (reason, message) = rejection(&rejected);
    assert_eq!(reason, "OutOfexample.com/gpu");
    assert!(message.ends_with(amounts), "{message}");
    spec["nodeSelector"] = json!({"zone": "a"});
    spec["containers"][0]["resources"] = json!({});
    let mut matching = with_source(env(spec), "api");
    matching.node.resources.node_object = present(json!({"zone": "a"}), json!([]), &[]);
    assert_eq!(decision(&matching), AdmissionDecision::Admitted);
}

#[test]
fn newer_labels_are_waited_for() {
    let mut spec = simple("Always", &["a"]);
    spec["nodeSelector"] = json!({"zone": "a"});
    let mut env = with_source(env(spec), "api");
    env.node.resources.node_object = present(json!({}), json!([]), &[]);
    let plan = env.plan();
    assert!(plan.steps.is_empty() && plan.wake_at.is_some());
    env.start_steps();
    let old = env.node.resources.node_object.clone();
    env.node.resources.node_object = present(json!({"zone": "a"}), json!([]), &[]);
    assert_eq!(decision(&env), AdmissionDecision::Admitted);
    env.node.resources.node_object = old;
    env.advance_clock(2);
    assert_eq!(rejection(&env).0, "NodeAffinity");
}

#[test]
fn no_execute_taints_reject_api_pods() {
    let taints = json!([{"key": "a", "effect": "NoExecute"}, {"key": "b", "effect": "NoSchedule"}]);
    for (source, tolerations, expected) in [
        ("api", json!([]), "TaintToleration"),
        ("api", json!([{"key": "a", "operator": "Exists"}]), ""),
        (
            "api",
            json!([{"key": "a", "operator": "Exists", "effect": "NoSchedule"}]),
            "TaintToleration",
        ),
        ("file", json!([]), ""),
    ] {
        let mut spec = simple("Always", &["a"]);
        spec["tolerations"] = tolerations.clone();
        let mut env = with_source(env(spec), source);
        env.node.resources.node_object = present(json!({}), taints.clone(), &[]);
        let (reason, message) = rejection(&env);
        assert_eq!(reason, expected, "{source} {tolerations}");
        if !reason.is_empty() {
            assert_eq!(
                message,
                "Predicate TaintToleration failed: node(s) had taints that the pod didn't tolerate"
            );
        }
    }
}

#[test]
fn a_pod_is_unadmitted_until_admitted_or_rejected() {
    let mut admitted = env(requesting(json!({"cpu": "100m"})));
    assert!(!admitted.plan().unadmitted);
    admitted.node.pleg_synced = false;
    assert!(admitted.plan().unadmitted, "not decided yet");
    admitted.node.pleg_synced = true;
    admitted.run_until_idle();
    admitted.node.pleg_synced = false;
    assert!(!admitted.plan().unadmitted);

    let mut rejected = env(requesting(json!({"cpu": "3"})));
    assert!(rejected.plan().unadmitted);
    let steps = rejected.start_steps();
    assert!(
        matches!(*steps, [Step::CheckpointTermination(_)]),
        "{steps:?}"
    );
    assert!(rejected.plan().unadmitted, "not stored yet");
    rejected.finish(&steps[0]);
    assert!(!rejected.plan().unadmitted);

    let mut removed = with_source(env(simple("Always", &["a"])), "api");
    removed.node.resources.node_object = NodeObject::NotSynced;
    assert!(removed.plan().unadmitted);
    removed.remove();
    assert!(!removed.plan().unadmitted);
}
