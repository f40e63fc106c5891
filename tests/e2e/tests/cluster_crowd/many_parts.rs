//! Pods of very many parts: a hundred containers, a hundred volumes, and three hundred Secrets of a
//! megabyte that ten pods share out among them.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::time::Instant;

use polylet_e2e::{RUNS, cluster, ok};
use polylet_harness::cluster::{Patch, pod_path};
use polylet_harness::wait::{Look, until};
use polylet_harness::{Cluster, Node};
use serde_json::{Value, json};

use super::{PODS, bound, identities, node_to_come, show};

const OBJECTS: &str = "/api/v1/namespaces/default";

#[tokio::test]
#[ignore = "needs root, a container runtime, built services, the programs of a cluster: cargo verify"]
async fn a_hundred_of_everything() {
    if !polylet_e2e::long() {
        return;
    }
    let cluster = cluster().await;
    let mut node = node_to_come(&cluster, json!({})).await;
    ok(node.up().await);
    ok(cluster.wait_node_ready("node").await);
    let begun = Instant::now();
    containers(&cluster).await;
    ok(cluster.wait_pod_ready("containers").await);
    println!("100 containers ready after {:?}", begun.elapsed());
    let begun = Instant::now();
    volumes(&cluster).await;
    ok(cluster.wait_pod_ready("volumes").await);
    println!("100 volumes ready after {:?}", begun.elapsed());
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
    let begun = Instant::now();
    for number in 0..10 {
        secrets(&cluster, number).await;
    }
    for number in 0..10 {
        ok(cluster.wait_pod_ready(&format!("secrets-{number}")).await);
    }
    println!("300 Secrets ready after {:?}", begun.elapsed());
    show(&node).await;
    one_changes(&cluster, &node).await;
    let before = identities(&node).await;
    let begun = Instant::now();
    node.down();
    ok(node.up().await);
    ok(node.wait_in_step().await);
    println!("the services begun anew: {:?}", begun.elapsed());
    assert_eq!(before, identities(&node).await);
    show(&node).await;
    let begun = Instant::now();
    ok(cluster
        .kubectl(&["delete", "pods", "--all", "--wait=false"])
        .await);
    for name in ["containers", "volumes", "secrets-0", "secrets-9"] {
        ok(cluster.wait_absent(&pod_path(name)).await);
    }
    println!("gone after {:?}", begun.elapsed());
    ok(node.remove());
    ok(cluster.remove());
}

/// A change of one Secret costs what one Secret is, and soon is in its file.
async fn one_changes(cluster: &Cluster, node: &Node) {
    let kept = node.dirs().state.join("pod-config/objects.json");
    let length = || fs::metadata(&kept).map(|file| file.len()).unwrap_or(0);
    // As they are in JSON: four letters for three bytes.
    ok(until("all Secrets to be on disk", || async {
        match length() {
            all if all > 300 * 1_398_101 => Look::Done(()),
            some => Look::NotYet(format!("{some} bytes")),
        }
    })
    .await);
    let before = length();
    let pod = ok(cluster.client().get(&pod_path("secrets-0")).await).unwrap();
    let uid = pod["metadata"]["uid"].as_str().unwrap().to_owned();
    let begun = Instant::now();
    let other = json!({ "stringData": { "key": "t".repeat(1 << 20) } });
    let path = format!("{OBJECTS}/secrets/s000");
    ok(cluster.client().patch(&path, Patch::Merge, &other).await);
    let file = node.dirs().root.join("pods").join(&uid);
    let file = file.join("volumes/kubernetes.io~secret/v00/key");
    ok(until("the changed Secret in its file", || async {
        match fs::read(&file) {
            Ok(bytes) if bytes.first() == Some(&b't') => Look::Done(()),
            other => Look::NotYet(format!("{:?}", other.map(|bytes| bytes.len()))),
        }
    })
    .await);
    println!("a changed Secret in its file after {:?}", begun.elapsed());
    ok(until("the changed Secret on disk", || async {
        match last(&kept, 1 << 20) {
            Ok(text) if text.contains("dHR0dHR0") => Look::Done(()),
            other => Look::NotYet(format!("{:?}", other.map(|text| text.len()))),
        }
    })
    .await);
    let after = length();
    println!("kept: {before} bytes, then {after}");
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

/// A pod of a hundred volumes of all simple kinds, which looks into each before it runs.
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
    let look = "[ $(ls -d /v/* | wc -l) = 100 ] && [ $(ls /v/*/key | wc -l) = 80 ] || exit 1";
    let more = json!({
        "volumes": volumes,
        "container": {
            "command": ["sh", "-c", format!("{look}; {RUNS}")],
            "volumeMounts": mounts,
        },
    });
    ok(cluster
        .client()
        .create(PODS, &bound("volumes", &more))
        .await);
}

/// A pod of thirty Secrets, which looks at the length of each before it runs.
async fn secrets(cluster: &Cluster, number: usize) {
    let (mut volumes, mut mounts) = (Vec::new(), Vec::new());
    for at in 0..30 {
        let (name, secret) = (format!("v{at:02}"), format!("s{:03}", number * 30 + at));
        volumes.push(json!({ "name": name, "secret": { "secretName": secret } }));
        mounts.push(json!({ "name": name, "mountPath": format!("/s/{name}") }));
    }
    let look = "[ $(cat /s/*/key | wc -c) = 31457280 ] || exit 1";
    let more = json!({
        "volumes": volumes,
        "container": {
            "command": ["sh", "-c", format!("{look}; {RUNS}")],
            "volumeMounts": mounts,
        },
    });
    let pod = bound(&format!("secrets-{number}"), &more);
    ok(cluster.client().create(PODS, &pod).await);
}

/// A ConfigMap or Secret of so many bytes.
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
