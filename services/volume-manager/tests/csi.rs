//! Volumes of a CSI driver over real sockets: registration, mount, expansion, unmount. Needs root.

mod common;

use common::{Manager, Root, TIMEOUT, all_mounted, cluster_pod, eventually, is_root, run};
use polylet_harness::csi::{NAME, TestCsiDriver};
use polylet_volume_manager::convert;
use polylet_volume_manager::core::csi_volume::attachment_name;
use polylet_volume_manager::core::reference_key::{ObjectKind, ReferenceKey};
use polylet_volume_manager::core::references::ObjectState;
use polylet_volume_manager::csi::stats;
use polylet_wire::volume::v1::{FsUsage, PodVolumes, ResizeStatus, WatchClaimSizesResponse};
use serde_json::{Value, json};
use tonic::Status;

fn persistent() -> Value {
    let csi = json!({"driver": NAME, "volumeHandle": "vol", "fsType": "ext4",
        "nodeStageSecretRef": {"namespace": "ns", "name": "s"}});
    json!({"metadata": {"name": "pv"}, "spec": {"claimRef": {"uid": "c1"}, "csi": csi,
        "accessModes": ["ReadWriteOnce"]}})
}

/// Sets all objects but the attachment.
async fn cluster(manager: &Manager) {
    let claim = json!({"metadata": {"uid": "c1"}, "spec": {"volumeName": "pv"}, "status": {"phase": "Bound"}});
    manager
        .set_cluster_object(ObjectKind::Claim, "ns", "c", claim)
        .await;
    manager
        .set_cluster_object(ObjectKind::PersistentVolume, "", "pv", persistent())
        .await;
    let driver = json!({"metadata": {"name": NAME}, "spec": {"attachRequired": true, "podInfoOnMount": true}});
    manager
        .set_cluster_object(ObjectKind::CsiDriver, "", NAME, driver)
        .await;
    manager
        .set_cluster_object(
            ObjectKind::Secret,
            "ns",
            "s",
            json!({"data": {"key": "a2V5"}}),
        )
        .await;
}

async fn attach(manager: &Manager) {
    let name = attachment_name("vol", NAME, "n");
    let status = json!({"attached": true, "attachmentMetadata": {"device": "/dev/x"}});
    let spec = json!({"attacher": NAME, "nodeName": "n", "source": {}});
    let attachment = json!({"metadata": {"name": name}, "spec": spec, "status": status});
    manager
        .set_cluster_object(ObjectKind::Attachment, "", &name, attachment)
        .await;
}

