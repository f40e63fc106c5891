//! A CSI driver of our own, over real sockets: registered, asked to mount, asked to unmount. Needs
//! root.

mod common;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{Life, Root, is_root, pod, run};
use polylet_volume_manager::core::csi::attachment_name;
use polylet_volume_manager::core::objects::{ObjectKey, ObjectKind, ObjectState};
use polylet_volume_manager::csi::stats;
use polylet_wire::csi::v1::node_server::{Node, NodeServer};
use polylet_wire::csi::v1::node_service_capability::rpc::Type;
use polylet_wire::csi::v1::node_service_capability::{Rpc, Type as Kind};
use polylet_wire::csi::v1::*;
use polylet_wire::pluginregistration::v1::registration_server::{Registration, RegistrationServer};
use polylet_wire::pluginregistration::v1::{
    InfoRequest, PluginInfo, RegistrationStatus, RegistrationStatusResponse,
};
use polylet_wire::volume::v1::{ClaimGrowth, VolumeLevel, WatchClaimSizesResponse};
use serde_json::{Value, json};
use tokio::net::UnixListener;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::{Request, Response, Status};

const NAME: &str = "disk.test.example";

/// The driver: a directory for each volume, bound where it is asked to.
#[derive(Clone)]
struct Driver {
    endpoint: PathBuf,
    disk: PathBuf,
    calls: Arc<Mutex<Vec<String>>>,
    refuses: Arc<Mutex<Option<String>>>,
}

impl Driver {
    fn start(root: &Root, disk: &Path) -> Self {
        let registry = root.layout().plugins_registry();
        std::fs::create_dir_all(&registry).unwrap();
        let driver = Driver {
            endpoint: root.dir.path().join("csi.sock"),
            disk: disk.to_owned(),
            calls: Arc::default(),
            refuses: Arc::default(),
        };
        let serve = |path: &Path| UnixListenerStream::new(UnixListener::bind(path).unwrap());
        let node = serve(&driver.endpoint);
        let service = tonic::transport::Server::builder()
            .serve_with_incoming(NodeServer::new(driver.clone()), node);
        tokio::task::spawn_local(service);
        let registration = serve(&registry.join(format!("{NAME}-reg.sock")));
        let service = tonic::transport::Server::builder()
            .serve_with_incoming(RegistrationServer::new(driver.clone()), registration);
        tokio::task::spawn_local(service);
        driver
    }

    fn note(&self, call: String) -> Result<(), Status> {
        self.calls.lock().unwrap().push(call);
        match self.refuses.lock().unwrap().take() {
            Some(why) => Err(Status::internal(why)),
            None => Ok(()),
        }
    }

    fn calls(&self) -> Vec<String> {
        std::mem::take(&mut *self.calls.lock().unwrap())
    }
}

#[tonic::async_trait]
impl Registration for Driver {
    async fn get_info(&self, _: Request<InfoRequest>) -> Result<Response<PluginInfo>, Status> {
        Ok(Response::new(PluginInfo {
            r#type: "CSIPlugin".into(),
            name: NAME.into(),
            endpoint: self.endpoint.display().to_string(),
            supported_versions: vec!["1.0.0".into()],
        }))
    }

    async fn notify_registration_status(
        &self,
        status: Request<RegistrationStatus>,
    ) -> Result<Response<RegistrationStatusResponse>, Status> {
        let status = status.into_inner();
        self.note(format!(
            "registered {} {}",
            status.plugin_registered, status.error
        ))?;
        Ok(Response::new(RegistrationStatusResponse {}))
    }
}

#[tonic::async_trait]
impl Node for Driver {
    async fn node_stage_volume(
        &self,
        request: Request<NodeStageVolumeRequest>,
    ) -> Result<Response<NodeStageVolumeResponse>, Status> {
        let asked = request.into_inner();
        let secret = asked.secrets.get("key").cloned().unwrap_or_default();
        self.note(format!(
            "stage {} {secret} {:?}",
            asked.volume_id, asked.publish_context
        ))?;
        let volume = self.disk.join(&asked.volume_id);
        std::fs::create_dir_all(&volume)?;
        bind(&volume, &asked.staging_target_path);
        Ok(Response::new(NodeStageVolumeResponse {}))
    }

    async fn node_unstage_volume(
        &self,
        request: Request<NodeUnstageVolumeRequest>,
    ) -> Result<Response<NodeUnstageVolumeResponse>, Status> {
        let asked = request.into_inner();
        self.note(format!("unstage {}", asked.volume_id))?;
        let flags = rustix::mount::UnmountFlags::empty();
        rustix::mount::unmount(asked.staging_target_path.as_str(), flags).unwrap();
        Ok(Response::new(NodeUnstageVolumeResponse {}))
    }

