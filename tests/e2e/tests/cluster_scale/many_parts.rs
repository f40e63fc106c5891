//! A pod of a hundred containers, one of a hundred volumes, and ten pods with three hundred Secrets
//! of one megabyte.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::time::Instant;

use polylet_e2e::{RUNS, cluster, ok};
use polylet_harness::cluster::{Patch, pod_path};
use polylet_harness::wait::{Poll, until};
use polylet_harness::{Cluster, Node};
use serde_json::{Value, json};

use super::{PODS, bound, check_services, identities, node_not_started};

const OBJECTS: &str = "/api/v1/namespaces/default";

#[tokio::test]
#[ignore = "needs root, a container runtime, built services, the programs of a cluster: cargo verify"]
async fn hundred_containers_volumes_and_large_secrets() {
    if !polylet_e2e::long() {
        return;
    }
    let cluster = cluster().await;
    let mut node = node_not_started(&cluster, json!({})).await;
    ok(node.up().await);
    ok(cluster.wait_node_ready("node").await);
    let started = Instant::now();
    containers(&cluster).await;
    ok(cluster.wait_pod_ready("containers").await);
    println!("100 containers ready after {:?}", started.elapsed());
    let started = Instant::now();
    volumes(&cluster).await;
    ok(cluster.wait_pod_ready("volumes").await);
    println!("100 volumes ready after {:?}", started.elapsed());
    for number in 0..300 {
        object(
            &cluster,
            "Secret",
            "secrets",
            &format!("s{number:03}"),
            1 << 20,
        )
        .await;
    }
    let started = Instant::now();
    for number in 0..10 {
        secrets(&cluster, number).await;
    }
    for number in 0..10 {
        ok(cluster.wait_pod_ready(&format!("secrets-{number}")).await);
    }
    println!("300 Secrets ready after {:?}", started.elapsed());
    check_services(&node).await;
    one_changes(&cluster, &node).await;
    let before = identities(&node).await;
    let started = Instant::now();
    node.down();
    ok(node.up().await);
    ok(node.wait_in_step().await);
    println!("the services restarted: {:?}", started.elapsed());
    assert_eq!(before, identities(&node).await);
    check_services(&node).await;
    let started = Instant::now();
    ok(cluster
        .kubectl(&["delete", "pods", "--all", "--wait=false"])
        .await);
    for name in ["containers", "volumes", "secrets-0", "secrets-9"] {
        ok(cluster.wait_absent(&pod_path(name)).await);
    }
    println!("gone after {:?}", started.elapsed());
    ok(node.remove());
    ok(cluster.remove());
}

/// A change of one Secret costs no more than one Secret and soon reaches its file.
async fn one_changes(cluster: &Cluster, node: &Node) {
    let state_file = node.dirs().state.join("pod-config/objects.json");
    let length = || {
        fs::metadata(&state_file)
            .map(|file| file.len())
            .unwrap_or(0)
    };
    // Base64 in JSON: four characters for three bytes.
    ok(until("all Secrets to be on disk", || async {
        match length() {
            all if all > 300 * 1_398_101 => Poll::Ready(()),
            some => Poll::Pending(format!("{some} bytes")),
        }
    })
    .await);
    let before = length();
    let pod = ok(cluster.client().get(&pod_path("secrets-0")).await).unwrap();
    let uid = pod["metadata"]["uid"].as_str().unwrap().to_owned();
    let started = Instant::now();
    let other = json!({ "stringData": { "key": "t".repeat(1 << 20) } });
    let path = format!("{OBJECTS}/secrets/s000");
    ok(cluster.client().patch(&path, Patch::Merge, &other).await);
    let file = node.dirs().root.join("pods").join(&uid);
    let file = file.join("volumes/kubernetes.io~secret/v00/key");
    ok(until("the changed Secret in its file", || async {
        match fs::read(&file) {
            Ok(bytes) if bytes.first() == Some(&b't') => Poll::Ready(()),
            other => Poll::Pending(format!("{:?}", other.map(|bytes| bytes.len()))),
        }
    })
    .await);
    println!("a changed Secret in its file after {:?}", started.elapsed());
    ok(until("the changed Secret on disk", || async {
        match last(&state_file, 1 << 20) {
            Ok(text) if text.contains("dHR0dHR0") => Poll::Ready(()),
            other => Poll::Pending(format!("{:?}", other.map(|text| text.len()))),
        }
    })
    .await);
    let after = length();
    println!("state file: {before} bytes, then {after}");
    assert!(after < before + (4 << 20), "{before}, then {after}");
}

