use super::*;
use serde_json::{Value, json};

fn base() -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "namespace": "default"},
        "spec": {"containers": [{"name": "a", "image": "busybox"}]}})
}

/// The invalid fields of a pod with `value` at the path `at`.
fn check(at: &str, value: Value) -> Vec<String> {
    let mut root = base();
    let mut target = &mut root;
    for part in at.split('/').filter(|p| !p.is_empty()) {
        target = match part.parse::<usize>() {
            Ok(i) => &mut target[i],
            Err(_) => &mut target[part],
        };
    }
    *target = value;
    let mut typed: Pod = serde_json::from_value(root).expect("a typed pod");
    polylet_model::defaults::apply(&mut typed);
    pod(&typed).into_iter().map(|f| f.field).collect()
}

#[test]
fn minimal_pod_is_valid() {
    assert_eq!(
        check("metadata/labels", json!({"app": "web"})),
        Vec::<String>::new()
    );
}

#[test]
fn invalid_fields_are_reported() {
    let c = "spec/containers/0";
    let cases = [
        ("metadata/name", json!("a/b"), "metadata.name"),
        ("metadata/name", json!("A"), "metadata.name"),
        ("metadata/namespace", json!("a.b"), "metadata.namespace"),
        ("metadata/labels", json!({"-x": "y"}), "metadata.labels"),
        (
            "metadata/labels",
            json!({"x": "y z"}),
            "metadata.labels[\"x\"]",
        ),
        ("spec/containers", json!([]), "spec.containers"),
        (
            "spec/containers",
            json!([{"name": "a", "image": "i"}, {"name": "a", "image": "i"}]),
            "spec.containers[1].name",
        ),
        (
            "spec/initContainers",
            json!([{"name": "a", "image": "i"}]),
            "spec.initContainers[0].name",
        ),
        (
            "spec/containers",
            json!([{"name": "a"}]),
            "spec.containers[0].image",
        ),
        (
            "spec/containers",
            json!([{"image": "i"}]),
            "spec.containers[0].name",
        ),
        (
            "spec/containers",
            json!([{"name": "a/b", "image": "i"}]),
            "spec.containers[0].name",
        ),
        (
            "spec/containers",
            json!([{"name": "a", "image": " i"}]),
            "spec.containers[0].image",
        ),
        (
            "spec/terminationGracePeriodSeconds",
            json!(-1),
            "spec.terminationGracePeriodSeconds",
        ),
        (
            "spec/activeDeadlineSeconds",
            json!(0),
            "spec.activeDeadlineSeconds",
        ),
        (
            "spec/restartPolicy",
            json!("Sometimes"),
            "spec.restartPolicy",
        ),
        ("spec/dnsPolicy", json!("Mine"), "spec.dnsPolicy"),
        (
            "spec/dnsPolicy",
            json!("None"),
            "spec.dnsConfig.nameservers",
        ),
        (
            "spec/serviceAccountName",
            json!("default"),
            "spec.serviceAccountName",
        ),
        (
            "spec/volumes",
            json!([{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]),
            "spec.volumes[0].persistentVolumeClaim",
        ),
        (
            "spec/volumes",
            json!([{"name": "v", "emptyDir": {}, "hostPath": {"path": "/"}}]),
            "spec.volumes[0]",
        ),
        (
            "spec/volumes",
            json!([{"name": "v", "hostPath": {"path": "/a/../b"}}]),
            "spec.volumes[0].hostPath.path",
        ),
        (
            "spec/volumes",
            json!([{"name": "v", "secret": {}}]),
            "spec.volumes[0].secret.secretName",
        ),
        (
            "spec/volumes",
            json!([{"name": "v", "emptyDir": {"sizeLimit": "much"}}]),
            "spec.volumes[0].emptyDir.sizeLimit",
        ),
        (
            "spec/volumes",
            json!([{"name": "v", "configMap": {"name": "c", "items": [{"key": "k", "path": "../x"}]}}]),
            "spec.volumes[0].configMap.items[0].path",
        ),
        (
            "spec/volumes",
            json!([{"name": "v", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}]),
            "spec.volumes[0].projected.sources[0].serviceAccountToken",
        ),
        (
            "spec/hostAliases",
            json!([{"ip": "nowhere"}]),
            "spec.hostAliases[0].ip",
        ),
        (
            "spec/ephemeralContainers",
            json!([{"name": "e", "image": "i"}]),
            "spec.ephemeralContainers",
        ),
        (
            "spec/tolerations",
            json!([{"operator": "Equal"}]),
            "spec.tolerations[0].operator",
        ),
        (
            "spec/securityContext",
            json!({"runAsUser": -1}),
            "spec.securityContext.runAsUser",
        ),
        (
            "spec/securityContext",
            json!({"seccompProfile": {"type": "Localhost"}}),
            "spec.securityContext.seccompProfile.localhostProfile",
        ),
    ];
    for (at, value, field) in cases {
        assert_eq!(check(at, value.clone()), [field], "{at} = {value}");
    }
    let cases = [
        ("imagePullPolicy", json!("Maybe"), "imagePullPolicy"),
        (
            "volumeMounts",
            json!([{"name": "none", "mountPath": "/a"}]),
            "volumeMounts[0].name",
        ),
        (
            "ports",
            json!([{"containerPort": 0}]),
            "ports[0].containerPort",
        ),
        (
            "ports",
            json!([{"containerPort": 80, "name": "UP"}]),
            "ports[0].name",
        ),
        (
            "ports",
            json!([{"containerPort": 80, "hostPort": 70000}]),
            "ports[0].hostPort",
        ),
        (
            "ports",
            json!([{"containerPort": 80, "protocol": "ICMP"}]),
            "ports[0].protocol",
        ),
        ("env", json!([{"name": "A=B"}]), "env[0].name"),
        (
            "env",
            json!([{"name": "A", "value": "x", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]),
            "env[0].valueFrom",
        ),
        (
            "env",
            json!([{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "spec.color"}}}]),
            "env[0].valueFrom.fieldRef.fieldPath",
        ),
        (
            "env",
            json!([{"name": "A", "valueFrom": {}}]),
            "env[0].valueFrom",
        ),
        ("envFrom", json!([{}]), "envFrom[0]"),
        ("livenessProbe", json!({}), "livenessProbe"),
        (
            "livenessProbe",
            json!({"tcpSocket": {"port": 1}, "exec": {"command": ["x"]}}),
            "livenessProbe",
        ),
        (
            "livenessProbe",
            json!({"tcpSocket": {"port": 1}, "successThreshold": 2}),
            "livenessProbe.successThreshold",
        ),
        (
            "livenessProbe",
            json!({"tcpSocket": {"port": 1}, "periodSeconds": -1}),
            "livenessProbe.periodSeconds",
        ),
        (
            "readinessProbe",
            json!({"tcpSocket": {"port": "not a name"}}),
            "readinessProbe.tcpSocket.port",
        ),
        (
            "readinessProbe",
            json!({"tcpSocket": {"port": 1}, "terminationGracePeriodSeconds": 1}),
            "readinessProbe.terminationGracePeriodSeconds",
        ),
        ("lifecycle", json!({"preStop": {}}), "lifecycle.preStop"),
        (
            "resources",
            json!({"limits": {"cpu": "lots"}}),
            "resources.limits[cpu]",
        ),
        (
            "resources",
            json!({"limits": {"cpu": "1"}, "requests": {"cpu": "2"}}),
            "resources.requests[cpu]",
        ),
        (
            "resources",
            json!({"limits": {"cup": "1"}, "requests": {"cup": "1"}}),
            "resources.limits[cup]",
        ),
        (
            "resources",
            json!({"requests": {"memory": "-1"}}),
            "resources.requests[memory]",
        ),
        (
            "restartPolicyRules",
            json!([{"action": "Restart", "exitCodes": {"operator": "In", "values": [1]}}]),
            "restartPolicy",
        ),
        (
            "securityContext",
            json!({"privileged": true, "allowPrivilegeEscalation": false}),
            "securityContext.allowPrivilegeEscalation",
        ),
    ];
    for (at, value, field) in cases {
        let found = check(&format!("{c}/{at}"), value.clone());
        assert_eq!(
            found.first().map(String::as_str),
            Some(format!("spec.containers[0].{field}").as_str()),
            "{at} = {value}: {found:?}"
        );
    }
}