    async fn node_publish_volume(
        &self,
        request: Request<NodePublishVolumeRequest>,
    ) -> Result<Response<NodePublishVolumeResponse>, Status> {
        let asked = request.into_inner();
        let pod = asked.volume_context.get("csi.storage.k8s.io/pod.name");
        self.note(format!("publish {} for {pod:?}", asked.volume_id))?;
        let from = match asked.staging_target_path.as_str() {
            "" => self.disk.clone(),
            staged => staged.into(),
        };
        std::fs::create_dir_all(&asked.target_path)?;
        bind(&from, &asked.target_path);
        Ok(Response::new(NodePublishVolumeResponse {}))
    }

    async fn node_unpublish_volume(
        &self,
        request: Request<NodeUnpublishVolumeRequest>,
    ) -> Result<Response<NodeUnpublishVolumeResponse>, Status> {
        let asked = request.into_inner();
        self.note(format!("unpublish {}", asked.volume_id))?;
        let flags = rustix::mount::UnmountFlags::empty();
        rustix::mount::unmount(asked.target_path.as_str(), flags).unwrap();
        std::fs::remove_dir(&asked.target_path)?;
        Ok(Response::new(NodeUnpublishVolumeResponse {}))
    }

    async fn node_expand_volume(
        &self,
        request: Request<NodeExpandVolumeRequest>,
    ) -> Result<Response<NodeExpandVolumeResponse>, Status> {
        let asked = request.into_inner();
        let bytes = asked.capacity_range.map_or(0, |range| range.required_bytes);
        let there = Path::new(&asked.volume_path).is_dir();
        self.note(format!("expand {} to {bytes} {there}", asked.volume_id))?;
        Ok(Response::new(NodeExpandVolumeResponse {
            capacity_bytes: bytes,
        }))
    }

    async fn node_get_volume_stats(
        &self,
        request: Request<NodeGetVolumeStatsRequest>,
    ) -> Result<Response<NodeGetVolumeStatsResponse>, Status> {
        let there = Path::new(&request.into_inner().volume_path).is_dir();
        let usage = VolumeUsage {
            available: 7,
            total: if there { 10 } else { 0 },
            used: 3,
            unit: volume_usage::Unit::Bytes.into(),
        };
        Ok(Response::new(NodeGetVolumeStatsResponse {
            usage: vec![usage],
            volume_condition: None,
        }))
    }

    async fn node_get_capabilities(
        &self,
        _: Request<NodeGetCapabilitiesRequest>,
    ) -> Result<Response<NodeGetCapabilitiesResponse>, Status> {
        let can = [
            Type::StageUnstageVolume,
            Type::GetVolumeStats,
            Type::ExpandVolume,
        ];
        let can = can.map(|can| NodeServiceCapability {
            r#type: Some(Kind::Rpc(Rpc { r#type: can.into() })),
        });
        let capabilities = can.to_vec();
        Ok(Response::new(NodeGetCapabilitiesResponse { capabilities }))
    }

    async fn node_get_info(
        &self,
        _: Request<NodeGetInfoRequest>,
    ) -> Result<Response<NodeGetInfoResponse>, Status> {
        let segments = [("zone".to_owned(), "a".to_owned())].into();
        Ok(Response::new(NodeGetInfoResponse {
            node_id: "here".into(),
            max_volumes_per_node: 5,
            accessible_topology: Some(Topology { segments }),
        }))
    }
}

/// As CSI asks of drivers: doing it again changes nothing.
fn bind(from: &Path, to: &str) {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    if !mounts
        .lines()
        .any(|line| line.split(' ').nth(4) == Some(to))
    {
        rustix::mount::mount_bind(from, to).unwrap();
    }
}

async fn tell(life: &Life, kind: ObjectKind, namespace: &str, name: &str, object: Value) {
    let key = ObjectKey {
        kind,
        namespace: namespace.into(),
        name: name.into(),
        cluster: true,
    };
    let read = ObjectState::from_json(kind, &serde_json::to_vec(&object).unwrap());
    life.known(key, read).await;
}

fn of_cluster(uid: &str, volume: Value) -> Value {
    let mut pod = pod(uid, json!([volume]));
    pod["metadata"]["annotations"] = json!({"kubernetes.io/config.source": "api"});
    pod
}

fn persistent() -> Value {
    let csi = json!({"driver": NAME, "volumeHandle": "vol", "fsType": "ext4",
        "nodeStageSecretRef": {"namespace": "ns", "name": "s"}});
    json!({"metadata": {"name": "pv"}, "spec": {"claimRef": {"uid": "c1"}, "csi": csi,
        "accessModes": ["ReadWriteOnce"]}})
}

