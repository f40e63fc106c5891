use std::fs;

use polylet_harness::cluster::pod_path;
use polylet_harness::{Cluster, ClusterOptions, HarnessError, Node};

use crate::tell::{Steps, line};
use crate::{example, steps};

/// The control plane.
pub(crate) async fn start(steps: &mut Steps) -> Result<Cluster, HarnessError> {
    let step =
        steps.begin("Starting etcd, kube-apiserver, kube-controller-manager, kube-scheduler");
    let cluster = Cluster::start(&ClusterOptions::default(), &line).await?;
    step.done(&format!("the API server is {}", cluster.server()));
    Ok(cluster)
}

/// The example as a pod of the API.
pub(crate) async fn show(
    steps: &mut Steps,
    cluster: &Cluster,
    node: &Node,
    once: bool,
) -> Result<(), HarnessError> {
    let step = steps.begin("Joining the cluster, and applying the example");
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
    step.done(&format!("pod {} is Ready", example::NAME));

    kubectl(cluster, &["get", "nodes", "-o", "wide"]).await?;
    kubectl(cluster, &["get", "pods", "-o", "wide"]).await?;
    kubectl(cluster, &["get", "events"]).await?;
    steps::tell(node, &["status"]).await?;
    steps::answer(pod["status"]["podIP"].as_str().unwrap_or_default()).await?;
    let uid = pod["metadata"]["uid"].as_str().unwrap_or_default();
    steps::traced(node, uid).await;
    steps::tell(node, &["trace", example::NAME]).await?;
    if !once {
        return invite(cluster);
    }
    println!("\n$ kubectl delete -f {manifest}");
    print!("{}", cluster.kubectl(&["delete", "-f", &manifest]).await?);
    cluster.wait_absent(&pod_path(example::NAME)).await
}

/// Runs kubectl and shows it with its output.
async fn kubectl(cluster: &Cluster, words: &[&str]) -> Result<(), HarnessError> {
    println!("\n$ kubectl {}", words.join(" "));
    print!("{}", cluster.kubectl(words).await?);
    Ok(())
}

fn invite(cluster: &Cluster) -> Result<(), HarnessError> {
    let kubectl = cluster.programs().path("kubectl")?;
    println!("\nIt stays until Ctrl-C. In another terminal:");
    line(&format!("export KUBECONFIG={}", cluster.admin().display()));
    if let Some(dir) = kubectl.parent() {
        line(&format!("export PATH=\"$PATH:{}\"", dir.display()));
    }
    line("kubectl run hello --image=polylet-test:1 -- sh -c 'echo hello; sleep 3600'");
    line("kubectl get pods --watch");
    Ok(())
}
