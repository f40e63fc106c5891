//! CSI volumes with a real control plane and the tests' own driver: the attach-detach controller is
//! real, the test acts as the driver's controllers, and volume-manager is killed at every step.

#[path = "cluster_csi/attach_limit.rs"]
mod attach_limit;
#[path = "cluster_csi/controller.rs"]
mod controller;
#[path = "cluster_csi/events.rs"]
mod events;

use std::fs;
use std::os::unix::fs::MetadataExt;

use controller::{attach, attachment, detach, grow, grown, in_use, in_use_name, provision};
use events::{mapped, wait_for_event};
use polylet_e2e::steps::Steps;
use polylet_e2e::{RUNS, cluster, long, node_with, ok, pod};
use polylet_harness::cluster::{Patch, pod_path};
use polylet_harness::csi::{NAME, RunningCsiDriver, TestCsiDriver};
use polylet_harness::wait::{Poll, until};
use polylet_harness::{Cluster, Node};
use serde_json::{Value, json};

const PODS: &str = "/api/v1/namespaces/default/pods";
const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";
const CSI_NODE: &str = "/apis/storage.k8s.io/v1/csinodes/node";
const NODE: &str = "/api/v1/nodes/node";
const METRICS: &str = "/api/v1/nodes/node/proxy/metrics";
/// Volumes of the first pod that are attached.
const ALL: [&str; 3] = ["files", "raw", "first-own"];

/// Waits until the CSINode lists the driver with this attach limit.
async fn wait_driver_registered(cluster: &Cluster, most: i64) {
    let registered = |object: &Value| {
        let driver = &object["spec"]["drivers"][0];
        driver["name"] == NAME && driver["allocatable"]["count"] == most
    };
    let csi_node = ok(cluster.wait(CSI_NODE, "has the driver", registered).await);
    let driver = &csi_node["spec"]["drivers"][0];
    assert_eq!(driver["nodeID"], "here");
    assert_eq!(driver["topologyKeys"], json!(["zone.test.example"]));
    let named = |object: &Value| {
        let ids = &object["metadata"]["annotations"]["csi.volume.kubernetes.io/nodeid"];
        ids.as_str() == Some(&json!({ NAME: "here" }).to_string())
            && object["metadata"]["labels"]["zone.test.example"] == "a"
    };
    ok(cluster
        .wait(NODE, "is named as the driver names it", named)
        .await);
}

async fn objects(cluster: &Cluster) {
    let object = json!({ "apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver",
        "metadata": { "name": NAME }, "spec": { "attachRequired": true, "podInfoOnMount": true,
            "volumeLifecycleModes": ["Persistent", "Ephemeral"], "requiresRepublish": true, "serviceAccountTokenInSecrets": true,
            "nodeAllocatableUpdatePeriodSeconds": 10,
            "tokenRequests": [{ "audience": "vault", "expirationSeconds": 600 }] } });
    let drivers = "/apis/storage.k8s.io/v1/csidrivers";
    ok(cluster.client().create(drivers, &object).await);
    let class = json!({ "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass",
        "metadata": { "name": "test" }, "provisioner": NAME, "allowVolumeExpansion": true });
    let classes = "/apis/storage.k8s.io/v1/storageclasses";
    ok(cluster.client().create(classes, &class).await);
    for (name, mode) in [("files", "Filesystem"), ("raw", "Block")] {
        let claim = json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": { "name": name }, "spec": claim_spec(mode) });
        ok(cluster.client().create(CLAIMS, &claim).await);
    }
}

fn claim_spec(mode: &str) -> Value {
    json!({ "accessModes": ["ReadWriteOnce"], "storageClassName": "test", "volumeMode": mode,
        "resources": { "requests": { "storage": "8Mi" } } })
}

