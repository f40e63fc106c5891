use proptest::prelude::*;
use serde_json::json;

use super::*;

fn applied(spec: Value) -> Value {
    let mut pod: Pod = serde_json::from_value(json!({"spec": spec})).unwrap();
    apply(&mut pod);
    let once = serde_json::to_value(&pod).unwrap();
    apply(&mut pod);
    assert_eq!(
        serde_json::to_value(&pod).unwrap(),
        once,
        "a second time changes something"
    );
    once["spec"].clone()
}

#[test]
fn a_minimal_pod() {
    let spec = applied(
        json!({"containers": [{"name": "a", "image": "x", "ports": [{"containerPort": 80}]}]}),
    );
    assert_eq!(
        spec,
        json!({
            "dnsPolicy": "ClusterFirst", "restartPolicy": "Always", "schedulerName": "default-scheduler",
            "securityContext": {}, "terminationGracePeriodSeconds": 30, "enableServiceLinks": true,
            "containers": [{"name": "a", "image": "x", "imagePullPolicy": "Always",
                "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
                "ports": [{"containerPort": 80, "protocol": "TCP"}]}]
        })
    );
}

#[test]
fn fields_that_are_set_are_unchanged() {
    let spec = json!({
        "dnsPolicy": "Default", "restartPolicy": "Never", "schedulerName": "mine", "securityContext": {"runAsUser": 7},
        "terminationGracePeriodSeconds": 0, "enableServiceLinks": false,
        "containers": [{"name": "a", "image": "x", "imagePullPolicy": "Never", "terminationMessagePath": "/t",
            "terminationMessagePolicy": "FallbackToLogsOnError", "ports": [{"containerPort": 80, "protocol": "UDP"}]}]
    });
    assert_eq!(applied(spec.clone()), spec);
}

#[test]
fn probes_and_hooks() {
    let spec = applied(json!({"containers": [{"name": "a", "image": "x:1",
        "livenessProbe": {"httpGet": {"port": 80}, "timeoutSeconds": 0, "periodSeconds": 3},
        "readinessProbe": {"grpc": {"port": 80}},
        "lifecycle": {"preStop": {"httpGet": {"port": 80, "path": ""}}}}]}));
    let container = &spec["containers"][0];
    assert_eq!(
        container["livenessProbe"],
        json!({"httpGet": {"port": 80, "path": "/", "scheme": "HTTP"}, "timeoutSeconds": 1, "periodSeconds": 3,
            "successThreshold": 1, "failureThreshold": 3})
    );
    assert_eq!(
        container["readinessProbe"]["grpc"],
        json!({"port": 80, "service": ""})
    );
    assert_eq!(
        container["lifecycle"]["preStop"]["httpGet"],
        json!({"port": 80, "path": "/", "scheme": "HTTP"})
    );
    assert_eq!(container["imagePullPolicy"], "IfNotPresent");
}

#[test]
fn volumes() {
    let spec = applied(json!({"containers": [], "volumes": [
        {"name": "none"},
        {"name": "cm", "configMap": {"name": "c"}},
        {"name": "s", "secret": {"secretName": "s", "defaultMode": 256}},
        {"name": "hp", "hostPath": {"path": "/x"}},
        {"name": "d", "downwardAPI": {"items": [{"path": "p", "fieldRef": {"fieldPath": "metadata.name"}}]}},
        {"name": "p", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}},
            {"downwardAPI": {"items": [{"path": "p", "fieldRef": {"fieldPath": "metadata.name"}}]}}]}},
        {"name": "i", "image": {"reference": "x"}}]}));
    assert_eq!(
        spec["volumes"],
        json!([
            {"name": "none", "emptyDir": {}},
            {"name": "cm", "configMap": {"name": "c", "defaultMode": 420}},
            {"name": "s", "secret": {"secretName": "s", "defaultMode": 256}},
            {"name": "hp", "hostPath": {"path": "/x", "type": ""}},
            {"name": "d", "downwardAPI": {"defaultMode": 420,
                "items": [{"path": "p", "fieldRef": {"fieldPath": "metadata.name", "apiVersion": "v1"}}]}},
            {"name": "p", "projected": {"defaultMode": 420, "sources": [
                {"serviceAccountToken": {"path": "t", "expirationSeconds": 3600}},
                {"downwardAPI": {"items": [{"path": "p", "fieldRef": {"fieldPath": "metadata.name", "apiVersion": "v1"}}]}}]}},
            {"name": "i", "image": {"reference": "x", "pullPolicy": "Always"}}
        ])
    );
}