#[test]
fn a_csi_volume_waits_for_its_driver_and_is_unstaged_with_its_last_pod() {
    if !is_root() {
        return;
    }
    run(async {
        let root = Root::new();
        let disk = tempfile::tempdir().unwrap();
        let by_claim = || json!({"name": "v", "persistentVolumeClaim": {"claimName": "c"}});
        let manager = Manager::start(&root, "d");
        manager.apply(&cluster_pod("u1", by_claim())).await.unwrap();
        cluster(&manager).await;
        let has_message = |text: &'static str| {
            move |pod: Option<&PodVolumes>| {
                pod.is_some_and(|pod| pod.volumes.iter().any(|v| v.message.contains(text)))
            }
        };
        manager
            .wait_for(
                "u1",
                has_message("not found in the list of registered CSI drivers"),
            )
            .await;
        let driver = TestCsiDriver::new(root.dir.path(), disk.path()).unwrap();
        let runs = driver.start().unwrap();
        let mut drivers = manager.drivers.drivers.subscribe();
        let registered = drivers
            .wait_for(|response| !response.drivers.is_empty())
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
        let key = ReferenceKey {
            kind: ObjectKind::Attachment,
            namespace: String::new(),
            name,
            cluster: true,
        };
        manager.set_object_state(key, ObjectState::Absent).await;
        let in_use = format!("kubernetes.io/csi/{NAME}^vol");
        assert_eq!(
            manager.drivers.in_use.borrow().names,
            std::slice::from_ref(&in_use)
        );
        manager
            .wait_for("u1", has_message("waiting for the Node's status"))
            .await;
        manager.set_volumes_in_use(&[&in_use]).await;
        manager
            .wait_for("u1", has_message("unattached volumes=[v]"))
            .await;
        // The first attempt fails with the driver's message; the next one succeeds.
        driver.refuse("stage", Status::internal("the disk is busy"));
        attach(&manager).await;
        manager
            .wait_for("u1", has_message("the disk is busy"))
            .await;
        manager.wait_mounted("u1").await;
        manager.apply(&cluster_pod("u2", by_claim())).await.unwrap();
        manager.wait_mounted("u2").await;
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
        // The capacity grows: the volume is expanded as soon as the claim shows it.
        let size = |claim: &'static str| {
            json!({"metadata": {"uid": "c1"}, "spec": {"volumeName": "pv"},
            "status": {"phase": "Bound", "capacity": {"storage": "1Gi"},
                "allocatedResourceStatuses": {"storage": claim}}})
        };
        let mut pv = persistent();
        pv["spec"]["capacity"] = json!({"storage": "2Gi"});
        manager
            .set_cluster_object(ObjectKind::PersistentVolume, "", "pv", pv)
            .await;
        manager
            .set_cluster_object(ObjectKind::Claim, "ns", "c", size("NodeResizePending"))
            .await;
        let mut sizes = manager.drivers.sizes.subscribe();
        let announced = sizes.wait_for(|response| !response.claims.is_empty());
        let announced = announced.await.unwrap().claims[0].clone();
        assert_eq!(announced.status(), ResizeStatus::InProgress);
        manager
            .set_cluster_object(ObjectKind::Claim, "ns", "c", size("NodeResizeInProgress"))
            .await;
        let is_finished = |response: &WatchClaimSizesResponse| {
            response
                .claims
                .iter()
                .any(|claim| claim.status() == ResizeStatus::Finished && claim.size == "2Gi")
        };
        sizes.wait_for(is_finished).await.unwrap();
        // One call for each pod.
        eventually("both calls", || driver.waiting() >= 2).await;
        let asked = driver.calls();
        let expand = format!("expand vol to {}", 2_i64 << 30);
        assert_eq!(asked, [expand.clone(), expand]);
        let usage = stats::usage(&root.layout(), manager.mounted_volumes().await).await;
        let usage: Vec<_> = usage.into_iter().map(convert::volume_stats).collect();
        let usage: Vec<_> = usage
            .iter()
            .map(|v| (v.claim.as_str(), v.driver, v.bytes))
            .collect();
        let bytes = FsUsage {
            available: 7,
            capacity: 10,
            used: 3,
        };
        assert_eq!(usage, [("c", true, Some(bytes)); 2]);
        assert_eq!(
            manager.drivers.in_use.borrow().names,
            std::slice::from_ref(&in_use)
        );
        manager.remove("u1").await;
        assert_eq!(driver.calls(), ["unpublish vol"]);
        manager.stop();

        // A restarted process reconstructs the volume of the other pod and unmounts it.
        let manager = Manager::start(&root, "e");
        let mut in_use_names = manager.drivers.in_use.subscribe();
        in_use_names
            .wait_for(|in_use_names| in_use_names.names == std::slice::from_ref(&in_use))
            .await
            .unwrap();
        manager.remove("u2").await;
        assert_eq!(driver.calls(), ["unpublish vol", "unstage vol"]);
        assert!(root.mounts().is_empty(), "{:?}", root.mounts());
        assert!(manager.drivers.in_use.borrow().names.is_empty());
        assert_eq!(
            std::fs::read_to_string(disk.path().join("vol/file")).unwrap(),
            "shared"
        );
        // A driver whose socket is gone is no longer registered.
        drop(runs);
        let mut drivers = manager.drivers.drivers.subscribe();
        let gone = drivers.wait_for(|response| response.drivers.is_empty());
        tokio::time::timeout(TIMEOUT, gone).await.unwrap().unwrap();
    });
}

fn inline_pod() -> Value {
    cluster_pod("u1", json!({"name": "v", "csi": {"driver": NAME}}))
}

async fn set_ephemeral_driver(manager: &Manager) {
    let spec = json!({"attachRequired": false, "podInfoOnMount": true, "volumeLifecycleModes": ["Ephemeral"]});
    let object = json!({"metadata": {"name": NAME}, "spec": spec});
    manager
        .set_cluster_object(ObjectKind::CsiDriver, "", NAME, object)
        .await;
}

#[test]
fn an_inline_volume_lives_as_long_as_its_pod() {
    if !is_root() {
        return;
    }
    run(async {
        let root = Root::new();
        let disk = tempfile::tempdir().unwrap();
        let driver = TestCsiDriver::new(root.dir.path(), disk.path()).unwrap();
        let _runs = driver.start().unwrap();
        let manager = Manager::start(&root, "d");
        manager.apply(&inline_pod()).await.unwrap();
        set_ephemeral_driver(&manager).await;
        manager.wait_mounted("u1").await;
        let file = root
            .pod("u1")
            .join("volumes/kubernetes.io~csi/v/mount/file");
        std::fs::write(file, "inline").unwrap();
        let calls = driver.calls();
        let handle = calls[0].strip_prefix("publish ").unwrap();
        let handle = handle.split(' ').next().unwrap();
        let stored = driver.volume(handle).join("file");
        assert_eq!(std::fs::read_to_string(stored).unwrap(), "inline");
        manager.remove("u1").await;
        assert!(
            calls.iter().all(|call| !call.starts_with("stage")),
            "{calls:?}"
        );
        assert!(root.mounts().is_empty());
    });
}