/// A pod with a file system, a block device and a generic ephemeral volume.
fn first_pod() -> Value {
    let script = format!(
        "grep -q kept /files/file || echo kept > /files/file; test -d /own && \
         dd if=/dev/zero of=/dev/data bs=4096 count=1 && {RUNS}"
    );
    let more = json!({
        "securityContext": { "fsGroup": 2000 },
        "volumes": [
            { "name": "files", "persistentVolumeClaim": { "claimName": "files" } },
            { "name": "raw", "persistentVolumeClaim": { "claimName": "raw" } },
            { "name": "own", "ephemeral": { "volumeClaimTemplate": { "spec": claim_spec("Filesystem") } } },
        ],
        "container": {
            "volumeMounts": [{ "name": "files", "mountPath": "/files" }, { "name": "own", "mountPath": "/own" }],
            "volumeDevices": [{ "name": "raw", "devicePath": "/dev/data" }],
        },
    });
    serde_json::from_str(&pod("first", &script, &more)).unwrap()
}

/// Waits until the driver has received all these calls and returns all calls since the last time.
async fn wait_for_calls(driver: &TestCsiDriver, expected: &[&str]) -> Vec<String> {
    let mut all = Vec::new();
    let observed = std::cell::RefCell::new(&mut all);
    let done = until(format!("driver calls {expected:?}"), || async {
        let mut observed = observed.borrow_mut();
        observed.extend(driver.calls());
        match expected
            .iter()
            .all(|call| observed.iter().any(|is| is == call))
        {
            true => Poll::Ready(()),
            false => Poll::Pending(format!("{observed:?}")),
        }
    });
    ok(done.await);
    all
}

