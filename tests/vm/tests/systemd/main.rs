//! A node under real systemd: the package beside a running kubelet, the takeover and the way back, each
//! service as a unit with its own user and rights, restarts, a hang, upgrades and reboots. Pods of all QoS
//! classes with probes and volumes run all the time, and only reboots disturb them.

use std::time::Instant;

use polylet_harness::guard;
use polylet_vm::node::MANIFESTS;
use polylet_vm::ok;

/// Clients of pods and of the node.
mod callers;
/// What cgroup v2 does for pods.
mod cgroups;
/// More pods.
mod load;
/// The node.
mod node;
/// The Debian package.
mod package;
/// Pods of the test.
mod pods;
/// Reboots, with and without the API server.
mod reboot;
/// The units of the services.
mod services;
/// Who may call whom.
mod sockets;
/// From the kubelet to Polylet, and back.
mod takeover;
/// Whether pods are disturbed.
mod undisturbed;
/// Upgrades and rollbacks of the services.
mod upgrade;

use callers::Callers;
use node::SystemdNode;
use undisturbed::PodWatch;

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
async fn services_are_units_of_systemd() {
    guard::on_signals();
    println!();
    let directory = ok(polylet_harness::scratch::Scratch::create());
    let _guard = guard::CleanupGuard::new(directory.dir());
    let package = package::build(directory.dir());
    let mut node = step("machine with a kubelet", SystemdNode::start(&package)).await;
    step("pods", create_pods(&node)).await;
    step("installation", package::installs_quietly(&node)).await;

    let watch = PodWatch::start(&node.cluster, node.identities().await).await;
    step("takeover says what it does", takeover::says_first(&node)).await;
    step("takeover", takeover::forward(&node)).await;
    step("units", services::run_as_declared(&node)).await;
    step("node API", takeover::node_api_serves(&node)).await;
    let hung = services::hang(&node).await;
    step("cgroups of pods", cgroups::classes(&node, "systemd")).await;
    // As the kubelet has set it, and after a reboot as Polylet has.
    step("memory by the kubelet", cgroups::memory(&node)).await;
    step("group kill", cgroups::group_kill(&node)).await;
    step("journal", services::log_with_fields(&node)).await;
    step(
        "watchdog",
        services::restarted_by_watchdog(&node, hung.trim()),
    )
    .await;
    step("sockets", sockets::open_for_declared_callers(&node)).await;
    step("peers", sockets::peers_are_checked_by_the_service(&node)).await;
    step("control", sockets::no_caller_controls_a_process(&node)).await;
    step("groups", sockets::services_have_no_other_groups(&node)).await;
    let callers = Callers::start(&node).await;
    load::churn_during(&node, run_rounds(&node, &callers)).await;
    step("failed upgrade", upgrade::failure_is_rolled_back(&node)).await;
    callers.stop().await;
    watch.assert_undisturbed(&node, "under Polylet").await;
    step("fewer pods", load::delete(&node)).await;

    let before = node.identities().await;
    step("takeover back", takeover::back(&node)).await;
    step("takeover again", takeover::forward(&node)).await;
    assert_eq!(node.identities().await, before, "there and back");

    step("reboot", reboot::reboot(&mut node)).await;
    step("memory by Polylet", cgroups::memory(&node)).await;
    step(
        "reboot without the API server",
        reboot::without_api_server(&mut node),
    )
    .await;
    step("reboot with cgroupfs", reboot::with_cgroupfs(&mut node)).await;
    cgroups::classes(&node, "cgroupfs").await;
    step("traces", services::log_with_traces(&node)).await;
    step("removal", package::removal_leaves_pods(&node)).await;
    ok(node.vm.remove());
    ok(node.cluster.remove());
}

async fn run_rounds(node: &SystemdNode, callers: &Callers<'_>) {
    for round in 1..=rounds() {
        let name = format!("kills and restarts, round {round}");
        step(&name, callers::round(callers, round)).await;
        let name = format!("upgrade and rollback, round {round}");
        step(&name, upgrade::there_and_back(node)).await;
        callers.assert_answered(&name, false).await;
    }
}

/// Two, or as many as `POLYLET_TEST_ROUNDS` says.
fn rounds() -> u32 {
    let rounds = std::env::var("POLYLET_TEST_ROUNDS").ok();
    rounds.and_then(|text| text.parse().ok()).unwrap_or(2)
}

async fn create_pods(node: &SystemdNode) {
    ok(node.cluster.wait_node_ready(polylet_vm::node::NODE).await);
    node.create("configmaps", &pods::config_map()).await;
    node.create("secrets", &pods::secret()).await;
    let manifest = pods::fixed().to_string();
    ok(node
        .guest()
        .write(&format!("{MANIFESTS}/fixed.json"), &manifest)
        .await);
    for pod in pods::lasting() {
        node.create("pods", &pod).await;
    }
    for name in pods::LASTING {
        node.ready(name).await;
    }
    load::create(node).await;
}
