//! What the node's object in the cluster says counts.

use super::*;

fn known(labels: Value, taints: Value, allocatable: &[(&str, i64)]) -> NodeObject {
    NodeObject::Known {
        labels: serde_json::from_value(labels).unwrap(),
        taints: serde_json::from_value(taints).unwrap(),
        allocatable: numbers(allocatable),
    }
}

fn of_source(mut world: World, source: &str) -> World {
    let source = source.to_owned();
    world = with(world, |pod| {
        let key = "kubernetes.io/config.source".to_owned();
        let annotations = pod.metadata.annotations.get_or_insert_default();
        annotations.insert(key, source);
    });
    world
}

#[test]
fn pods_of_the_cluster_wait_for_the_word_of_the_node() {
    for (source, expected) in [("api", "unsure"), ("file", "")] {
        let mut world = of_source(world(simple("Always", &["a"])), source);
        world.node.room.node = NodeObject::Unheard;
        assert_eq!(told(&world).0, expected, "{source}");
        world.node.room.node = NodeObject::None;
        assert_eq!(told(&world).0, "", "{source}");
        // What was let in by a former life is let in.
        world.settle();
        world.node.room.node = NodeObject::Unheard;
        world.restart();
        assert_eq!(verdict(&world), Verdict::Admitted);
    }
}

#[test]
fn the_nodes_object_counts() {
    let mut spec = asking(json!({"cpu": "1", "example.com/gpu": "2"}));
    let mut refused = of_source(world(spec.clone()), "api");
    let gpus = known(
        json!({}),
        json!([]),
        &[("cpu", 4000), ("example.com/gpu", 1)],
    );
    refused.node.room.node = gpus;
    let short = "requested: 2, used: 0, capacity: 1";
    let (reason, message) = told(&refused);
    assert_eq!(reason, "OutOfexample.com/gpu");
    assert!(message.ends_with(short), "{message}");
    spec["nodeSelector"] = json!({"zone": "a"});
    spec["containers"][0]["resources"] = json!({});
    let mut chosen = of_source(world(spec), "api");
    chosen.node.room.node = known(json!({"zone": "a"}), json!([]), &[]);
    assert_eq!(verdict(&chosen), Verdict::Admitted);
}

#[test]
fn newer_labels_are_awaited_for_a_moment() {
    let mut spec = simple("Always", &["a"]);
    spec["nodeSelector"] = json!({"zone": "a"});
    let mut world = of_source(world(spec), "api");
    world.node.room.node = known(json!({}), json!([]), &[]);
    let plan = world.plan();
    assert!(plan.steps.is_empty() && plan.wake_at.is_some());
    world.begin();
    let old = world.node.room.node.clone();
    world.node.room.node = known(json!({"zone": "a"}), json!([]), &[]);
    assert_eq!(verdict(&world), Verdict::Admitted);
    world.node.room.node = old;
    world.pass(2);
    assert_eq!(told(&world).0, "NodeAffinity");
}

#[test]
fn taints_that_end_pods_keep_them_out() {
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
        let mut world = of_source(world(spec), source);
        world.node.room.node = known(json!({}), taints.clone(), &[]);
        let (reason, message) = told(&world);
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
fn nothing_is_told_of_a_pod_before_it_is_let_in_or_refused() {
    let mut let_in = world(asking(json!({"cpu": "100m"})));
    assert!(!let_in.plan().unadmitted);
    let_in.node.pleg_fresh = false;
    assert!(let_in.plan().unadmitted, "nobody was asked yet");
    let_in.node.pleg_fresh = true;
    let_in.settle();
    let_in.node.pleg_fresh = false;
    assert!(!let_in.plan().unadmitted);

    let mut refused = world(asking(json!({"cpu": "3"})));
    assert!(refused.plan().unadmitted);
    let steps = refused.begin();
    assert!(matches!(*steps, [Step::Decide(_)]), "{steps:?}");
    assert!(refused.plan().unadmitted, "not written down yet");
    refused.finish(&steps[0]);
    assert!(!refused.plan().unadmitted);

    let waits = of_source(world(simple("Always", &["a"])), "api");
    let mut leaves = waits;
    leaves.node.room.node = NodeObject::Unheard;
    assert!(leaves.plan().unadmitted);
    leaves.pod.leaving = true;
    assert!(!leaves.plan().unadmitted);
}
