use polylet_harness::cluster::is_ready;
use polylet_vm::ok;

use crate::node::SystemdNode;
use crate::pods::LASTING;
use crate::services;

/// The driver of cgroups, of the runtime and in the configuration.
const TO_CGROUPFS: &str = "sed -i 's/SystemdCgroup = true/SystemdCgroup = false/' /etc/containerd/config.toml; \
                           sed -i 's/cgroupDriver: systemd/cgroupDriver: cgroupfs/' /etc/polylet/config.yaml; sync";

/// All pods run again after a boot.
pub(crate) async fn reboot(node: &mut SystemdNode) {
    let took = ok(node.vm.reboot().await);
    println!("  rebooted in {took:.1?}");
    node.node_ready().await;
    run_again(node).await;
}

/// Without the API server, static pods run; with it again, all others.
pub(crate) async fn without_api_server(node: &mut SystemdNode) {
    node.cluster.stop_api();
    let took = ok(node.vm.reboot().await);
    println!("  rebooted in {took:.1?}");
    let running = "polylet pods --output=json";
    node.wait_for(
        "the static pod to run without the API server",
        running,
        |text| {
            let pods: serde_json::Value = serde_json::from_str(text).unwrap_or_default();
            pods.to_string().contains("fixed-vm") && text.contains("Running")
        },
    )
    .await;
    ok(node.cluster.start_api().await);
    node.node_ready().await;
    run_again(node).await;
}

/// The other cgroup driver, for which the node is rebooted.
pub(crate) async fn with_cgroupfs(node: &mut SystemdNode) {
    node.sh(TO_CGROUPFS).await;
    reboot(node).await;
}

/// All pods are Ready, in containers of this boot.
async fn run_again(node: &SystemdNode) {
    let booted = node
        .sh("date --date=\"$(uptime --since)\" --utc +%Y-%m-%dT%H:%M:%SZ")
        .await;
    for name in LASTING {
        let of_this_boot = |pod: &serde_json::Value| {
            let started = &pod["status"]["containerStatuses"][0]["state"]["running"]["startedAt"];
            is_ready(pod)
                && started
                    .as_str()
                    .is_some_and(|started| started >= booted.trim())
        };
        node.wait_pod(name, "to be Ready after the boot", of_this_boot)
            .await;
    }
    services::run_as_declared(node).await;
}
