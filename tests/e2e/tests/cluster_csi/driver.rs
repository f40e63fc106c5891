//! A CSI driver of our own that a test stops and starts: directories for file systems, loop devices
//! for block devices, and a list of what it was asked.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};

use polylet_wire::csi::v1::node_server::{Node, NodeServer};
use polylet_wire::csi::v1::node_service_capability::rpc::Type;
use polylet_wire::csi::v1::node_service_capability::{Rpc, Type as Kind};
use polylet_wire::csi::v1::volume_capability::AccessType;
use polylet_wire::csi::v1::*;
use polylet_wire::pluginregistration::v1::registration_server::{Registration, RegistrationServer};
use polylet_wire::pluginregistration::v1::{
    InfoRequest, PluginInfo, RegistrationStatus, RegistrationStatusResponse,
};
use tokio::net::UnixListener;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::{Request, Response, Status};

pub(crate) const NAME: &str = "disk.test.example";

/// The driver, and what it keeps while it is stopped.
#[derive(Clone)]
pub(crate) struct Driver {
    endpoint: PathBuf,
    registration: PathBuf,
    disk: PathBuf,
    calls: Arc<Mutex<Vec<String>>>,
}

/// A driver that runs.
pub(crate) struct Runs(Vec<JoinHandle<()>>, [PathBuf; 2]);

impl Drop for Runs {
    fn drop(&mut self) {
        self.0.iter().for_each(JoinHandle::abort);
        for socket in &self.1 {
            let _ = std::fs::remove_file(socket);
        }
    }
}

impl Driver {
    pub(crate) fn new(root: &Path, disk: &Path) -> Self {
        std::fs::create_dir_all(disk).unwrap();
        std::fs::create_dir_all(root.join("plugins").join(NAME)).unwrap();
        Driver {
            endpoint: root.join("plugins").join(NAME).join("csi.sock"),
            registration: root.join(format!("plugins_registry/{NAME}-reg.sock")),
            disk: disk.to_owned(),
            calls: Arc::default(),
        }
    }

    pub(crate) fn start(&self) -> Runs {
        let listen = |path: &Path| UnixListenerStream::new(UnixListener::bind(path).unwrap());
        let node = tonic::transport::Server::builder()
            .serve_with_incoming(NodeServer::new(self.clone()), listen(&self.endpoint));
        let registration = tonic::transport::Server::builder().serve_with_incoming(
            RegistrationServer::new(self.clone()),
            listen(&self.registration),
        );
        let tasks = vec![
            tokio::spawn(async move { node.await.unwrap() }),
            tokio::spawn(async move { registration.await.unwrap() }),
        ];
        Runs(tasks, [self.endpoint.clone(), self.registration.clone()])
    }

    fn note(&self, call: String) {
        let mut calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        calls.push(call);
    }

