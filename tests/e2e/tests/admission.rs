//! Admission on a node of a known size: pods that fit, pods that do not, and preemption.

use std::path::Path;

use polylet_e2e::steps::Steps;
use polylet_e2e::{RUNS, node_with, ok, pod};
use polylet_harness::{Flavour, Node, NodeOptions, PodView};
use serde_json::{Value, json};

const PORT: u16 = 18_080;

#[tokio::test]
#[ignore = "needs root, a container runtime and built services: cargo verify"]
async fn admission() {
    let mut steps = Steps::new();
    let mut node = node_with(NodeOptions {
        kubelet: json!({ "systemReserved": { "cpu": "500m" } }),
        ..NodeOptions::default()
    })
    .await;
    let allocatable = milli_cpus() - 500;
    let ports = json!([{ "containerPort": 80, "hostPort": PORT }]);
    let fields = json!({
        "priority": 10,
        "container": { "ports": ports, "resources": cpu(allocatable - 100) },
    });
    ok(node.put("first.json", &pod("first", RUNS, &fields)));
    let first = ok(node.wait_ready("first").await);

    let refused = refused(&ports, allocatable);
    for (name, fields, ..) in &refused {
        ok(node.put(&format!("{name}.json"), &pod(name, RUNS, fields)));
    }
    for (name, _, reason, message) in &refused {
        pod_message(&node, name, reason, message).await;
    }
    steps
        .run(
            "no resources exist for",
            no_resources_exist_for(&node, &refused),
        )
        .await;

    // Admitted pods stay admitted, and their allocation counts after a restart.
    ok(node.kill("sync-coordinator").await);
    ok(node.wait_in_step().await);
    let late = json!({ "container": { "resources": cpu(200) } });
    ok(node.put("late.json", &pod("late", RUNS, &late)));
    steps
        .run(
            "pod message",
            pod_message(
                &node,
                "late",
                "UnexpectedAdmissionError",
                "(res: cpu, q: 100)",
            ),
        )
        .await;
    let after = ok(node.wait_ready("first").await);
    assert_eq!(after.identity(), first.identity());

    let fields = json!({ "priority": 20, "container": { "resources": cpu(allocatable) } });
    ok(node.put("second.json", &pod("second", RUNS, &fields)));
    let preempted = ok(node
        .wait_pod("first", "to be preempted", |pod| pod.phase() == "Failed")
        .await);
    assert_eq!(
        (preempted.reason(), preempted.message()),
        ("Preempting", "Preempted in order to admit critical pod")
    );
    let target = preempted.condition("DisruptionTarget").unwrap();
    assert_eq!(
        target["message"],
        "Pod was preempted by Kubelet to accommodate a critical pod."
    );
    let second = ok(node.wait_ready("second").await);
    ok(node.kill("sync-coordinator").await);
    ok(node.wait_in_step().await);
    let after = ok(node.wait_ready("second").await);
    assert_eq!(after.identity(), second.identity());

    let names = refused.iter().map(|(name, ..)| *name);
    let names: Vec<&str> = names.chain(["first", "second", "late"]).collect();
    for name in &names {
        ok(node.take(&format!("{name}.json")));
    }
    for name in &names {
        ok(node.wait_gone(name).await);
    }
    steps.finish();
    ok(node.remove());
}

fn milli_cpus() -> i64 {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    i64::try_from(cpus).unwrap() * 1000
}

fn cpu(milli: i64) -> Value {
    json!({ "requests": { "cpu": format!("{milli}m") } })
}

type Refused = (&'static str, Value, &'static str, &'static str);

/// Pods with the reason and message of their rejection.
fn refused(ports: &Value, allocatable: i64) -> Vec<Refused> {
    let sysctl = |name: &str| json!({ "sysctls": [{ "name": name, "value": "1" }] });
    let huge = json!({ "hugepages-2Mi": "4Ti", "cpu": "1m" });
    let mut refused = vec![
        (
            "port",
            json!({ "container": { "ports": ports } }),
            "NodePorts",
            "Pod was rejected: Predicate NodePorts failed: node(s) didn't have free ports for the \
             requested pod ports",
        ),
        (
            "elsewhere",
            json!({ "nodeSelector": { "disk": "ssd" } }),
            "NodeAffinity",
            "Pod was rejected: Predicate NodeAffinity failed: node(s) didn't match Pod's node \
             affinity/selector",
        ),
        (
            "windows",
            json!({ "os": { "name": "windows" } }),
            "PodOSNotSupported",
            "Pod was rejected: Failed to admit pod as the OS field doesn't match node OS",
        ),
        (
            "unsafe",
            json!({ "securityContext": sysctl("kernel.msgmax") }),
            "SysctlForbidden",
            "Pod was rejected: forbidden sysctl: \"kernel.msgmax\" not allowlisted",
        ),
        (
            "greedy",
            json!({ "container": { "resources": cpu(allocatable + 1) } }),
            "UnexpectedAdmissionError",
            "Pod was rejected: Unexpected error while attempting to recover from admission \
             failure: preemption: error finding a set of pods to preempt: no set of running pods \
             found to reclaim resources: [(res: cpu, q: ",
        ),
        (
            "huge",
            json!({ "container": { "resources": { "limits": huge } } }),
            "UnexpectedAdmissionError",
            "(res: hugepages-2Mi, q: ",
        ),
    ];
    if !Path::new("/sys/module/apparmor/parameters/enabled").exists() {
        let profile = json!({ "appArmorProfile": { "type": "RuntimeDefault" } });
        refused.push((
            "confined",
            json!({ "securityContext": profile }),
            "AppArmor",
            "Pod was rejected: Cannot enforce AppArmor: AppArmor is not enabled on the host",
        ));
    }
    if Flavour::from_env() == Flavour::Debian {
        refused.push((
            "strict",
            json!({ "securityContext": { "supplementalGroupsPolicy": "Strict" } }),
            "SupplementalGroupsPolicyNotSupported",
            "Pod was rejected: SupplementalGroupsPolicy=Strict is not supported in this node",
        ));
    }
    refused
}

async fn pod_message(node: &Node, name: &str, reason: &str, message: &str) {
    let expected = |pod: &PodView| {
        pod.phase() == "Failed" && pod.reason() == reason && pod.message().contains(message)
    };
    let what = format!("to be rejected with {reason}: {message}");
    ok(node.wait_pod(name, &what, expected).await);
}

async fn no_resources_exist_for(node: &Node, refused: &[Refused]) {
    let sandboxes = ok(node.containerd.cri().sandboxes().await);
    for sandbox in sandboxes {
        let name = sandbox.metadata.map(|metadata| metadata.name);
        let name = name.unwrap_or_default();
        let one = refused
            .iter()
            .find(|(one, ..)| name == format!("{one}-node"));
        assert!(one.is_none(), "{name} was refused and has a sandbox");
    }
}
