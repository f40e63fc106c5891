//! A CSI driver of our own, over real sockets: registered, asked to mount, asked to unmount. Needs
//! root.

mod common;

use std::time::Duration;

use common::{Life, Root, eventually, is_root, of_cluster, run};
use polylet_harness::csi::{Driver, NAME};
use polylet_volume_manager::core::csi::attachment_name;
use polylet_volume_manager::core::objects::{ObjectKey, ObjectKind, ObjectState};
use polylet_volume_manager::csi::stats;
use polylet_wire::volume::v1::{ClaimGrowth, VolumeLevel, WatchClaimSizesResponse};
use serde_json::{Value, json};
use tonic::Status;

fn persistent() -> Value {
    let csi = json!({"driver": NAME, "volumeHandle": "vol", "fsType": "ext4",
        "nodeStageSecretRef": {"namespace": "ns", "name": "s"}});
    json!({"metadata": {"name": "pv"}, "spec": {"claimRef": {"uid": "c1"}, "csi": csi,
        "accessModes": ["ReadWriteOnce"]}})
}

/// All that the cluster says but the attachment.
async fn cluster(life: &Life) {
    let claim = json!({"metadata": {"uid": "c1"}, "spec": {"volumeName": "pv"}, "status": {"phase": "Bound"}});
    life.tell(ObjectKind::Claim, "ns", "c", claim).await;
    life.tell(ObjectKind::Persistent, "", "pv", persistent())
        .await;
    let driver = json!({"metadata": {"name": NAME}, "spec": {"attachRequired": true, "podInfoOnMount": true}});
    life.tell(ObjectKind::CsiDriver, "", NAME, driver).await;
    life.tell(
        ObjectKind::Secret,
        "ns",
        "s",
        json!({"data": {"key": "a2V5"}}),
    )
    .await;
}

async fn attach(life: &Life) {
    let name = attachment_name("vol", NAME, "n");
    let status = json!({"attached": true, "attachmentMetadata": {"device": "/dev/x"}});
    let spec = json!({"attacher": NAME, "nodeName": "n", "source": {}});
    let attachment = json!({"metadata": {"name": name}, "spec": spec, "status": status});
    life.tell(ObjectKind::Attachment, "", &name, attachment)
        .await;
}

