//! Tests of the classification of pods.

use serde_json::json;

use super::*;

const FIRST: Timestamp = Timestamp::UNIX_EPOCH;

fn example() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": "web", "namespace": "shop", "uid": "u1", "resourceVersion": "7",
            "managedFields": [{"manager": "kubectl"}], "labels": {"a": "b"},
        },
        "spec": {"nodeName": "n", "future": {"x": 1}, "containers": [{"name": "c", "image": "i"}]},
        "status": {"phase": "Pending"},
    })
}

fn pod(value: Value) -> ApiPod {
    match classify(value, |_| None, FIRST) {
        Classified::Pod(pod) => pod,
        other => panic!("{other:?}"),
    }
}

#[test]
fn manifest_has_no_status_or_bookkeeping() {
    let pod = pod(example());
    let manifest: Value = serde_json::from_slice(&pod.manifest).unwrap();
    assert_eq!(
        manifest,
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": "web", "namespace": "shop", "uid": "u1", "labels": {"a": "b"},
                "annotations": {CONFIG_SOURCE: "api", CONFIG_SEEN: "1970-01-01T00:00:00Z"},
            },
            "spec": {"nodeName": "n", "future": {"x": 1}, "containers": [{"name": "c", "image": "i"}]},
        })
    );
    assert_eq!(pod.status, r#"{"phase":"Pending"}"#);
    assert_eq!(parse_phase(&pod.status).as_deref(), Some("Pending"));
    assert_eq!(parse_phase(b"[]"), None);
    let started = parse_start_time(br#"{"startTime": "2026-01-02T03:04:05Z", "phase": "Running"}"#);
    assert_eq!(started, "2026-01-02T03:04:05Z".parse().ok());
    for without in [
        &b"{}"[..],
        br#"{"startTime": null}"#,
        br#"{"startTime": 7}"#,
        b"[]",
    ] {
        assert_eq!(parse_start_time(without), None);
    }
    assert_eq!(parse_first_seen(&pod.manifest), Some(FIRST));
    assert_eq!(parse_first_seen(b"{}"), None);
}

#[test]
fn manifest_does_not_depend_on_status_or_bookkeeping() {
    let before = pod(example());
    let changed = |pointer: &str, value: Value| {
        let mut changed = example();
        *changed.pointer_mut(pointer).unwrap() = value;
        pod(changed)
    };
    let status = changed("/status", json!({"phase": "Running"}));
    let version = changed("/metadata/resourceVersion", json!("8"));
    let fields = changed("/metadata/managedFields", json!([]));
    for same in [&status, &version, &fields] {
        assert_eq!(
            (&same.manifest, &same.digest),
            (&before.manifest, &before.digest)
        );
    }
    assert_ne!(status.status, before.status);
    let mut listed = example();
    listed.as_object_mut().unwrap().remove("kind");
    assert_eq!(pod(listed), before, "items of lists have no kind");
    let image = changed("/spec/containers/0/image", json!("j"));
    let label = changed("/metadata/labels/a", json!("c"));
    let mut ending = example();
    ending["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    for other in [image, label, pod(ending)] {
        assert_ne!(other.digest, before.digest);
    }
}

#[test]
fn unchanged_manifest_shares_the_published_memory() {
    let before = pod(example());
    let published = PublishedManifest {
        manifest: before.manifest.clone(),
        digest: "as published".to_owned(),
    };
    let mut changed = example();
    changed["status"] = json!({"phase": "Running"});
    let later = Timestamp::MAX;
    let Classified::Pod(after) = classify(changed, |_| Some(published.clone()), later) else {
        panic!("no pod");
    };
    assert_eq!(after.manifest.as_ptr(), before.manifest.as_ptr());
    assert_eq!(after.digest, "as published");
    assert_ne!(after.status, before.status);
    let mut changed = example();
    changed["spec"]["containers"][0]["image"] = json!("j");
    let Classified::Pod(after) = classify(changed, |_| Some(published), later) else {
        panic!("no pod");
    };
    assert_eq!(parse_first_seen(&after.manifest), Some(FIRST));
    assert_ne!(
        (after.digest, after.manifest),
        (before.digest, before.manifest)
    );
}

#[test]
fn mirror_pods_are_classified() {
    let mut mirror = example();
    mirror["metadata"]["annotations"] = json!({CONFIG_MIRROR: "static"});
    mirror["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "nu"}]);
    let Classified::Mirror(mirror) = classify(mirror, |_| None, FIRST) else {
        panic!("no mirror pod");
    };
    let (of, owner) = (
        mirror.source_pod_uid.as_str(),
        mirror.owner_node_uid.as_str(),
    );
    assert_eq!((of, owner, mirror.deleting), ("static", "nu", false));
}

#[test]
fn invalid_pods_are_named() {
    let mut odd = example();
    odd["spec"]["containers"] = json!("many");
    for (pod, name, field) in [
        (odd, "shop/web", "spec.containers"),
        (json!({"metadata": {"name": "x"}}), "/x", "metadata"),
        (json!([1]), "/", "metadata"),
    ] {
        let Classified::Invalid {
            name: invalid_name,
            error,
            ..
        } = classify(pod, |_| None, FIRST)
        else {
            panic!("valid");
        };
        assert_eq!((invalid_name.as_str(), error.field.as_str()), (name, field));
    }
}

#[test]
fn the_last_change_before_a_removal_is_recognized() {
    for (metadata, expected) in [
        (json!({}), false),
        (json!({"deletionGracePeriodSeconds": 30}), false),
        (json!({"deletionGracePeriodSeconds": 0}), true),
        (
            json!({"deletionGracePeriodSeconds": 0, "finalizers": []}),
            true,
        ),
        (
            json!({"deletionGracePeriodSeconds": 0, "finalizers": ["a/b"]}),
            false,
        ),
    ] {
        let object = json!({"metadata": metadata});
        assert_eq!(is_about_to_go(&object), expected, "{object}");
    }
}