/// The last bytes of a file.
fn last(path: &Path, bytes: u64) -> std::io::Result<String> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(bytes)))?;
    let mut text = Vec::new();
    file.read_to_end(&mut text)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// A pod of a hundred containers.
async fn containers(cluster: &Cluster) {
    let container = |number: usize| json!({ "name": format!("c{number:02}"), "image": "polylet-test:1", "command": ["sh", "-c", RUNS] });
    let all: Vec<Value> = (0..100).map(container).collect();
    let pod = bound("containers", &json!({ "containers": all }));
    ok(cluster.client().create(PODS, &pod).await);
}

/// A pod of a hundred volumes of all simple types that reads each before it runs.
async fn volumes(cluster: &Cluster) {
    let (mut volumes, mut mounts) = (Vec::new(), Vec::new());
    for number in 0..100 {
        let name = format!("v{number:02}");
        let object_name = format!("many-{number}");
        let items = json!([{ "path": "key", "fieldRef": { "fieldPath": "metadata.name" } }]);
        let mut volume = match number % 5 {
            0 => json!({ "emptyDir": {} }),
            1 => json!({ "configMap": { "name": object_name } }),
            2 => json!({ "secret": { "secretName": object_name } }),
            3 => json!({ "projected": { "sources": [{ "downwardAPI": { "items": items } }] } }),
            _ => json!({ "downwardAPI": { "items": items } }),
        };
        match number % 5 {
            1 => object(cluster, "ConfigMap", "configmaps", &object_name, 10).await,
            2 => object(cluster, "Secret", "secrets", &object_name, 10).await,
            _ => {}
        }
        volume["name"] = name.as_str().into();
        volumes.push(volume);
        mounts.push(json!({ "name": name, "mountPath": format!("/v/{name}") }));
    }
    let check = "[ $(ls -d /v/* | wc -l) = 100 ] && [ $(ls /v/*/key | wc -l) = 80 ] || exit 1";
    let more = json!({
        "volumes": volumes,
        "container": {
            "command": ["sh", "-c", format!("{check}; {RUNS}")],
            "volumeMounts": mounts,
        },
    });
    ok(cluster
        .client()
        .create(PODS, &bound("volumes", &more))
        .await);
}

/// A pod of thirty Secrets that checks the size of each before it runs.
async fn secrets(cluster: &Cluster, number: usize) {
    let (mut volumes, mut mounts) = (Vec::new(), Vec::new());
    for at in 0..30 {
        let (name, secret) = (format!("v{at:02}"), format!("s{:03}", number * 30 + at));
        volumes.push(json!({ "name": name, "secret": { "secretName": secret } }));
        mounts.push(json!({ "name": name, "mountPath": format!("/s/{name}") }));
    }
    let check = "[ $(cat /s/*/key | wc -c) = 31457280 ] || exit 1";
    let more = json!({
        "volumes": volumes,
        "container": {
            "command": ["sh", "-c", format!("{check}; {RUNS}")],
            "volumeMounts": mounts,
        },
    });
    let pod = bound(&format!("secrets-{number}"), &more);
    ok(cluster.client().create(PODS, &pod).await);
}

/// A ConfigMap or Secret of this size in bytes.
async fn object(cluster: &Cluster, kind: &str, path: &str, name: &str, bytes: usize) {
    let field = if kind == "Secret" {
        "stringData"
    } else {
        "data"
    };
    let mut object = json!({ "apiVersion": "v1", "kind": kind, "metadata": { "name": name } });
    object[field] = json!({ "key": "k".repeat(bytes) });
    let path = format!("{OBJECTS}/{path}");
    ok(cluster.client().create(&path, &object).await);
}
