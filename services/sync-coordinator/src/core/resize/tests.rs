//! Resizes that are accepted, deferred and infeasible, with upstream's test cases.

use std::sync::Arc;

use polylet_model::node::ResourceList;
use polylet_model::qos::QosClass;
use polylet_model::{Manifest, PodAllocation};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::core::devices::DeviceAdmission;
use crate::core::node_resources::{AllocatedPod, NodeObject, PodRequest, SwapCapacity};
use crate::core::plan::ResizeDecision;
use crate::core::pod_spec::PodSpecView;
use crate::core::step::{Step, StepKey};
use crate::core::test_support::TestEnv;

const MI: i64 = 1 << 20;

fn numbers(cpu: i64, memory: i64) -> ResourceList {
    [("cpu".to_owned(), cpu), ("memory".to_owned(), memory)].into()
}

fn allocated_pod(cpu: i64, memory: i64) -> Option<AllocatedPod> {
    Some(AllocatedPod {
        request: Arc::new(PodRequest {
            requests: numbers(cpu, memory),
            ports: Vec::new(),
            qos: QosClass::Burstable,
            priority: None,
            critical: false,
        }),
        terminating: false,
        served: true,
    })
}

fn requests(cpu: &str, memory: &str) -> Value {
    json!({"requests": {"cpu": cpu, "memory": memory}})
}

fn manifest(source: &str, resources: Value) -> Manifest {
    Manifest::from_json(pod(source, resources).to_string().as_bytes()).unwrap()
}

fn pod(source: &str, resources: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "web", "namespace": "default", "uid": "u1",
            "annotations": {"kubernetes.io/config.source": source}},
        "spec": {"containers": [{"name": "a", "image": "img-a:1", "resources": resources}]}})
}

/// A node with four CPUs and 4096 Mi: this pod has 1 CPU and 1000 Mi, another pod 2 and 2000 Mi.
fn env(source: &str) -> TestEnv {
    let mut env = TestEnv::new(json!({"containers": [{"name": "a", "image": "img-a:1"}]}));
    env.spec = Arc::new(PodSpecView::from_manifest(
        &manifest(source, requests("1", "1000Mi")),
        &[],
    ));
    env.node.resources.allocatable = Some(numbers(4000, 4096 * MI));
    let allocated = &mut env.node.resources.allocated;
    allocated.set(&"u1".into(), allocated_pod(1000, 1000 * MI));
    allocated.set(&"other".into(), allocated_pod(2000, 2000 * MI));
    env.restart_process();
    env.run_until_idle();
    assert_eq!(env.running_names(), ["a"]);
    assert_eq!(env.plan().resize, ResizeDecision::NoChange);
    env.history.clear();
    env
}

fn pending(reason: &'static str, message: &str) -> ResizeDecision {
    let message = message.to_owned();
    ResizeDecision::Pending { reason, message }
}

#[test]
fn decisions_follow_upstream() {
    let static_pod = || {
        pending(
            "Infeasible",
            "In-place resize of static-pods is not supported",
        )
    };
    let cases = [
        ("api", requests("1", "1000Mi"), ResizeDecision::NoChange),
        (
            "api",
            requests("1000m", "1048576000"),
            ResizeDecision::NoChange,
        ),
        ("api", requests("1500m", "1500Mi"), ResizeDecision::Accepted),
        ("api", requests("500m", "500Mi"), ResizeDecision::Accepted),
        // The pod's own resources count as free.
        ("api", requests("2", "2096Mi"), ResizeDecision::Accepted),
        (
            "api",
            requests("500m", "2500Mi"),
            pending(
                "Deferred",
                "Node didn't have enough resource: memory, requested: 2621440000, used: 2097152000, capacity: 4294967296",
            ),
        ),
        (
            "api",
            requests("2500m", "500Mi"),
            pending(
                "Deferred",
                "Node didn't have enough resource: cpu, requested: 2500, used: 2000, capacity: 4000",
            ),
        ),
        // More than the node has is no more than deferred.
        (
            "api",
            requests("1", "4150Mi"),
            pending(
                "Deferred",
                "Node didn't have enough resource: memory, requested: 4351590400, used: 2097152000, capacity: 4294967296",
            ),
        ),
        (
            "api",
            requests("1", "4500Mi"),
            pending(
                "Deferred",
                "Node didn't have enough resource: memory, requested: 4718592000, used: 2097152000, capacity: 4294967296",
            ),
        ),
        (
            "api",
            requests("5", "4500Mi"),
            pending(
                "Deferred",
                "Node didn't have enough resource: cpu, requested: 5000, used: 2000, capacity: 4000",
            ),
        ),
        ("file", requests("500m", "500Mi"), static_pod()),
        ("http", requests("500m", "500Mi"), static_pod()),
        (
            "file",
            requests("1000m", "1000Mi"),
            ResizeDecision::NoChange,
        ),
    ];
    for (source, resources, expected) in cases {
        let mut env = env(source);
        env.update_spec(&manifest(source, resources.clone()));
        assert_eq!(env.plan().resize, expected, "{source} {resources}");
    }
}

