//! Pods as a Deployment has them, and what the peers report of them.

use polylet_watch::Update;
use polylet_wire::common::v1::{Cause, PodRef};
use polylet_wire::pleg::v1::{Container, ContainerPhase, PodState, Sandbox, User};
use polylet_wire::podconfig::v1::{Pod, PodSource};
use polylet_wire::prober::v1::{Outcome, ProbeKind, ProbeStatus};
use polylet_wire::sync::v1::{PodSync, SyncPhase};
use prost_types::Timestamp;
use serde_json::{Value, json};

use crate::input::Input;

const IMAGE: &str = "registry.example.com/web:v1.2.3";

pub(super) fn uid(number: usize) -> String {
    format!("0c7a5f3e-3b1d-4a55-9d1e-{number:012}")
}

pub(super) fn number_of(uid: &str) -> usize {
    uid.rsplit('-').next().unwrap().parse().unwrap()
}

pub(super) fn name(number: usize) -> String {
    format!("web-6d4cf56db6-{number:05}")
}

fn pod_ref(number: usize) -> Option<PodRef> {
    Some(PodRef {
        uid: uid(number),
        namespace: "default".into(),
        name: name(number),
    })
}

fn cause(number: usize) -> Option<Cause> {
    Some(Cause {
        traceparent: format!("00-0af7651916cd43dd8448eb21{number:08x}-b7ad6b7169203331-01"),
        ..Cause::default()
    })
}

fn at(second: i64) -> Option<Timestamp> {
    Some(Timestamp {
        seconds: 1_767_225_600 + second,
        nanos: 123_456_789,
    })
}

fn manifest(number: usize) -> Value {
    let field = json!({ "apiVersion": "v1", "fieldPath": "metadata.namespace" });
    let ca = json!({ "key": "ca.crt", "path": "ca.crt" });
    let sources = json!([
        { "serviceAccountToken": { "expirationSeconds": 3607, "path": "token" } },
        { "configMap": { "name": "kube-root-ca.crt", "items": [ca] } },
        { "downwardAPI": { "items": [{ "path": "namespace", "fieldRef": field }] } },
    ]);
    let token = json!({ "name": "kube-api-access-x7k2p",
        "projected": { "defaultMode": 420, "sources": sources } });
    let probe = json!({ "httpGet": { "path": "/", "port": 8080, "scheme": "HTTP" },
        "periodSeconds": 10, "timeoutSeconds": 1, "failureThreshold": 3, "successThreshold": 1 });
    let container = json!({
        "name": "web", "image": IMAGE, "imagePullPolicy": "IfNotPresent",
        "ports": [{ "containerPort": 8080, "protocol": "TCP" }],
        "readinessProbe": probe,
        "resources": { "limits": { "cpu": "500m", "memory": "64Mi" },
            "requests": { "cpu": "100m", "memory": "64Mi" } },
        "volumeMounts": [{ "name": "kube-api-access-x7k2p", "readOnly": true,
            "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount" }],
        "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
    });
    let toleration = |key: &str| json!({ "key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300 });
    let owner = json!({ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-6d4cf56db6",
        "uid": uid(0), "controller": true, "blockOwnerDeletion": true });
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name(number), "namespace": "default", "uid": uid(number), "generation": 1,
            "creationTimestamp": "2026-01-01T00:00:00Z", "resourceVersion": "123456",
            "labels": { "app": "web", "pod-template-hash": "6d4cf56db6" },
            "annotations": { "kubernetes.io/config.seen": "2026-01-01T00:00:00.123456789Z",
                "kubernetes.io/config.source": "api" },
            "ownerReferences": [owner],
        },
        "spec": {
            "volumes": [token], "containers": [container], "restartPolicy": "Always",
            "terminationGracePeriodSeconds": 30, "dnsPolicy": "ClusterFirst",
            "serviceAccountName": "default", "serviceAccount": "default", "nodeName": "node",
            "securityContext": {}, "schedulerName": "default-scheduler",
            "tolerations": [toleration("node.kubernetes.io/not-ready"),
                toleration("node.kubernetes.io/unreachable")],
            "priority": 0, "enableServiceLinks": true,
            "preemptionPolicy": "PreemptLowerPriority",
        },
    })
}

/// The status of a pod that was only scheduled.
pub(super) fn pending() -> Vec<u8> {
    let scheduled = json!({ "type": "PodScheduled", "status": "True", "observedGeneration": 1,
        "lastProbeTime": null, "lastTransitionTime": "2026-01-01T00:00:00Z" });
    let status = json!({ "phase": "Pending", "qosClass": "Burstable", "conditions": [scheduled] });
    status.to_string().into_bytes()
}

/// A pod and its status from the API server.
pub(super) fn api_pod(number: usize, status: Vec<u8>) -> Input {
    let pod = Pod {
        r#ref: pod_ref(number),
        manifest: manifest(number).to_string().into_bytes().into(),
        reported_status: status.into(),
        cause: cause(number),
        ..Pod::default()
    };
    Input::Pod(PodSource::Api, Update::Upsert(uid(number).into(), pod))
}

/// What the peers report once the pod is ready.
pub(super) fn facts(number: usize) -> [Input; 3] {
    let sync = PodSync {
        r#ref: pod_ref(number),
        phase: SyncPhase::Syncing.into(),
        acknowledged_at: at(1),
        cause: cause(number),
        ..PodSync::default()
    };
    let sandbox = Sandbox {
        id: format!("{number:064x}"),
        ready: true,
        ips: vec![format!("10.0.0.{number}")],
        created_at: at(1),
        ..Sandbox::default()
    };
    let container = Container {
        id: format!("{:064x}", number + 1000),
        sandbox_id: sandbox.id.clone(),
        name: "web".into(),
        image: IMAGE.into(),
        image_id: format!("registry.example.com/web@sha256:{:064x}", 1),
        phase: ContainerPhase::Running.into(),
        created_at: at(2),
        started_at: at(3),
        user: Some(User {
            supplemental_groups: vec![0, 10],
            ..User::default()
        }),
        ..Container::default()
    };
    let probe = ProbeStatus {
        outcome: Outcome::Success.into(),
        since: at(5),
        cause: cause(number),
        ..ProbeStatus::default()
    };
    let kind = ProbeKind::Readiness.into();
    let probed = (uid(number).into(), container.id.clone(), kind);
    let state = PodState {
        r#ref: pod_ref(number),
        sandboxes: vec![sandbox],
        containers: vec![container],
        cause: cause(number),
        ..PodState::default()
    };
    [
        Input::Sync(Box::new(Update::Upsert(uid(number).into(), sync))),
        Input::RuntimeState(Update::Upsert(uid(number).into(), state)),
        Input::Probe(Update::Upsert(probed, probe)),
    ]
}