#[test]
fn references_to_manifest_objects_are_allowed() {
    let volumes = json!([
        {"name": "s", "secret": {"secretName": "s"}},
        {"name": "c", "configMap": {"name": "c"}},
        {"name": "p", "projected": {"sources": [{"secret": {"name": "s"}}, {"configMap": {"name": "c"}}]}}]);
    assert_eq!(check("spec/volumes", volumes), Vec::<String>::new());
    assert_eq!(
        check("spec/imagePullSecrets", json!([{"name": "pull"}])),
        Vec::<String>::new()
    );
    let env = json!([{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]);
    assert_eq!(check("spec/containers/0/env", env), Vec::<String>::new());
}

#[test]
fn duplicate_mounts_and_host_ports_are_reported() {
    let mut root = base();
    root["spec"]["volumes"] = json!([{"name": "v", "emptyDir": {}}]);
    root["spec"]["containers"] = json!([
        {"name": "a", "image": "i", "volumeMounts": [{"name": "v", "mountPath": "/a"}, {"name": "v", "mountPath": "/a"}],
         "ports": [{"containerPort": 1, "hostPort": 80}]},
        {"name": "b", "image": "i", "ports": [{"containerPort": 2, "hostPort": 80}]}]);
    let found = check("", root);
    assert_eq!(
        found,
        [
            "spec.containers[0].volumeMounts[1].mountPath",
            "spec.containers"
        ]
    );
}
