//! A node with thirty healthy pods on which one fault after another is caused and remains: a file
//! system, a CSI driver, a registry, a resolver, a CNI plugin and a runtime that do not answer,
//! clients that ask too much, and a service without disk space or file descriptors. None of it
//! reaches the healthy pods, the start of another pod, or the eviction manager.

#[path = "cluster_faults/exhaustion.rs"]
mod exhaustion;
#[path = "cluster_faults/faulty_node.rs"]
mod faulty_node;
#[path = "cluster_faults/healthy_pods.rs"]
mod healthy_pods;
#[path = "cluster_faults/measure.rs"]
mod measure;
#[path = "cluster_faults/network.rs"]
mod network;
#[path = "cluster_faults/runtime_proxy.rs"]
mod runtime_proxy;
#[path = "cluster_faults/storage.rs"]
mod storage;

use faulty_node::{Evidence, FaultyNode};
use polylet_e2e::steps::Steps;

#[tokio::test]
#[ignore = "needs root, a container runtime, built services, the programs of a cluster: cargo verify"]
async fn faults_reach_neither_healthy_pods_nor_new_ones() {
    if !polylet_e2e::long() {
        return;
    }
    let mut steps = Steps::new();
    let mut node = steps
        .require("thirty healthy pods", FaultyNode::start())
        .await;
    steps
        .run(
            "nothing is wrong",
            node.verify("no fault", Evidence::none()),
        )
        .await;

    let hung = storage::hung_file_systems(&node).await;
    let named = Evidence::condition("default/hung-mount");
    steps
        .run(
            "a file system that hangs",
            node.verify("hung FUSE mount", named),
        )
        .await;

    let driver = storage::silent_csi_driver(&node).await;
    let evidence = Evidence::none();
    steps
        .run(
            "a CSI driver that never answers",
            node.verify("silent CSI driver", evidence),
        )
        .await;

    let registry = network::trickling_registry(&node).await;
    let told = Evidence::event("trickle", "Pulling", "");
    steps
        .run(
            "a registry that sends a byte a second",
            node.verify("trickling registry", told),
        )
        .await;

    network::names_without_answer(&node).await;
    let told = Evidence::event("unresolved-0", "Unhealthy", "");
    steps
        .run(
            "a resolver that never answers",
            node.verify("silent resolver", told),
        )
        .await;

    network::endless_commands(&node).await;
    let told = Evidence::event("endless-0", "Unhealthy", "timed out");
    steps
        .run("commands that never end", node.verify("endless exec", told))
        .await;

    storage::many_files(&node).await;
    steps
        .run(
            "very many files",
            node.verify("many files", Evidence::none()),
        )
        .await;

    node.start_pod("cni-hang").await;
    let told = Evidence::none();
    steps
        .run(
            "a CNI plugin that hangs",
            node.verify("hung CNI plugin", told),
        )
        .await;

    node.start_pod("slow-runtime").await;
    steps
        .run(
            "a runtime that answers after 30 s",
            node.verify("slow runtime", Evidence::none()),
        )
        .await;

    let clients = network::silent_clients(&node).await;
    steps
        .run(
            "silent TLS clients",
            node.verify("silent TLS clients", Evidence::none()),
        )
        .await;

    let flood = network::token_flood(&node);
    steps
        .run(
            "a flood of bearer tokens",
            node.verify("bearer tokens", Evidence::none()),
        )
        .await;
    steps
        .run("few token reviews", network::reviews_are_few(&node, flood))
        .await;
    // A call to a driver may take two minutes, as in the kubelet.
    let told = node.wait_for_event("silent-driver", "FailedMount", "");
    steps.run("the CSI driver is named", told).await;

    for (name, dir) in node.own_directories() {
        let filler = exhaustion::fill(&dir);
        let evidence = Evidence::condition("StateNotWritten").without_start();
        steps
            .run(
                &format!("no space left under {name}"),
                node.verify(name, evidence),
            )
            .await;
        drop(filler);
        steps
            .run(
                &format!("space again under {name}"),
                node.verify(name, Evidence::none()),
            )
            .await;
    }

    let limits = exhaustion::no_file_descriptors(&node).await;
    let evidence = Evidence::none().without_start();
    steps
        .run("no file descriptors left", node.verify("EMFILE", evidence))
        .await;
    drop(limits);
    steps
        .run(
            "file descriptors again",
            node.verify("after EMFILE", Evidence::none()),
        )
        .await;

    drop((hung, driver, registry, clients));
    node.print_table();
    steps.finish();
    node.remove();
}
