//! The API server as a pod source, with a real API server and pod-config alone: objects are added,
//! updated and removed, across lost connections, restarts and expired resource versions.

use std::fs;
use std::time::Duration;

use polylet_e2e::steps::Steps;
use polylet_e2e::{cluster, cluster_with, ok};
use polylet_harness::cluster::Patch;
use polylet_harness::{Cluster, ClusterOptions};
use polylet_wire::podconfig::v1::{WatchMirrorPodsRequest, watch_mirror_pods_response};
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};

#[path = "api_source/credentials.rs"]
mod credentials;
#[path = "api_source/objects.rs"]
mod objects;
#[path = "api_source/service.rs"]
mod service;

use service::{ObjectState, Service, TIMEOUT, next_node, next_state};

const PODS: &str = "/api/v1/namespaces/default/pods";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const SECRETS: &str = "/api/v1/namespaces/default/secrets";

fn pod(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name },
        "spec": {
            "nodeName": "n1",
            "containers": [{ "name": "c", "image": "busybox" }],
            "volumes": [
                { "name": "m", "configMap": { "name": format!("{name}-map") } },
                { "name": "s", "secret": { "secretName": format!("{name}-secret") } },
                { "name": "t", "projected": { "sources": [
                    { "serviceAccountToken": { "path": "vault", "audience": "vault" } },
                ] } },
                { "name": "p", "persistentVolumeClaim": { "claimName": format!("{name}-claim") } },
            ],
        },
    })
}

fn map(name: &str, value: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name },
        "data": { "key": value },
    })
}

async fn create(cluster: &Cluster, at: &str, object: &Value) -> Value {
    ok(cluster.client().create(at, object).await)
}

async fn merge(cluster: &Cluster, at: &str, change: Value) -> Value {
    ok(cluster.client().patch(at, Patch::Merge, &change).await)
}

async fn delete(cluster: &Cluster, at: &str) {
    let now = json!({ "gracePeriodSeconds": 0 });
    ok(cluster.client().delete(at, &now).await);
}

#[tokio::test]
#[ignore = "needs the programs of a cluster: cargo verify"]
async fn api_objects_are_added_updated_and_removed() {
    let mut steps = Steps::new();
    let bundles = "certificates.k8s.io/v1beta1/clustertrustbundles";
    let options = ClusterOptions {
        api_server: vec![
            "--feature-gates=ClusterTrustBundle=true".to_owned(),
            format!("--runtime-config={bundles}=true"),
        ],
        ..ClusterOptions::default()
    };
    let cluster = cluster_with(&options).await;
    let kubeconfig = ok(cluster.node_kubeconfig("n1"));
    let mut service = Service::new(cluster.scratch(), &kubeconfig);
    service.start();
    steps
        .run(
            "pods and mirror pods",
            pods_and_mirror_pods(&cluster, &service),
        )
        .await;
    steps
        .run("node object", node_object(&cluster, &service))
        .await;
    objects::objects(&cluster, &service).await;
    objects::polled_objects(&cluster, &service).await;
    objects::tokens_and_services(&cluster, &service).await;
    objects::many_objects(&cluster, &service).await;
    drop(service);
    credentials::credentials(&cluster).await;
    steps.finish();
    ok(cluster.remove());
}