/// A pod has its devices, also when the Node object lists fewer by now.
#[test]
fn devices_of_a_pod_do_not_defer_its_resize() {
    let device = "example.com/device";
    let with_devices = |cpu: &str| {
        let list = json!({"cpu": cpu, device: "2"});
        json!({"requests": list, "limits": list})
    };
    let counts = |count| DeviceAdmission::Allocated([(device.to_owned(), count)].into());
    // Before a restart of this process their number is known, afterwards it is not.
    for (listed, devices, cpu, is_accepted) in [
        (1, Some(counts(2)), "1500m", true),
        (1, None, "1500m", true),
        (2, Some(counts(2)), "1500m", true),
        (1, None, "3", false),
        (1, Some(counts(0)), "1500m", false),
    ] {
        let mut env = env("api");
        let before = manifest("api", with_devices("1"));
        env.pod.checkpoint.allocated = Some(PodSpecView::from_manifest(&before, &[]).allocation);
        env.node.resources.node_object = NodeObject::Present {
            labels: Default::default(),
            taints: Vec::new(),
            allocatable: [(device.to_owned(), listed)].into(),
        };
        env.pod.devices = devices;
        env.update_spec(&manifest("api", with_devices(cpu)));
        let decision = env.plan().resize;
        let accepted = decision == ResizeDecision::Accepted;
        assert_eq!(accepted, is_accepted, "{listed} {cpu} {decision:?}");
    }
}

#[test]
fn the_resize_of_a_critical_pod_preempts() {
    for (critical, victims) in [(false, &[][..]), (true, &["other"][..])] {
        let mut env = env("api");
        let mut pod = pod("api", requests("2500m", "500Mi"));
        if critical {
            pod["spec"]["priority"] = json!(2_000_000_000);
        }
        let pod = Manifest::from_json(pod.to_string().as_bytes()).unwrap();
        env.update_spec(&pod);
        assert_eq!(env.plan().victims, victims);
        // Nothing more is preempted while they terminate, and then the resize is accepted.
        let terminating = allocated_pod(2000, 2000 * MI).map(|pod| AllocatedPod {
            terminating: true,
            ..pod
        });
        env.node
            .resources
            .allocated
            .set(&"other".into(), terminating);
        assert!(env.plan().victims.is_empty());
        env.node.resources.allocated.set(&"other".into(), None);
        assert_eq!(env.plan().resize, ResizeDecision::Accepted);
    }
}

#[test]
fn a_resize_that_changes_a_swap_limit_is_infeasible() {
    let mut env = env("api");
    env.node.resources.limited_swap = Some(SwapCapacity {
        memory: 4 << 30,
        swap: 1 << 30,
    });
    env.update_spec(&manifest("api", requests("500m", "1000Mi")));
    assert_eq!(env.plan().resize, ResizeDecision::Accepted);
    env.update_spec(&manifest("api", requests("1", "500Mi")));
    let swap = "In-place resize of containers with swap is not supported.";
    assert_eq!(env.plan().resize, pending("Infeasible", swap));
    let mut pod = manifest("api", requests("1", "500Mi")).to_pod();
    let policy = json!([{"resourceName": "memory", "restartPolicy": "RestartContainer"}]);
    pod.spec.as_mut().unwrap().containers[0].resize_policy =
        serde_json::from_value(policy).unwrap();
    env.update_spec(&Manifest::from_pod(pod).unwrap());
    assert_eq!(env.plan().resize, ResizeDecision::Accepted);
}

