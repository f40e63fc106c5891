//! Admission, rejection and preemption, with upstream's test cases.

use std::sync::Arc;

use polylet_model::host_port::HostPort;
use polylet_model::node::ResourceList;
use polylet_model::qos::QosClass;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::core::admission::preemption::select_victims;
use crate::core::admission::{AdmissionDecision, admit};
use crate::core::node_resources::{AllocatedPod, AllocatedPods, NodeObject, PodRequest};
use crate::core::pod_spec::PodSpecView;
use crate::core::step::Step;
use crate::core::test_support::{TestEnv, manifest, simple};
use crate::core::view::NodePressure;

mod devices;
mod node_object;
mod predicates;
mod preemption;

const MI: i64 = 1 << 20;

fn numbers(entries: &[(&str, i64)]) -> ResourceList {
    entries
        .iter()
        .map(|(name, number)| ((*name).to_owned(), *number))
        .collect()
}

fn pod_request(qos: QosClass, requests: &[(&str, i64)]) -> PodRequest {
    PodRequest {
        requests: numbers(requests),
        ports: Vec::new(),
        qos,
        priority: None,
        critical: false,
    }
}

fn allocated_pod(request: PodRequest) -> Option<AllocatedPod> {
    Some(AllocatedPod {
        request: Arc::new(request),
        terminating: false,
        served: true,
    })
}

/// A node with two CPUs, 1000 Mi and three pods, one of them allocated.
fn env(spec: Value) -> TestEnv {
    let mut env = TestEnv::new(spec);
    let node = &mut env.node.resources;
    node.node_name = "n1".into();
    node.labels = [("disk".to_owned(), "ssd".to_owned())].into();
    node.allocatable = Some(numbers(&[
        ("cpu", 2000),
        ("memory", 1000 * MI),
        ("ephemeral-storage", 1000),
        ("hugepages-2Mi", 0),
        ("pods", 3),
    ]));
    let mut request = pod_request(QosClass::Guaranteed, &[("cpu", 1500), ("memory", 600 * MI)]);
    request.ports = vec![HostPort {
        port: 8080,
        protocol: "TCP".into(),
        ip: "0.0.0.0".into(),
    }];
    node.allocated.set(&"other".into(), allocated_pod(request));
    env
}

fn requesting(requests: Value) -> Value {
    let mut spec = simple("Always", &["a"]);
    spec["containers"][0]["resources"] = json!({ "requests": requests });
    spec
}

/// Changes the manifest of the pod.
fn with(mut env: TestEnv, change: impl FnOnce(&mut k8s_openapi::api::core::v1::Pod)) -> TestEnv {
    let mut pod = env.spec.manifest.to_pod();
    change(&mut pod);
    let manifest = polylet_model::Manifest::from_pod(pod).unwrap();
    env.spec = Arc::new(PodSpecView::from_manifest(&manifest, &[]));
    env.restart_process();
    env
}

fn decision(env: &TestEnv) -> AdmissionDecision {
    admit(&env.view(), &env.spec)
}

/// Reason and message of a rejection; empty for an admitted pod.
fn rejection(env: &TestEnv) -> (String, String) {
    match decision(env) {
        AdmissionDecision::Rejected(termination) => {
            assert_eq!(termination.phase, "Failed");
            let message = termination
                .message
                .strip_prefix("Pod was rejected: ")
                .unwrap();
            (termination.reason, message.to_owned())
        }
        AdmissionDecision::Admitted => Default::default(),
        AdmissionDecision::WaitForPreemption { victims } => ("waits".into(), victims.join(" ")),
        AdmissionDecision::WaitForSources => ("waits for sources".into(), String::new()),
        AdmissionDecision::WaitForDevices => ("waits for devices".into(), String::new()),
        AdmissionDecision::WaitForNode { .. } => ("waits for node".into(), String::new()),
    }
}

#[test]
fn an_admitted_pod_stays_admitted() {
    let mut env = env(requesting(json!({"cpu": "500m"})));
    env.run_until_idle();
    assert!(env.disk.as_ref().unwrap().request.is_some());
    // No capacity at all: it stays admitted after a process restart.
    env.node.resources.allocatable = Some(numbers(&[("cpu", 0), ("pods", 0)]));
    env.restart_process();
    assert_eq!(decision(&env), AdmissionDecision::Admitted);
    env.run_until_idle();
    assert!(env.disk.as_ref().unwrap().termination.is_none());
    // A node taken over from another agent has containers and no checkpoint.
    env.disk = None;
    env.restart_process();
    assert_eq!(decision(&env), AdmissionDecision::Admitted);
}

#[test]
fn a_rejected_pod_starts_nothing_and_stays_rejected() {
    let mut env = env(requesting(json!({"cpu": "3"})));
    env.run_until_idle();
    let steps: Vec<_> = env.history.iter().collect();
    assert!(
        steps
            .iter()
            .all(|step| !matches!(step, Step::CreateSandbox { .. } | Step::ApplyVolumes)),
        "{steps:?}"
    );
    let stored = env.disk.clone().unwrap();
    assert_eq!(stored.termination.as_ref().unwrap().reason, "OutOfcpu");
    assert!(stored.request.is_none());
    env.node.resources.allocatable = None;
    env.restart_process();
    env.run_until_idle();
    assert_eq!(env.disk.unwrap().termination, stored.termination);
}