/// A process may end between the mount of a volume and the change of its ownership.
#[test]
fn a_mounted_volume_that_may_be_incomplete_is_published_again() {
    if !is_root() {
        return;
    }
    run(async {
        let root = Root::new();
        let disk = tempfile::tempdir().unwrap();
        let driver = TestCsiDriver::new(root.dir.path(), disk.path()).unwrap();
        let _runs = driver.start().unwrap();
        let metadata = root.layout().metadata("u1");
        for (client_id, is_mounted) in [("d", false), ("e", false), ("f", true)] {
            let manager = Manager::start(&root, client_id);
            let applied = manager.apply(&inline_pod()).await.unwrap();
            assert_eq!(all_mounted(&applied), is_mounted, "{applied:?}");
            set_ephemeral_driver(&manager).await;
            manager.wait_mounted("u1").await;
            eventually("the pod's metadata", || metadata.is_file()).await;
            manager.stop();
            // As if the first one had ended before it changed the ownership.
            if client_id == "d" {
                std::fs::remove_file(&metadata).unwrap();
            }
        }
        let calls = driver.calls();
        let is_published = |call: &String| call.starts_with("publish ");
        assert!(
            calls.len() >= 2 && calls.iter().all(is_published),
            "{calls:?}"
        );
        assert_eq!(root.mounts().len(), 1, "{:?}", root.mounts());
    });
}

#[test]
fn a_lost_data_file_is_replaced_by_what_is_known_otherwise() {
    if !is_root() {
        return;
    }
    run(async {
        let root = Root::new();
        let disk = tempfile::tempdir().unwrap();
        let driver = TestCsiDriver::new(root.dir.path(), disk.path()).unwrap();
        let _runs = driver.start().unwrap();
        let by_claim = || json!({"name": "v", "persistentVolumeClaim": {"claimName": "c"}});
        let data = |uid: &str| {
            let volume = root.pod(uid).join("volumes/kubernetes.io~csi/pv");
            volume.join("vol_data.json")
        };
        let not_attached = json!({"metadata": {"name": NAME}, "spec": {"attachRequired": false}});
        let mount = async |manager: &Manager, uid: &str| {
            manager.apply(&cluster_pod(uid, by_claim())).await.unwrap();
            cluster(manager).await;
            manager
                .set_cluster_object(ObjectKind::CsiDriver, "", NAME, not_attached.clone())
                .await;
            manager.wait_mounted(uid).await;
            driver.calls();
        };
        let torn_down = ["unpublish vol", "unstage vol"];

        // The process that has mounted the volume knows its driver.
        let manager = Manager::start(&root, "d");
        for content in [&b""[..], b"{\"driverName\":", b"{}"] {
            mount(&manager, "u1").await;
            std::fs::write(data("u1"), content).unwrap();
            manager.remove("u1").await;
            assert_eq!(driver.calls(), torn_down);
        }
        // Another one finds it beside the staged volume.
        mount(&manager, "u2").await;
        manager.stop();
        std::fs::write(data("u2"), "").unwrap();
        let manager = Manager::start(&root, "e");
        let mut drivers = manager.drivers.drivers.subscribe();
        let registered = drivers.wait_for(|response| !response.drivers.is_empty());
        drop(registered.await.unwrap());
        manager.remove("u2").await;
        assert_eq!(driver.calls(), torn_down);
        assert!(root.mounts().is_empty(), "{:?}", root.mounts());
    });
}

#[test]
fn the_data_of_a_volume_that_is_not_mounted_holds_up_no_pod() {
    if !is_root() {
        return;
    }
    run(async {
        let root = Root::new();
        let volume = root.pod("u1").join("volumes/kubernetes.io~csi/pv");
        std::fs::create_dir_all(volume.join("mount")).unwrap();
        // As a loss of power may leave it.
        std::fs::write(volume.join("vol_data.json"), "").unwrap();
        let manager = Manager::start(&root, "d");
        manager.remove("u1").await;
        assert!(!root.pod("u1").exists());
    });
}
