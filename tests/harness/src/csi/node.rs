//! The driver's node service.

use std::path::{Path, PathBuf};

use polylet_wire::csi::v1::node_server::Node;
use polylet_wire::csi::v1::node_service_capability::rpc::Type;
use polylet_wire::csi::v1::node_service_capability::{Rpc, Type as Kind};
use polylet_wire::csi::v1::*;
use tonic::{Request, Response, Status};

use super::{TestCsiDriver, bind, device, is_block, losetup, unbind};

#[tonic::async_trait]
impl Node for TestCsiDriver {
    async fn node_stage_volume(
        &self,
        request: Request<NodeStageVolumeRequest>,
    ) -> Result<Response<NodeStageVolumeResponse>, Status> {
        let asked = request.into_inner();
        let (id, context) = (&asked.volume_id, &asked.publish_context);
        let device = context.get("device").cloned().unwrap_or_default();
        let attributes = asked.volume_context.len();
        let secret = asked.secrets.get("key");
        let secret = secret.map_or_else(String::new, |key| format!(", key {key}"));
        self.note(format!(
            "stage {id} by {device} knowing {attributes}{secret}"
        ))
        .await?;
        if is_block(asked.volume_capability.as_ref()) {
            std::fs::File::create(self.volume(id))?.set_len(8 << 20)?;
        } else {
            std::fs::create_dir_all(self.volume(id))?;
            bind(&self.volume(id), &asked.staging_target_path)?;
        }
        Ok(Response::new(NodeStageVolumeResponse {}))
    }

    async fn node_unstage_volume(
        &self,
        request: Request<NodeUnstageVolumeRequest>,
    ) -> Result<Response<NodeUnstageVolumeResponse>, Status> {
        let asked = request.into_inner();
        self.note(format!("unstage {}", asked.volume_id)).await?;
        unbind(&asked.staging_target_path)?;
        Ok(Response::new(NodeUnstageVolumeResponse {}))
    }

    async fn node_publish_volume(
        &self,
        request: Request<NodePublishVolumeRequest>,
    ) -> Result<Response<NodePublishVolumeResponse>, Status> {
        let asked = request.into_inner();
        let (id, target) = (&asked.volume_id, &asked.target_path);
        let of = |key: &str| {
            let key = format!("csi.storage.k8s.io/{key}");
            asked.volume_context.get(&key)
        };
        let pod = of("pod.name").cloned().unwrap_or_default();
        let tokens = "csi.storage.k8s.io/serviceAccount.tokens";
        let tokens = asked.secrets.get(tokens);
        let vault = tokens.is_some_and(|json| json.starts_with("{\"vault\":{"));
        let open = of("serviceAccount.tokens").is_some();
        self.note(format!(
            "publish {id} for {pod}, tokens {vault}, tokens in attributes {open}"
        ))
        .await?;
        if is_block(asked.volume_capability.as_ref()) {
            let file = self.volume(id);
            let device = match device(&file)? {
                Some(device) => device,
                None => losetup(&["-f", "--show"], &file)?,
            };
            std::fs::File::create(target)?;
            bind(Path::new(&device), target)?;
        } else {
            std::fs::create_dir_all(target)?;
            let staged = PathBuf::from(&asked.staging_target_path);
            // Ephemeral volumes are not staged.
            let from = Some(staged).filter(|staged| !staged.as_os_str().is_empty());
            let from = from.unwrap_or_else(|| self.volume(id));
            std::fs::create_dir_all(&from)?;
            bind(&from, target)?;
        }
        Ok(Response::new(NodePublishVolumeResponse {}))
    }

    async fn node_unpublish_volume(
        &self,
        request: Request<NodeUnpublishVolumeRequest>,
    ) -> Result<Response<NodeUnpublishVolumeResponse>, Status> {
        let asked = request.into_inner();
        let (id, target) = (&asked.volume_id, Path::new(&asked.target_path));
        self.note(format!("unpublish {id}")).await?;
        unbind(&asked.target_path)?;
        if target.is_dir() {
            std::fs::remove_dir(target)?;
        } else if target.exists() {
            std::fs::remove_file(target)?;
            if let Some(device) = device(&self.volume(id))? {
                losetup(&["-d"], Path::new(&device))?;
            }
        }
        Ok(Response::new(NodeUnpublishVolumeResponse {}))
    }

    async fn node_expand_volume(
        &self,
        request: Request<NodeExpandVolumeRequest>,
    ) -> Result<Response<NodeExpandVolumeResponse>, Status> {
        let asked = request.into_inner();
        let bytes = asked.capacity_range.map_or(0, |range| range.required_bytes);
        self.note(format!("expand {} to {bytes}", asked.volume_id))
            .await?;
        if !Path::new(&asked.volume_path).exists() {
            return Err(Status::not_found(asked.volume_path));
        }
        Ok(Response::new(NodeExpandVolumeResponse {
            capacity_bytes: bytes,
        }))
    }

    async fn node_get_volume_stats(
        &self,
        request: Request<NodeGetVolumeStatsRequest>,
    ) -> Result<Response<NodeGetVolumeStatsResponse>, Status> {
        let at = request.into_inner().volume_path;
        if !Path::new(&at).is_dir() {
            return Err(Status::not_found(at));
        }
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
            max_volumes_per_node: self.state().most,
            accessible_topology: Some(Topology { segments }),
        }))
    }
}