async fn pods_and_mirror_pods(cluster: &Cluster, service: &Service) {
    let (mut plain, mut reported) = (service.pods(false).await, service.pods(true).await);
    plain.until("nothing", |pods| pods.is_empty()).await;
    let made = create(cluster, PODS, &pod("web")).await;
    plain
        .until("the pod", |pods| pods.contains_key("web"))
        .await;
    reported
        .until("the pod", |pods| pods.contains_key("web"))
        .await;
    let manifest = plain.manifest("web");
    assert_eq!(manifest["kind"], "Pod");
    assert_eq!(manifest["metadata"]["uid"], made["metadata"]["uid"]);
    let annotations = &manifest["metadata"]["annotations"];
    assert_eq!(annotations["kubernetes.io/config.source"], "api");
    for absent in [
        "/status",
        "/metadata/managedFields",
        "/metadata/resourceVersion",
    ] {
        assert_eq!(manifest.pointer(absent), None, "{absent}");
    }
    let cause = plain.current["web"].cause.clone().unwrap();
    assert_eq!(cause.traceparent.len(), 55);

    // A status change is an update only for watchers that requested statuses.
    let at = format!("{PODS}/web");
    let status = json!({ "status": { "message": "hello" } });
    merge(cluster, &format!("{at}/status"), status).await;
    reported
        .until("the status", |pods| {
            String::from_utf8_lossy(&pods["web"].reported_status).contains("hello")
        })
        .await;
    let before = plain.changes;
    let labels = json!({ "metadata": { "labels": { "a": "b" } } });
    merge(cluster, &at, labels).await;
    let first = plain.current["web"].digest.clone();
    plain
        .until("the label", |pods| pods["web"].digest != first)
        .await;
    assert_eq!(plain.changes, before + 1, "the status was no change");
    assert_ne!(
        plain.current["web"].cause,
        Some(cause),
        "a change has its trace"
    );

    // A deletion timestamp is a change of the manifest.
    ok(cluster
        .client()
        .delete(&at, &json!({ "gracePeriodSeconds": 7 }))
        .await);
    plain
        .until("the end", |pods| {
            String::from_utf8_lossy(&pods["web"].manifest).contains("deletionTimestamp")
        })
        .await;
    delete(cluster, &at).await;
    plain.until("nothing", |pods| pods.is_empty()).await;

    let mut mirror = pod("static-n1");
    mirror["metadata"]["annotations"] = json!({ "kubernetes.io/config.mirror": "hash" });
    // Admission rejects mirror pods that reference API objects.
    mirror["spec"].as_object_mut().unwrap().remove("volumes");
    create(cluster, PODS, &mirror).await;
    let stream = service
        .config()
        .await
        .watch_mirror_pods(WatchMirrorPodsRequest::default())
        .await;
    let mut stream = stream.unwrap().into_inner();
    let found = loop {
        let message = timeout(TIMEOUT, stream.message())
            .await
            .unwrap()
            .unwrap()
            .unwrap();
        if let Some(watch_mirror_pods_response::Change::Upsert(mirror)) = message.change {
            break mirror;
        }
    };
    assert_eq!(
        (found.source_pod_uid.as_str(), found.deleting),
        ("hash", false)
    );
    create(cluster, PODS, &pod("web")).await;
    plain
        .until("the pod alone", |pods| pods.contains_key("web"))
        .await;
    assert_eq!(plain.current.len(), 1, "a mirror pod is not a pod to run");
    delete(cluster, &format!("{PODS}/static-n1")).await;
}

async fn node_object(cluster: &Cluster, service: &Service) {
    let mut node = service.node().await;
    assert_eq!(next_node(&mut node).await, (None, false));
    let object = json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "n1" } });
    create(cluster, "/api/v1/nodes", &object).await;
    let (object, _) = next_node(&mut node).await;
    let object = object.unwrap();
    assert_eq!(
        (&object["kind"], &object["metadata"]["name"]),
        (&json!("Node"), &json!("n1"))
    );
    let beat = |at: &str, status: &str| {
        json!({ "status": { "conditions": [{
            "type": "Ready", "status": status, "lastHeartbeatTime": at,
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }] } })
    };
    let at = "/api/v1/nodes/n1/status";
    merge(cluster, at, beat("2026-01-01T00:00:00Z", "True")).await;
    let has_status = |node: &Option<Value>, status: &str| {
        let node = node.as_ref().unwrap();
        node.pointer("/status/conditions/0/status") == Some(&json!(status))
    };
    // Other clients write to the Node, too: taints and addresses.
    while !has_status(&next_node(&mut node).await.0, "True") {}
    merge(cluster, at, beat("2026-01-01T00:00:10Z", "True")).await;
    merge(cluster, at, beat("2026-01-01T00:00:20Z", "False")).await;
    let mut last = next_node(&mut node).await.0;
    while !has_status(&last, "False") {
        last = next_node(&mut node).await.0;
    }
    assert!(!last.unwrap().to_string().contains("lastHeartbeatTime"));
}

