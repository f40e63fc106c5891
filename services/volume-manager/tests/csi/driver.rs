//! A CSI driver, over real sockets.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use polylet_wire::csi::v1::node_server::{Node, NodeServer};
use polylet_wire::csi::v1::node_service_capability::rpc::Type;
use polylet_wire::csi::v1::node_service_capability::{Rpc, Type as Kind};
use polylet_wire::csi::v1::*;
use polylet_wire::pluginregistration::v1::registration_server::{Registration, RegistrationServer};
use polylet_wire::pluginregistration::v1::{
    InfoRequest, PluginInfo, RegistrationStatus, RegistrationStatusResponse,
};
use tokio::net::UnixListener;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::{Request, Response, Status};

use crate::common::Root;

pub(crate) const NAME: &str = "disk.test.example";

/// The driver: a directory for each volume, bound where it is asked to.
#[derive(Clone)]
pub(crate) struct Driver {
    pub(crate) endpoint: PathBuf,
    pub(crate) disk: PathBuf,
    pub(crate) calls: Arc<Mutex<Vec<String>>>,
    pub(crate) refuses: Arc<Mutex<Option<String>>>,
}

impl Driver {
    pub(crate) fn start(root: &Root, disk: &Path) -> Self {
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

    pub(crate) fn calls(&self) -> Vec<String> {
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