    /// All that it was asked since the last time.
    pub(crate) fn calls(&self) -> Vec<String> {
        std::mem::take(&mut *self.calls.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn volume(&self, id: &str) -> PathBuf {
        self.disk.join(id)
    }
}

fn is_mounted(at: &str) -> bool {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let mut lines = mounts.lines();
    lines.any(|line| line.split(' ').nth(4) == Some(at))
}

/// As CSI asks of drivers: doing it again changes nothing.
fn bind(from: &Path, to: &str) {
    if !is_mounted(to) {
        rustix::mount::mount_bind(from, to).unwrap();
    }
}

fn unbind(at: &str) {
    if is_mounted(at) {
        rustix::mount::unmount(at, rustix::mount::UnmountFlags::empty()).unwrap();
    }
}

fn losetup(arguments: &[&str]) -> String {
    let done = Command::new("losetup").args(arguments).output().unwrap();
    assert!(done.status.success(), "{done:?}");
    String::from_utf8(done.stdout).unwrap().trim().to_owned()
}

/// The loop device over a file.
fn device(file: &Path) -> Option<String> {
    let file = file.to_str().unwrap();
    let all = losetup(&["-j", file]);
    all.split(':')
        .next()
        .filter(|name| !name.is_empty())
        .map(str::to_owned)
}

fn is_block(capability: Option<&VolumeCapability>) -> bool {
    let kind = capability.and_then(|capability| capability.access_type.as_ref());
    matches!(kind, Some(AccessType::Block(_)))
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
        assert!(status.into_inner().plugin_registered);
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
        let (id, context) = (&asked.volume_id, &asked.publish_context);
        let device = context.get("device").cloned().unwrap_or_default();
        let told = asked.volume_context.len();
        self.note(format!("stage {id} by {device} knowing {told}"));
        if is_block(asked.volume_capability.as_ref()) {
            let file = self.volume(id);
            std::fs::File::create(&file)?.set_len(8 << 20)?;
        } else {
            std::fs::create_dir_all(self.volume(id))?;
            bind(&self.volume(id), &asked.staging_target_path);
        }
        Ok(Response::new(NodeStageVolumeResponse {}))
    }

    async fn node_unstage_volume(
        &self,
        request: Request<NodeUnstageVolumeRequest>,
    ) -> Result<Response<NodeUnstageVolumeResponse>, Status> {
        let asked = request.into_inner();
        self.note(format!("unstage {}", asked.volume_id));
        unbind(&asked.staging_target_path);
        Ok(Response::new(NodeUnstageVolumeResponse {}))
    }

    async fn node_publish_volume(
        &self,
        request: Request<NodePublishVolumeRequest>,
    ) -> Result<Response<NodePublishVolumeResponse>, Status> {
        let asked = request.into_inner();
        let (id, target) = (&asked.volume_id, &asked.target_path);
        let of = |key: &str| {
            asked
                .volume_context
                .get(&format!("csi.storage.k8s.io/{key}"))
        };
        let pod = of("pod.name").cloned().unwrap_or_default();
        let tokens = asked
            .secrets
            .get("csi.storage.k8s.io/serviceAccount.tokens");
        let vault = tokens.is_some_and(|json| json.starts_with("{\"vault\":{"));
        let open = of("serviceAccount.tokens").is_some();
        self.note(format!(
            "publish {id} for {pod}, tokens {vault}, told openly {open}"
        ));
        if is_block(asked.volume_capability.as_ref()) {
            let file = self.volume(id);
            let name = file.to_str().unwrap();
            let device = device(&file).unwrap_or_else(|| losetup(&["-f", "--show", name]));
            std::fs::File::create(target)?;
            bind(Path::new(&device), target);
        } else {
            std::fs::create_dir_all(target)?;
            let staged = PathBuf::from(&asked.staging_target_path);
            // One that is made for its pod is not staged.
            let from = Some(staged).filter(|staged| !staged.as_os_str().is_empty());
            let from = from.unwrap_or_else(|| self.volume(id));
            std::fs::create_dir_all(&from)?;
            bind(&from, target);
        }
        Ok(Response::new(NodePublishVolumeResponse {}))
    }

    async fn node_unpublish_volume(
        &self,
        request: Request<NodeUnpublishVolumeRequest>,
    ) -> Result<Response<NodeUnpublishVolumeResponse>, Status> {
        let asked = request.into_inner();
        let (id, target) = (&asked.volume_id, Path::new(&asked.target_path));
        self.note(format!("unpublish {id}"));
        unbind(&asked.target_path);
        if target.is_dir() {
            std::fs::remove_dir(target)?;
        } else if target.exists() {
            std::fs::remove_file(target)?;
            device(&self.volume(id)).map(|device| losetup(&["-d", &device]));
        }
        Ok(Response::new(NodeUnpublishVolumeResponse {}))
    }

    async fn node_expand_volume(
        &self,
        request: Request<NodeExpandVolumeRequest>,
    ) -> Result<Response<NodeExpandVolumeResponse>, Status> {
        let asked = request.into_inner();
        let bytes = asked.capacity_range.map_or(0, |range| range.required_bytes);
        self.note(format!("expand {} to {bytes}", asked.volume_id));
        Ok(Response::new(NodeExpandVolumeResponse {
            capacity_bytes: bytes,
        }))
    }

    async fn node_get_volume_stats(
        &self,
        _: Request<NodeGetVolumeStatsRequest>,
    ) -> Result<Response<NodeGetVolumeStatsResponse>, Status> {
        let usage = VolumeUsage {
            available: 7,
            total: 10,
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
        let segments = [("zone.test.example".to_owned(), "a".to_owned())].into();
        Ok(Response::new(NodeGetInfoResponse {
            node_id: "here".into(),
            max_volumes_per_node: 5,
            accessible_topology: Some(Topology { segments }),
        }))
    }
}