#[tokio::test]
#[ignore = "needs the programs of a cluster: cargo verify"]
async fn persisted_state_is_served_during_an_outage() {
    let mut cluster = cluster().await;
    let kubeconfig = ok(cluster.node_kubeconfig("n1"));
    let line = ok(cluster.line().await);
    let text = fs::read_to_string(&kubeconfig).unwrap();
    fs::write(&kubeconfig, text.replace(&cluster.server(), &line.server())).unwrap();
    let mut service = Service::new(cluster.scratch(), &kubeconfig);
    service.start();
    create(&cluster, MAPS, &map("a-map", "1")).await;
    for name in ["a", "b"] {
        create(&cluster, PODS, &pod(name)).await;
    }
    let mut pods = service.pods(false).await;
    pods.until("both", |pods| pods.len() == 2).await;
    let mut object = service.object("ConfigMap", "default", "a-map").await;
    assert!(matches!(
        next_state(&mut object).await,
        ObjectState::Manifest(_)
    ));

    // The connection is dead without an error. Meanwhile the server restarts with a watch cache that
    // begins after the last received version.
    let started = Instant::now();
    line.blackhole_connections();
    let change = json!({ "metadata": { "labels": { "while": "cut" } } });
    merge(&cluster, &format!("{PODS}/a"), change).await;
    cluster.stop_api();
    ok(cluster.start_api().await);
    merge(
        &cluster,
        &format!("{MAPS}/a-map"),
        json!({ "data": { "key": "2" } }),
    )
    .await;
    pods.until("the label", |pods| {
        String::from_utf8_lossy(&pods["a"].manifest).contains("\"while\"")
    })
    .await;
    let latency = started.elapsed();
    println!("half-open → in sync again: {} ms", latency.as_millis());
    assert!(latency < Duration::from_secs(15), "{latency:?}");
    assert!(
        matches!(next_state(&mut object).await, ObjectState::Manifest(map) if map["data"]["key"] == "2")
    );
    let before = pods.current.clone();

    // Unavailable: the state is kept and marked as stale.
    cluster.stop_api();
    let noticed = service
        .problems(|all| all.iter().any(|p| p.origin == "API server"))
        .await;
    println!("server killed → noticed: {} ms", noticed.as_millis());
    let written = async {
        while !(service.state_file("api.json").contains("while")
            && service.state_file("objects.json").contains(r#"key\":\"2"#))
        {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(TIMEOUT, written)
        .await
        .expect("the state files are written");
    // Killed and restarted without the server.
    service.kill();
    service.start();
    let started = Instant::now();
    let mut alone = service.pods(false).await;
    alone.until("both", |pods| pods.len() == 2).await;
    println!(
        "start without server → pods: {} ms",
        started.elapsed().as_millis()
    );
    let mut expected = before.clone();
    for pod in expected.values_mut() {
        pod.stale_since = alone.current["a"].stale_since;
    }
    assert!(alone.current["a"].stale_since.is_some());
    assert_eq!(alone.current, expected);
    let mut object = service.object("ConfigMap", "default", "a-map").await;
    assert!(
        matches!(next_state(&mut object).await, ObjectState::Manifest(map) if map["data"]["key"] == "2")
    );

    // Available again: synced within seconds, with all changes.
    let started = Instant::now();
    ok(cluster.start_api().await);
    let up = started.elapsed();
    alone
        .until("nothing stale", |pods| {
            pods.values().all(|pod| pod.stale_since.is_none())
        })
        .await;
    println!(
        "server up → in step: {} ms",
        (started.elapsed() - up).as_millis()
    );
    assert_eq!(alone.current, before);
    service.problems(|all| all.is_empty()).await;

    // Killed; many changes before the restart.
    service.kill();
    delete(&cluster, &format!("{PODS}/a")).await;
    create(&cluster, PODS, &pod("c")).await;
    service.start();
    let mut reconnected = service.pods(false).await;
    reconnected
        .until("b and c", |pods| pods.keys().eq(["b", "c"]))
        .await;
    assert_eq!(reconnected.current["b"], before["b"]);
    drop(service);
    ok(cluster.remove());
}