#[tokio::test]
#[ignore = "needs root, containerd, loop devices and the programs of a cluster: cargo verify"]
async fn csi_volumes_survive_kills_at_every_step() {
    let mut steps = Steps::new();
    let cluster = cluster().await;
    let mut options = ok(cluster.node_options("node"));
    // Volumes no longer in use are reported with the next Node status; detaching waits for it.
    options.kubelet["nodeStatusUpdateFrequency"] = "500ms".into();
    let mut node = node_with(options).await;
    ok(cluster.wait_node_ready("node").await);
    let driver = ok(TestCsiDriver::new(
        &node.dirs().root,
        &cluster.scratch().join("disks"),
    ));
    let runs = ok(driver.start());
    steps.run("objects", objects(&cluster)).await;
    steps
        .run(
            "wait driver registered",
            wait_driver_registered(&cluster, 5),
        )
        .await;
    driver.can_have(7);
    ok(cluster.client().create(PODS, &first_pod()).await);
    for (claim, mode) in [
        ("files", "Filesystem"),
        ("raw", "Block"),
        ("first-own", "Filesystem"),
    ] {
        provision(&cluster, claim, mode).await;
    }

    // The driver is not called before its volumes are attached, nor after a restart.
    let mut attachments = Vec::new();
    for claim in ALL {
        attachments.push(attachment(&cluster, claim).await);
    }
    let uses = |object: &Value| {
        let names = object["status"]["volumesInUse"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        ALL.iter()
            .all(|claim| names.contains(&json!(in_use_name(claim))))
    };
    ok(cluster.wait(NODE, "reports the volumes in use", uses).await);
    ok(node.kill("volume-manager").await);
    ok(node.wait_in_step().await);
    assert_eq!(driver.calls(), Vec::<String>::new());
    for attachment in &attachments {
        attach(&cluster, attachment).await;
    }
    let up = ok(cluster.wait_pod_ready("first").await);
    let uid = up["metadata"]["uid"].as_str().unwrap().to_owned();
    let calls = driver.calls();
    for claim in ALL {
        let staged = format!("stage {claim} by vdb knowing 0");
        assert!(calls.contains(&staged), "{calls:?}");
        // Block devices get no tokens, as upstream.
        let published = format!(
            "publish {claim} for first, tokens {}, tokens in attributes false",
            claim != "raw"
        );
        assert!(calls.contains(&published), "{calls:?}");
    }
    assert_eq!(calls.len(), 6, "{calls:?}");
    assert_eq!(ok(fs::metadata(driver.volume("files"))).gid(), 2000);
    mapped(&cluster, &node, &uid).await;

    steps
        .run(
            "statistics name the claim",
            statistics_name_the_claim(&cluster, &mut node, &uid),
        )
        .await;
    ok(node.kill("status-reporter").await);

    // A restart reconstructs the volumes, expands one, and unmounts nothing.
    grow(&cluster, "files").await;
    ok(node.kill("volume-manager").await);
    ok(node.wait_in_step().await);
    let republished = ["publish files for first, tokens true, tokens in attributes false"];
    let mut calls = wait_for_calls(&driver, &republished).await;
    grown(&cluster, "files").await;
    calls.extend(driver.calls());
    let larger = "expand files to 16777216";
    assert!(calls.iter().any(|call| call == larger), "{calls:?}");
    assert!(
        !calls.iter().any(|call| call.starts_with("un")),
        "{calls:?}"
    );
    assert!(in_use(&cluster).await.contains(&in_use_name("files")));
    steps
        .run(
            "attachments are preserved",
            attachments_are_preserved(&cluster),
        )
        .await;
    // The driver reports a higher limit the next time.
    steps
        .run(
            "wait driver registered",
            wait_driver_registered(&cluster, 7),
        )
        .await;

    steps
        .run(
            "pod deleted during driver outage",
            pod_deleted_during_driver_outage(&cluster, &mut node, &driver, runs, &attachments),
        )
        .await;
    let runs = ok(driver.start());
    steps
        .run(
            "wait driver registered",
            wait_driver_registered(&cluster, 7),
        )
        .await;
    steps
        .run(
            "pod deleted during node outage",
            pod_deleted_during_node_outage(&cluster, &mut node, &driver),
        )
        .await;

    drop(runs);
    let unregistered = |object: &Value| {
        object["spec"]["drivers"]
            .as_array()
            .is_none_or(Vec::is_empty)
    };
    ok(cluster.wait(CSI_NODE, "has no driver", unregistered).await);
    let mounts = ok(fs::read_to_string("/proc/self/mountinfo"));
    assert!(!mounts.contains("kubernetes.io/csi") && !mounts.contains("kubernetes.io~csi"));
    steps.finish();
    ok(node.remove());
    ok(cluster.remove());
}

/// The pod is deleted while its driver is down: the volumes stay in use until it is up again.
async fn pod_deleted_during_driver_outage(
    cluster: &Cluster,
    node: &mut Node,
    driver: &TestCsiDriver,
    runs: RunningCsiDriver,
    attachments: &[String],
) {
    drop(runs);
    let unregistered = |object: &Value| {
        object["spec"]["drivers"]
            .as_array()
            .is_none_or(Vec::is_empty)
    };
    ok(cluster.wait(CSI_NODE, "has no driver", unregistered).await);
    let now = json!({ "gracePeriodSeconds": 1 });
    ok(cluster.client().delete(&pod_path("first"), &now).await);
    let ended = |object: &Value| {
        object["status"]["containerStatuses"][0]["state"]["terminated"].is_object()
    };
    ok(cluster.wait(&pod_path("first"), "has ended", ended).await);
    ok(node.kill("volume-manager").await);
    ok(node.wait_in_step().await);
    driver.calls();
    assert!(in_use(cluster).await.contains(&in_use_name("files")));
    let runs = ok(driver.start());
    let expected = ["files", "raw", "first-own"]
        .map(|claim| [format!("unpublish {claim}"), format!("unstage {claim}")]);
    let expected: Vec<&str> = expected.iter().flatten().map(String::as_str).collect();
    wait_for_calls(driver, &expected).await;
    ok(cluster.wait_absent(&pod_path("first")).await);
    for (claim, attachment) in ALL.iter().zip(attachments) {
        assert!(
            !detach(cluster, attachment, claim).await,
            "{claim} was detached in use"
        );
    }
    drop(runs);
    ok(cluster.wait(CSI_NODE, "has no driver", unregistered).await);
}

/// The controller's entries in the Node status survive the node's own patches.
async fn attachments_are_preserved(cluster: &Cluster) {
    let node = ok(cluster.client().get(NODE).await).unwrap();
    let attached = node["status"]["volumesAttached"].as_array().unwrap();
    for claim in ALL {
        let is_claim = |one: &Value| one["name"] == in_use_name(claim).as_str();
        assert!(attached.iter().any(is_claim), "{attached:?}");
    }
}

/// Statistics and metrics name the claim.
async fn statistics_name_the_claim(cluster: &Cluster, node: &mut Node, uid: &str) {
    use polylet_wire::stats::v1::GetSummaryRequest;
    use polylet_wire::stats::v1::stats_service_client::StatsServiceClient;
    ok(node.wait_serving().await);
    let mut client = StatsServiceClient::new(ok(node.channel("eviction")));
    let answer = ok(client.get_summary(GetSummaryRequest::default()).await);
    let summary: Value = ok(serde_json::from_slice(&answer.into_inner().summary));
    let pods = summary["pods"].as_array().unwrap();
    let pod = pods.iter().find(|pod| pod["podRef"]["uid"] == uid).unwrap();
    let volumes = pod["volume"].as_array().unwrap();
    let own_volume = volumes.iter().find(|volume| volume["name"] == "own");
    let own_volume = own_volume.unwrap_or_else(|| panic!("{volumes:?}"));
    assert_eq!(
        own_volume["pvcRef"],
        json!({ "name": "first-own", "namespace": "default" })
    );
    assert_eq!(own_volume["capacityBytes"], 10);
    let metrics = ok(cluster.kubectl(&["get", "--raw", METRICS]).await);
    let line = "kubelet_volume_stats_capacity_bytes{namespace=\"default\",persistentvolumeclaim=\"first-own\"} 10\n";
    assert!(metrics.contains(line), "{metrics}");
}

/// A pod deleted while the node was down: its volume is unmounted when it is up again.
async fn pod_deleted_during_node_outage(
    cluster: &Cluster,
    node: &mut Node,
    driver: &TestCsiDriver,
) {
    let more = json!({
        "volumes": [
            { "name": "files", "persistentVolumeClaim": { "claimName": "files" } },
            { "name": "inline", "csi": { "driver": NAME, "fsType": "ext4" } },
        ],
        "securityContext": { "fsGroup": 3000 },
        "container": { "volumeMounts": [
            { "name": "files", "mountPath": "/files" }, { "name": "inline", "mountPath": "/inline" }] },
    });
    let script = format!("grep -q kept /files/file && test -g /inline && {RUNS}");
    let second: Value = ok(serde_json::from_str(&pod("second", &script, &more)));
    ok(cluster.client().create(PODS, &second).await);
    let attachment = attachment(cluster, "files").await;
    attach(cluster, &attachment).await;
    ok(cluster.wait_pod_ready("second").await);
    let calls = driver.calls();
    let inline = calls
        .iter()
        .find_map(|call| call.strip_prefix("publish csi-"));
    let inline = inline.and_then(|call| call.split(' ').next());
    let inline = format!("unpublish csi-{}", inline.unwrap_or_default());
    node.down();
    let now = json!({ "gracePeriodSeconds": 0 });
    ok(cluster.client().delete(&pod_path("second"), &now).await);
    ok(cluster.wait_absent(&pod_path("second")).await);
    ok(node.up().await);
    let expected = ["unpublish files", "unstage files", inline.as_str()];
    wait_for_calls(driver, &expected).await;
    assert!(
        !detach(cluster, &attachment, "files").await,
        "it was detached in use"
    );
}
