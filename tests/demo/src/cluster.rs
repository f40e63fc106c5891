use std::fs;

use polylet_harness::cluster::pod_path;
use polylet_harness::{Cluster, ClusterOptions, HarnessError, Node};

use crate::example;
use crate::progress::{DemoSteps, line};
use crate::show::{print_response, run_polylet, wait_for_trace};

/// Starts the control plane.
pub(crate) async fn start(steps: &mut DemoSteps) -> Result<Cluster, HarnessError> {
    let step =
        steps.start("Starting etcd, kube-apiserver, kube-controller-manager, kube-scheduler");
    let cluster = Cluster::start(&ClusterOptions::default(), &line).await?;
    step.finish(&format!("API server at {}", cluster.server()));
    Ok(cluster)
}

/// Runs the example as a pod of the API server.
pub(crate) async fn run(
    steps: &mut DemoSteps,
    cluster: &Cluster,
    node: &Node,
    once: bool,
) -> Result<(), HarnessError> {
    let step = steps.start("Joining the cluster and applying the example");
    cluster.wait_node_ready(node.name()).await?;
    line(&format!("node {} is Ready", node.name()));
    let manifest = cluster.scratch().join("example.yaml");
    fs::write(&manifest, example::all()).map_err(|source| HarnessError::File {
        what: "write",
        path: manifest.clone(),
        source,
    })?;
    let manifest = manifest.display().to_string();
    cluster.kubectl(&["apply", "-f", &manifest]).await?;
    let pod = cluster.wait_pod_ready(example::NAME).await?;
    step.finish(&format!("pod {} is Ready", example::NAME));

    kubectl(cluster, &["get", "nodes", "-o", "wide"]).await?;
    kubectl(cluster, &["get", "pods", "-o", "wide"]).await?;
    kubectl(cluster, &["get", "events"]).await?;
    run_polylet(node, &["status"]).await?;
    print_response(pod["status"]["podIP"].as_str().unwrap_or_default()).await?;
    let uid = pod["metadata"]["uid"].as_str().unwrap_or_default();
    wait_for_trace(node, uid).await;
    run_polylet(node, &["trace", example::NAME]).await?;
    if !once {
        return print_commands(cluster);
    }
    println!("\n$ kubectl delete -f {manifest}");
    print!("{}", cluster.kubectl(&["delete", "-f", &manifest]).await?);
    cluster.wait_absent(&pod_path(example::NAME)).await
}

/// Runs kubectl and prints it with its output.
async fn kubectl(cluster: &Cluster, args: &[&str]) -> Result<(), HarnessError> {
    println!("\n$ kubectl {}", args.join(" "));
    print!("{}", cluster.kubectl(args).await?);
    Ok(())
}

fn print_commands(cluster: &Cluster) -> Result<(), HarnessError> {
    let kubectl = cluster.programs().path("kubectl")?;
    println!("\nThe cluster runs until Ctrl-C. In another terminal:");
    line(&format!("export KUBECONFIG={}", cluster.admin().display()));
    if let Some(dir) = kubectl.parent() {
        line(&format!("export PATH=\"$PATH:{}\"", dir.display()));
    }
    line("kubectl run hello --image=polylet-test:1 -- sh -c 'echo hello; sleep 3600'");
    line("kubectl get pods --watch");
    Ok(())
}