/// All that the cluster says but the attachment.
async fn cluster(life: &Life) {
    let claim = json!({"metadata": {"uid": "c1"}, "spec": {"volumeName": "pv"}, "status": {"phase": "Bound"}});
    tell(life, ObjectKind::Claim, "ns", "c", claim).await;
    tell(life, ObjectKind::Persistent, "", "pv", persistent()).await;
    let driver = json!({"metadata": {"name": NAME}, "spec": {"attachRequired": true, "podInfoOnMount": true}});
    tell(life, ObjectKind::CsiDriver, "", NAME, driver).await;
    tell(
        life,
        ObjectKind::Secret,
        "ns",
        "s",
        json!({"data": {"key": "a2V5"}}),
    )
    .await;
}

async fn attach(life: &Life) {
    let name = attachment_name("vol", NAME, "n");
    let status = json!({"attached": true, "attachmentMetadata": {"path": "/dev/x"}});
    let spec = json!({"attacher": NAME, "nodeName": "n", "source": {}});
    let attachment = json!({"metadata": {"name": name}, "spec": spec, "status": status});
    tell(life, ObjectKind::Attachment, "", &name, attachment).await;
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
        let driver = Driver::start(&root, disk.path());
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
        assert_eq!(registered.topology["zone"], "a");
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
        *driver.refuses.lock().unwrap() = Some("the disk is busy".into());
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
        let stage = r#"stage vol key {"path": "/dev/x"}"#;
        assert!(calls.iter().any(|call| call == stage), "{calls:?}");
        assert!(
            calls
                .iter()
                .any(|call| call == r#"publish vol for Some("pod-u2")"#),
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
        tell(&life, ObjectKind::Persistent, "", "pv", pv).await;
        tell(
            &life,
            ObjectKind::Claim,
            "ns",
            "c",
            size("NodeResizePending"),
        )
        .await;
        let mut sizes = life.csi.sizes.subscribe();
        let announced = sizes.wait_for(|told| !told.claims.is_empty());
        let announced = announced.await.unwrap().claims[0].clone();
        assert_eq!(announced.growth(), ClaimGrowth::InProgress);
        tell(
            &life,
            ObjectKind::Claim,
            "ns",
            "c",
            size("NodeResizeInProgress"),
        )
        .await;
        let grown = |told: &WatchClaimSizesResponse| {
            told.claims
                .iter()
                .any(|of| of.growth() == ClaimGrowth::Finished && of.size == "2Gi")
        };
        sizes.wait_for(grown).await.unwrap();
        // Once for each pod, and nothing else.
        let both = async {
            while driver.calls.lock().unwrap().len() < 2 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), both)
            .await
            .unwrap();
        let asked = driver.calls();
        let expand = format!("expand vol to {} true", 2_i64 << 30);
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
        let calls = driver.calls();
        assert_eq!(
            calls
                .iter()
                .filter(|call| !call.starts_with("registered"))
                .collect::<Vec<_>>(),
            ["unpublish vol", "unstage vol"]
        );
        assert!(root.mounts().is_empty(), "{:?}", root.mounts());
        assert!(life.csi.in_use.borrow().names.is_empty());
        assert_eq!(
            std::fs::read_to_string(disk.path().join("vol/file")).unwrap(),
            "shared"
        );
        // A driver that goes is no driver of the node any more.
        std::fs::remove_file(
            root.layout()
                .plugins_registry()
                .join(format!("{NAME}-reg.sock")),
        )
        .unwrap();
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
        std::fs::write(disk.path().join("file"), "inline").unwrap();
        let driver = Driver::start(&root, disk.path());
        let life = Life::start(&root, "d");
        let volume = json!({"name": "v", "csi": {"driver": NAME}});
        life.apply(&of_cluster("u1", volume)).await.unwrap();
        let spec = json!({"attachRequired": false, "podInfoOnMount": true, "volumeLifecycleModes": ["Ephemeral"]});
        let object = json!({"metadata": {"name": NAME}, "spec": spec});
        tell(&life, ObjectKind::CsiDriver, "", NAME, object).await;
        life.mounted("u1").await;
        let file = root
            .pod("u1")
            .join("volumes/kubernetes.io~csi/v/mount/file");
        assert_eq!(std::fs::read_to_string(file).unwrap(), "inline");
        life.release("u1").await.unwrap();
        life.gone("u1").await;
        let calls = driver.calls();
        assert!(
            calls.iter().all(|call| !call.starts_with("stage")),
            "{calls:?}"
        );
        assert!(root.mounts().is_empty());
    });
}