#[test]
fn an_accepted_resize_is_stored_once_before_it_is_actuated() {
    let mut env = env("api");
    let new = manifest("api", requests("2", "500Mi"));
    env.update_spec(&new);
    let steps = env.start_steps();
    assert!(
        matches!(&steps[..], [Step::CheckpointAllocation { .. }]),
        "{steps:?}"
    );
    // Allocated only once it is stored.
    let allocated = env.pod.checkpoint.allocated.clone().unwrap();
    assert!(allocated.differs_from(&PodAllocation::from_spec(new.spec())));
    assert!(env.planned_keys().is_empty());
    env.finish(&steps[0]);
    assert_eq!(env.planned_keys(), [StepKey::Resize]);
    env.run_until_idle();
    for _ in 0..2 {
        let checkpoint = env.disk.clone().unwrap();
        assert!(
            !checkpoint
                .allocated
                .unwrap()
                .differs_from(&PodAllocation::from_spec(new.spec()))
        );
        assert_eq!(
            checkpoint.request.unwrap().requests,
            numbers(2000, 500 * MI)
        );
        let plan = env.plan();
        assert_eq!(
            (plan.resize, plan.steps),
            (ResizeDecision::NoChange, Vec::new())
        );
        // Nor does the next process instance repeat it.
        env.restart_process();
        env.run_until_idle();
    }
    assert_eq!(env.running_names(), ["a"]);
    assert!(
        env.history
            .iter()
            .all(|step| step.key() != StepKey::StopContainer("c2".into()))
    );
}

#[test]
fn a_deferred_resize_is_accepted_when_capacity_is_free() {
    let mut env = env("api");
    env.update_spec(&manifest("api", requests("3", "1000Mi")));
    let plan = env.plan();
    assert!(plan.waits_for_capacity && plan.victims.is_empty() && plan.steps.is_empty());
    env.start_steps();
    let since = env.pod.resize_pending_since;
    assert_eq!(since, Some(env.now));
    env.advance_clock(60);
    env.start_steps();
    assert_eq!(env.pod.resize_pending_since, since);
    env.node.resources.allocated.set(&"other".into(), None);
    assert_eq!(env.plan().resize, ResizeDecision::Accepted);
    env.run_until_idle();
    assert_eq!(
        (env.plan().resize, env.pod.resize_pending_since),
        (ResizeDecision::NoChange, None)
    );
    assert!(!env.plan().waits_for_capacity);
}

#[test]
fn node_pressure_defers_resizes() {
    let mut env = env("api");
    env.node.pressure.disk = true;
    env.update_spec(&manifest("api", requests("500m", "500Mi")));
    let message = "The node had condition: [DiskPressure]. ";
    assert_eq!(env.plan().resize, pending("Deferred", message));
}

#[test]
fn an_infeasible_resize_has_no_effect_and_can_be_reverted() {
    let mut env = env("file");
    env.update_spec(&manifest("file", requests("2", "1Gi")));
    let plan = env.plan();
    assert!(matches!(plan.resize, ResizeDecision::Pending { .. }));
    assert!(
        plan.steps
            .iter()
            .all(|step| step.key() == StepKey::ApplyVolumes),
        "{:?}",
        plan.steps
    );
    assert!(!plan.waits_for_capacity && plan.waiting_containers.is_empty());
    env.run_until_idle();
    assert_eq!(env.running_names(), ["a"]);
    env.update_spec(&manifest("file", requests("1", "1000Mi")));
    assert_eq!(env.plan().resize, ResizeDecision::NoChange);
}

#[test]
fn a_checkpoint_without_allocation_takes_that_of_the_manifest() {
    let mut env = env("file");
    env.disk.as_mut().unwrap().allocated = None;
    env.restart_process();
    assert_eq!(env.planned_keys(), [StepKey::Checkpoint]);
    env.run_until_idle();
    let allocated = env.disk.as_ref().unwrap().allocated.clone().unwrap();
    assert!(!allocated.differs_from(&env.spec.allocation));
}

proptest! {
    #[test]
    fn allocations_never_exceed_the_node(
        resizes in proptest::collection::vec((1_i64..6000, 1_i64..6000, any::<bool>()), 1..12),
    ) {
        let mut env = env("api");
        for (cpu, memory, restarts) in resizes {
            let resources = requests(&format!("{cpu}m"), &format!("{memory}Mi"));
            env.update_spec(&manifest("api", resources));
            env.run_until_idle();
            let request = env.pod.checkpoint.request.clone().unwrap();
            prop_assert!(request.requested("cpu") + 2000 <= 4000);
            prop_assert!(request.requested("memory") + 2000 * MI <= 4096 * MI);
            let fits = cpu <= 2000 && memory <= 2096;
            prop_assert_eq!(env.plan().resize == ResizeDecision::NoChange, fits);
            let allocated = &mut env.node.resources.allocated;
            allocated.set(&"u1".into(), Some(AllocatedPod { request, terminating: false, served: true }));
            if restarts {
                env.restart_process();
                env.run_until_idle();
            }
            prop_assert!(env.plan().steps.is_empty());
            prop_assert_eq!(env.running_names(), ["a"]);
        }
    }
}