#[test]
fn requests_default_to_limits_and_are_rounded_to_thousandths() {
    let spec = applied(
        json!({"containers": [{"name": "a", "image": "x", "resources": {
        "limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "0.0001"}}}]}),
    );
    assert_eq!(
        spec["containers"][0]["resources"],
        json!({"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "1m", "memory": "1Gi"}})
    );
}

#[test]
fn pod_level_requests_default_to_those_of_containers_or_to_limits() {
    let spec = applied(
        json!({"resources": {"limits": {"cpu": "2", "memory": "1Gi"}},
        "containers": [{"name": "a", "image": "x", "resources": {"requests": {"cpu": "500m"}}}]}),
    );
    assert_eq!(
        spec["resources"]["requests"],
        json!({"cpu": "500m", "memory": "1Gi"})
    );
    let untouched = applied(
        json!({"containers": [{"name": "a", "image": "x", "resources": {"limits": {"cpu": "1"}}}]}),
    );
    assert!(untouched.get("resources").is_none());
}

#[test]
fn host_network_pods_get_host_ports() {
    let spec = applied(
        json!({"hostNetwork": true, "containers": [{"name": "a", "image": "x", "ports": [
        {"containerPort": 80}, {"containerPort": 81, "hostPort": 8081}]}]}),
    );
    let ports = &spec["containers"][0]["ports"];
    assert_eq!(
        (&ports[0]["hostPort"], &ports[1]["hostPort"]),
        (&json!(80), &json!(8081))
    );
}

#[test]
fn unknown_json_fields_are_preserved() {
    let mut pod = json!({"futureKind": 1, "metadata": {"creationTimestamp": null, "name": "p"},
        "spec": {"future": {"a": [1]}, "dnsPolicy": "", "containers": [{"name": "a", "image": "x", "later": true,
            "livenessProbe": {"exec": {"command": ["true"]}, "periodSeconds": 0},
            "resources": {"limits": {"cpu": 2, "memory": "1Gi"}}}]}});
    apply_to_json(&mut pod).unwrap();
    assert_eq!(pod["futureKind"], 1);
    assert_eq!(pod["spec"]["future"], json!({"a": [1]}));
    assert_eq!(pod["spec"]["dnsPolicy"], "ClusterFirst");
    let container = &pod["spec"]["containers"][0];
    assert_eq!(container["later"], true);
    assert_eq!(container["livenessProbe"]["periodSeconds"], 10);
    assert_eq!(
        container["resources"],
        json!({"limits": {"cpu": "2", "memory": "1Gi"}, "requests": {"cpu": "2", "memory": "1Gi"}})
    );
    let once = pod.clone();
    apply_to_json(&mut pod).unwrap();
    assert_eq!(pod, once);
}

#[test]
fn json_other_than_a_pod_is_rejected() {
    assert!(apply_to_json(&mut json!({"spec": {"containers": "none"}})).is_err());
    assert!(apply_to_json(&mut json!([])).is_err());
}

proptest! {
    #[test]
    fn arbitrary_pods_never_panic(name in ".{0,9}", image in ".{0,20}", cpu in ".{0,9}", port in any::<i32>()) {
        let mut pod = json!({"spec": {"hostNetwork": true, "containers": [{"name": name, "image": image,
            "ports": [{"containerPort": port}], "resources": {"limits": {"cpu": cpu}}}]}});
        prop_assert!(apply_to_json(&mut pod).is_ok());
    }
}
