//! kubeadm with Polylet where it expects a kubelet: a control plane of static pods, a second node that joins
//! it, and a swap of the control plane's node agent to the kubelet and back, which restarts no container.

use std::time::Instant;

use polylet_harness::guard;
use polylet_harness::machine as host;
use polylet_vm::ok;

/// The images of the control plane.
mod images;
/// A machine with the packages of kubeadm, kubelet and Polylet.
mod machine;

use machine::Machine;

/// The node of the control plane.
const CONTROL_PLANE: &str = "control-plane";
/// The node that joins.
const WORKER: &str = "worker";

/// Runs a part of the test and prints how long it took.
async fn step<T>(name: &str, work: impl Future<Output = T>) -> T {
    println!("{name}");
    let begun = Instant::now();
    let result = work.await;
    println!("  {:.1} s", begun.elapsed().as_secs_f64());
    result
}

#[tokio::test]
#[ignore = "needs root, QEMU, the programs of a cluster: cargo verify -- --only vm"]
async fn a_cluster_of_kubeadm() {
    guard::on_signals();
    println!();
    let directory = ok(polylet_harness::scratch::Scratch::create());
    let _guard = guard::CleanupGuard::new(directory.dir());
    let files = images::prepare(directory.dir()).await;
    let port = ok(host::free_port());
    let first = step("machine", Machine::boot(&files, Some(port))).await;
    step("takeover before init", takeover_before_init(&first)).await;
    step("kubeadm init", first.init(CONTROL_PLANE, port)).await;
    step("control plane", control_plane_is_ready(&first)).await;
    step("serving certificate", serving_certificate(&first)).await;

    let second = step("second machine", Machine::boot(&files, None)).await;
    step("takeover before join", takeover_before_init(&second)).await;
    step("kubeadm join", join(&first, &second)).await;
    first.node_ready(WORKER).await;
    ok(second.vm.remove());

    let before = first.containers().await;
    let back = "polylet takeover --back --yes";
    step("to the kubelet", swap(&first, back, "kubelet")).await;
    assert_eq!(first.containers().await, before, "under the kubelet");
    let again = "polylet takeover --kubeadm --yes";
    step("and back", swap(&first, again, "polylet")).await;
    assert_eq!(first.containers().await, before, "under Polylet again");
    ok(first.vm.remove());
}

/// Nothing is started: the kubelet's configuration is written by kubeadm.
async fn takeover_before_init(machine: &Machine) {
    let said = machine.sh("polylet takeover --kubeadm --yes").await;
    assert!(said.contains("starts with kubeadm init or join"), "{said}");
    let program = "systemctl show --property=ExecStart kubelet.service";
    let program = machine.sh(program).await;
    assert!(
        program.contains("/usr/lib/polylet/polylet run"),
        "{program}"
    );
}

/// Its static pods are Ready at the API server that is one of them, and so is the node.
async fn control_plane_is_ready(machine: &Machine) {
    machine.node_ready(CONTROL_PLANE).await;
    for name in images::PROGRAMS {
        let pod = format!("{name}-{CONTROL_PLANE}");
        let wait =
            format!("--namespace kube-system wait --for=condition=Ready --timeout=240s pod/{pod}");
        machine.kubectl(&wait).await;
    }
    let running = machine.agent().await;
    assert_eq!(running, "polylet", "the process of kubelet.service");
}

/// The node asks for it, an administrator approves it, and the API server trusts the node API with it.
async fn serving_certificate(machine: &Machine) {
    machine
        .wait_for("a request for a serving certificate", "get csr", |text| {
            text.contains("kubernetes.io/kubelet-serving")
        })
        .await;
    let names =
        "get csr --field-selector=spec.signerName=kubernetes.io/kubelet-serving --output=name";
    for name in machine.kubectl(names).await.lines() {
        machine
            .kubectl(&format!("certificate approve {name}"))
            .await;
    }
    let logs = format!("--namespace kube-system logs --tail=1 etcd-{CONTROL_PLANE}");
    machine
        .wait_for("logs of a container", &logs, |text| !text.is_empty())
        .await;
}

async fn join(first: &Machine, second: &Machine) {
    let command = first
        .sh("kubeadm token create --print-join-command 2>/dev/null")
        .await;
    let command = command.trim();
    second
        .sh(&format!(
            "{command} --node-name {WORKER} --skip-phases=preflight --cri-socket unix:///run/containerd/containerd.sock"
        ))
        .await;
    assert_eq!(second.agent().await, "polylet", "on the second node");
}

/// The node's agent is another program, and reports for the node.
async fn swap(machine: &Machine, command: &str, agent: &str) {
    machine.sh(command).await;
    assert_eq!(machine.agent().await, agent, "{command}");
    // Each start of an agent renews the node's lease.
    let renewed = format!(
        "--namespace kube-node-lease get lease {CONTROL_PLANE} --output=jsonpath={{.spec.renewTime}}"
    );
    let before = machine.kubectl(&renewed).await;
    machine
        .wait_for("the lease to be renewed", &renewed, |now| {
            !now.is_empty() && now != before
        })
        .await;
    machine.node_ready(CONTROL_PLANE).await;
}
