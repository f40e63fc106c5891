//! A node of a real cluster: kube-apiserver, scheduler and controllers as they are, and Polylet
//! where the kubelet would be.

use polylet_e2e::{cluster, ok};
use polylet_harness::{cleanup, procs};
use serde_json::json;

#[tokio::test]
#[ignore = "needs root and the programs of a cluster: cargo verify"]
async fn a_control_plane_comes_up_and_leaves_nothing_behind() {
    let mut cluster = cluster().await;
    for (step, took) in &cluster.took {
        println!("{step}: {} ms", took.as_millis());
    }
    ok(cluster.namespace("made").await);
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "kept" },
        "data": { "key": "value" },
    });
    let maps = "/api/v1/namespaces/made/configmaps";
    ok(cluster.client().create(maps, &map).await);

    cluster.stop_api();
    assert!(cluster.client().get(maps).await.is_err());
    ok(cluster.start_api().await);
    let kept = ok(cluster.client().get(&format!("{maps}/kept")).await).unwrap();
    assert_eq!(kept["data"]["key"], "value");
    let told = ok(cluster.kubectl(&["get", "namespaces", "-o", "name"]).await);
    assert!(told.contains("namespace/made"), "{told}");

    // What a node's certificate may do, and that its requests are counted.
    let kubeconfig = ok(cluster.node_kubeconfig("someone"));
    let own = "--field-selector=spec.nodeName=someone";
    ok(cluster
        .kubectl_as(&kubeconfig, &["get", "pods", "-A", own])
        .await);
    let all = cluster.kubectl_as(&kubeconfig, &["get", "secrets", "-A"]);
    assert!(all.await.is_err(), "a node may not read all secrets");
    let (requests, _) = ok(cluster.requests(0));
    let lines: Vec<_> = requests.iter().map(|request| request.line()).collect();
    assert_eq!(lines.last().unwrap(), "list secrets / 403", "{lines:?}");

    let dir = cluster.scratch().to_owned();
    assert_eq!(procs::of_run(&dir).len(), 4);
    ok(cluster.remove());
    assert_eq!(procs::of_run(&dir).len(), 0);
    assert!(!dir.exists() && cleanup::mounts_below(&dir).is_empty());
}