#[test]
fn a_drivers_volume_is_awaited_shared_by_two_pods_and_taken_away_with_the_last() {
    if !is_root() {
        return;
    }
    run(async {
        let root = Root::new();
        let disk = tempfile::tempdir().unwrap();
        let by_claim = || json!({"name": "v", "persistentVolumeClaim": {"claimName": "c"}});
        let life = Life::start(&root, "d");
        life.apply(&of_cluster("u1", by_claim())).await.unwrap();
        cluster(&life).await;
        let says = |why: &'static str| {
            move |pod: Option<&polylet_wire::volume::v1::PodVolumes>| {
                pod.is_some_and(|pod| pod.volumes.iter().any(|v| v.message.contains(why)))
            }
        };
        life.until(
            "u1",
            says("not found in the list of registered CSI drivers"),
        )
        .await;
        let driver = Driver::new(root.dir.path(), disk.path()).unwrap();
        let runs = driver.start().unwrap();
        let mut drivers = life.csi.drivers.subscribe();
        let registered = drivers
            .wait_for(|told| !told.drivers.is_empty())
            .await
            .unwrap()
            .drivers[0]
            .clone();
        assert_eq!(
            (registered.node_id.as_str(), registered.max_volumes),
            ("here", 5)
        );
        assert_eq!(registered.topology["zone.test.example"], "a");
        let name = attachment_name("vol", NAME, "n");
        let key = ObjectKey {
            kind: ObjectKind::Attachment,
            namespace: String::new(),
            name,
            cluster: true,
        };
        life.known(key, ObjectState::Absent).await;
        let in_use = format!("kubernetes.io/csi/{NAME}^vol");
        assert_eq!(
            life.csi.in_use.borrow().names,
            std::slice::from_ref(&in_use)
        );
        life.until("u1", says("waiting for the Node's status"))
            .await;
        life.in_use(&[&in_use]).await;
        life.until("u1", says("unattached volumes=[v]")).await;
        // The first attempt fails, and is told in the driver's words; the next does not.
        driver.refuse("stage", Status::internal("the disk is busy"));
        attach(&life).await;
        life.until("u1", says("the disk is busy")).await;
        life.mounted("u1").await;
        life.apply(&of_cluster("u2", by_claim())).await.unwrap();
        life.mounted("u2").await;
        let volume = |uid: &str| root.pod(uid).join("volumes/kubernetes.io~csi/pv");
        std::fs::write(volume("u1").join("mount/file"), "shared").unwrap();
        assert_eq!(
            std::fs::read_to_string(volume("u2").join("mount/file")).unwrap(),
            "shared"
        );
        let data: Value =
            serde_json::from_slice(&std::fs::read(volume("u1").join("vol_data.json")).unwrap())
                .unwrap();
        assert_eq!(data["volumeHandle"], "vol");
        assert_eq!(data["driverName"], NAME);
        let calls = driver.calls();
        let stage = "stage vol by /dev/x knowing 0, key key";
        assert!(calls.iter().any(|call| call == stage), "{calls:?}");
        assert!(
            calls
                .iter()
                .any(|call| call.starts_with("publish vol for pod-u2,")),
            "{calls:?}"
        );
        // Its size in the cluster rises: the driver is asked as soon as the claim says so.
        let size = |claim: &'static str| {
            json!({"metadata": {"uid": "c1"}, "spec": {"volumeName": "pv"},
            "status": {"phase": "Bound", "capacity": {"storage": "1Gi"},
                "allocatedResourceStatuses": {"storage": claim}}})
        };
        let mut pv = persistent();
        pv["spec"]["capacity"] = json!({"storage": "2Gi"});
        life.tell(ObjectKind::Persistent, "", "pv", pv).await;
        life.tell(ObjectKind::Claim, "ns", "c", size("NodeResizePending"))
            .await;
        let mut sizes = life.csi.sizes.subscribe();
        let announced = sizes.wait_for(|told| !told.claims.is_empty());
        let announced = announced.await.unwrap().claims[0].clone();
        assert_eq!(announced.growth(), ClaimGrowth::InProgress);
        life.tell(ObjectKind::Claim, "ns", "c", size("NodeResizeInProgress"))
            .await;
        let grown = |told: &WatchClaimSizesResponse| {
            told.claims
                .iter()
                .any(|of| of.growth() == ClaimGrowth::Finished && of.size == "2Gi")
        };
        sizes.wait_for(grown).await.unwrap();
        // Once for each pod, and nothing else.
        eventually("both calls", || driver.waiting() >= 2).await;
        let asked = driver.calls();
        let expand = format!("expand vol to {}", 2_i64 << 30);
        assert_eq!(asked, [expand.clone(), expand]);
        let held = stats::of(&root.layout(), life.all_mounted().await).await;
        let held: Vec<_> = held
            .iter()
            .map(|v| (v.claim.as_str(), v.driver, v.bytes))
            .collect();
        let level = VolumeLevel {
            available: 7,
            capacity: 10,
            used: 3,
        };
        assert_eq!(held, [("c", true, Some(level)); 2]);
        assert_eq!(
            life.csi.in_use.borrow().names,
            std::slice::from_ref(&in_use)
        );
        life.release("u1").await.unwrap();
        life.gone("u1").await;
        assert_eq!(driver.calls(), ["unpublish vol"]);
        life.end();

        // Another life finds the other pod's, and takes it away with its own knowledge alone.
        let life = Life::start(&root, "e");
        let mut told = life.csi.in_use.subscribe();
        told.wait_for(|told| told.names == std::slice::from_ref(&in_use))
            .await
            .unwrap();
        life.release("u2").await.unwrap();
        life.gone("u2").await;
        assert_eq!(driver.calls(), ["unpublish vol", "unstage vol"]);
        assert!(root.mounts().is_empty(), "{:?}", root.mounts());
        assert!(life.csi.in_use.borrow().names.is_empty());
        assert_eq!(
            std::fs::read_to_string(disk.path().join("vol/file")).unwrap(),
            "shared"
        );
        // A driver that goes is no driver of the node any more.
        drop(runs);
        let mut drivers = life.csi.drivers.subscribe();
        let gone = drivers.wait_for(|told| told.drivers.is_empty());
        tokio::time::timeout(Duration::from_secs(20), gone)
            .await
            .unwrap()
            .unwrap();
    });
}

#[test]
fn a_volume_of_the_manifest_comes_and_goes_with_its_pod() {
    if !is_root() {
        return;
    }
    run(async {
        let root = Root::new();
        let disk = tempfile::tempdir().unwrap();
        let driver = Driver::new(root.dir.path(), disk.path()).unwrap();
        let _runs = driver.start().unwrap();
        let life = Life::start(&root, "d");
        let volume = json!({"name": "v", "csi": {"driver": NAME}});
        life.apply(&of_cluster("u1", volume)).await.unwrap();
        let spec = json!({"attachRequired": false, "podInfoOnMount": true, "volumeLifecycleModes": ["Ephemeral"]});
        let object = json!({"metadata": {"name": NAME}, "spec": spec});
        life.tell(ObjectKind::CsiDriver, "", NAME, object).await;
        life.mounted("u1").await;
        let file = root
            .pod("u1")
            .join("volumes/kubernetes.io~csi/v/mount/file");
        std::fs::write(file, "inline").unwrap();
        let calls = driver.calls();
        let handle = calls[0].strip_prefix("publish ").unwrap();
        let handle = handle.split(' ').next().unwrap();
        let kept = driver.volume(handle).join("file");
        assert_eq!(std::fs::read_to_string(kept).unwrap(), "inline");
        life.release("u1").await.unwrap();
        life.gone("u1").await;
        assert!(
            calls.iter().all(|call| !call.starts_with("stage")),
            "{calls:?}"
        );
        assert!(root.mounts().is_empty());
    });
}
