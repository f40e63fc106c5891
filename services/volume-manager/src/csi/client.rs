//! Calls to a driver, each on a connection of its own and within its deadline.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use polylet_kit::channel;
use polylet_wire::csi::v1::node_client::NodeClient;
use polylet_wire::csi::v1::node_service_capability::rpc::Type;
use polylet_wire::csi::v1::volume_capability::{AccessMode, AccessType, BlockVolume, MountVolume};
use polylet_wire::csi::v1::volume_usage::Unit;
use polylet_wire::csi::v1::{
    CapacityRange, NodeExpandVolumeRequest, NodeGetCapabilitiesRequest, NodeGetInfoRequest,
    NodeGetVolumeStatsRequest, NodePublishVolumeRequest, NodeStageVolumeRequest,
    NodeUnpublishVolumeRequest, NodeUnstageVolumeRequest, VolumeCapability,
    node_service_capability,
};
use tonic::{Response, Status};

use crate::core::csi::{Csi, Registered};
use crate::core::objects::Bytes;

/// How long a driver may take, as upstream.
const DEADLINE: Duration = Duration::from_secs(120);
/// How long it may take to say what a volume holds: somebody waits for the numbers of all.
const STATS_DEADLINE: Duration = Duration::from_secs(10);

/// What a driver was asked to do, and did not.
#[derive(Debug, thiserror::Error)]
#[error("{call}rpc error: code = {} desc = {message}", name(*.code))]
pub struct CsiError {
    /// What people are told before the error, if anything.
    pub call: &'static str,
    /// CSI's code.
    pub code: tonic::Code,
    /// The driver's words.
    pub message: String,
}

/// As the drivers' libraries write it.
fn name(code: tonic::Code) -> String {
    match code {
        tonic::Code::Cancelled => "Canceled".to_owned(),
        other => format!("{other:?}"),
    }
}

async fn within<T>(
    call: &'static str,
    answer: impl Future<Output = Result<Response<T>, Status>>,
) -> Result<T, CsiError> {
    within_time(call, DEADLINE, answer).await
}

async fn within_time<T>(
    call: &'static str,
    deadline: Duration,
    answer: impl Future<Output = Result<Response<T>, Status>>,
) -> Result<T, CsiError> {
    let failed = |code, message: &str| CsiError {
        call,
        code,
        message: message.to_owned(),
    };
    match tokio::time::timeout(deadline, answer).await {
        Ok(Ok(answer)) => Ok(answer.into_inner()),
        Ok(Err(status)) => Err(failed(status.code(), status.message())),
        Err(_) => Err(failed(
            tonic::Code::DeadlineExceeded,
            "context deadline exceeded",
        )),
    }
}

fn node(endpoint: &Path) -> NodeClient<tonic::transport::Channel> {
    NodeClient::new(channel::plain(endpoint))
}

/// Asks a driver what it can do here.
///
/// # Errors
/// When it does not say.
pub async fn look(name: String, endpoint: PathBuf) -> Result<Registered, CsiError> {
    let mut client = node(&endpoint);
    let info = within("NodeGetInfo: ", client.node_get_info(NodeGetInfoRequest {})).await?;
    let request = NodeGetCapabilitiesRequest {};
    let asked = client.node_get_capabilities(request);
    let can = within("NodeGetCapabilities: ", asked).await?.capabilities;
    let has = |kind: Type| {
        can.iter().any(|one| match &one.r#type {
            Some(node_service_capability::Type::Rpc(rpc)) => rpc.r#type() == kind,
            None => false,
        })
    };
    Ok(Registered {
        name,
        endpoint,
        node_id: info.node_id,
        topology: info
            .accessible_topology
            .map(|topology| topology.segments.into_iter().collect())
            .unwrap_or_default(),
        max_volumes: info.max_volumes_per_node,
        stages: has(Type::StageUnstageVolume),
        groups: has(Type::VolumeMountGroup),
        single_writers: has(Type::SingleNodeMultiWriter),
        tells: has(Type::GetVolumeStats),
        expands: has(Type::ExpandVolume),
        version: (0, 0, 0),
    })
}

/// Has a volume mounted for the whole node.
///
/// # Errors
/// When the driver cannot.
pub async fn stage(csi: &Csi, staged: &Path) -> Result<(), CsiError> {
    let request = NodeStageVolumeRequest {
        volume_id: csi.handle.clone(),
        publish_context: csi.publish_context.clone().into_iter().collect(),
        staging_target_path: staged.display().to_string(),
        volume_capability: Some(capability(csi)),
        secrets: secrets(&csi.stage_secrets),
        volume_context: csi.attributes.clone().into_iter().collect(),
    };
    let mut client = node(&csi.endpoint);
    within("", client.node_stage_volume(request)).await?;
    Ok(())
}

/// Where drivers find the tokens of the pod's account.
const TOKENS: &str = "csi.storage.k8s.io/serviceAccount.tokens";

/// Has a volume mounted for a pod.
///
/// # Errors
/// When the driver cannot.
pub async fn publish(csi: &Csi, staged: Option<&Path>, target: &Path) -> Result<(), CsiError> {
    let (mut context, mut secrets) = (csi.attributes.clone(), secrets(&csi.publish_secrets));
    context.extend(csi.pod_info.clone());
    if let Some(tokens) = &csi.tokens {
        let text = String::from_utf8_lossy(&tokens.0).into_owned();
        let told = match csi.tokens_in_secrets {
            true => secrets.insert(TOKENS.to_owned(), text),
            false => context.insert(TOKENS.to_owned(), text),
        };
        // The pod's own words do not stand for tokens.
        drop(told);
    }
    let request = NodePublishVolumeRequest {
        volume_id: csi.handle.clone(),
        publish_context: csi.publish_context.clone().into_iter().collect(),
        staging_target_path: staged
            .map(|at| at.display().to_string())
            .unwrap_or_default(),
        target_path: target.display().to_string(),
        volume_capability: Some(capability(csi)),
        readonly: csi.read_only,
        secrets,
        volume_context: context.into_iter().collect(),
    };
    let mut client = node(&csi.endpoint);
    within("", client.node_publish_volume(request)).await?;
    Ok(())
}

/// Has a volume unmounted for a pod.
///
/// # Errors
/// When the driver cannot.
pub async fn unpublish(endpoint: &Path, handle: &str, target: &Path) -> Result<(), CsiError> {
    let request = NodeUnpublishVolumeRequest {
        volume_id: handle.to_owned(),
        target_path: target.display().to_string(),
    };
    let mut client = node(endpoint);
    within(
        "NodeUnpublishVolume: ",
        client.node_unpublish_volume(request),
    )
    .await?;
    Ok(())
}

/// Has a volume unmounted for the whole node.
///
/// # Errors
/// When the driver cannot.
pub async fn unstage(endpoint: &Path, handle: &str, staged: &Path) -> Result<(), CsiError> {
    let request = NodeUnstageVolumeRequest {
        volume_id: handle.to_owned(),
        staging_target_path: staged.display().to_string(),
    };
    let mut client = node(endpoint);
    within("NodeUnstageVolume: ", client.node_unstage_volume(request)).await?;
    Ok(())
}

const NOT_EXPANDED: &str = "Expander.NodeExpand failed to expand the volume : ";
const NEVER_EXPANDED: &str = "Expander.NodeExpand failed to expand the volume ";

/// Has a volume made as large as it should be.
///
/// # Errors
/// When the driver cannot.
pub async fn expand(csi: &Csi, staged: Option<&Path>, at: &Path) -> Result<(), CsiError> {
    let request = NodeExpandVolumeRequest {
        volume_id: csi.handle.clone(),
        volume_path: at.display().to_string(),
        capacity_range: Some(CapacityRange {
            required_bytes: csi.size.bytes,
            limit_bytes: 0,
        }),
        staging_target_path: staged
            .map(|at| at.display().to_string())
            .unwrap_or_default(),
        volume_capability: Some(capability(csi)),
        secrets: secrets(&csi.expand_secrets),
    };
    let mut client = node(&csi.endpoint);
    let asked = client.node_expand_volume(request);
    let done = within(NOT_EXPANDED, asked).await;
    done.map(drop).map_err(|error| match error.code {
        // Upstream's words for what will never be done have no colon.
        tonic::Code::InvalidArgument | tonic::Code::OutOfRange | tonic::Code::NotFound => {
            CsiError {
                call: NEVER_EXPANDED,
                ..error
            }
        }
        _ => error,
    })
}

/// What a volume holds: what is left of it, its size, and what is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Level {
    /// Left.
    pub available: i64,
    /// In all.
    pub capacity: i64,
    /// Used.
    pub used: i64,
}

/// Bytes and inodes of a volume, as far as its driver says.
pub type Levels = (Option<Level>, Option<Level>);

/// Asks what a volume holds.
///
/// # Errors
/// When the driver does not say.
pub async fn stats(csi: &Csi, staged: Option<&Path>, at: &Path) -> Result<Levels, CsiError> {
    let request = NodeGetVolumeStatsRequest {
        volume_id: csi.handle.clone(),
        volume_path: at.display().to_string(),
        staging_target_path: staged
            .map(|at| at.display().to_string())
            .unwrap_or_default(),
    };
    let mut client = node(&csi.endpoint);
    let asked = client.node_get_volume_stats(request);
    let answer = within_time("NodeGetVolumeStats: ", STATS_DEADLINE, asked).await?;
    let of = |unit: Unit| {
        let one = answer.usage.iter().find(|usage| usage.unit() == unit)?;
        Some(Level {
            available: one.available,
            capacity: one.total,
            used: one.used,
        })
    };
    Ok((of(Unit::Bytes), of(Unit::Inodes)))
}

fn capability(csi: &Csi) -> VolumeCapability {
    let access_mode = Some(AccessMode {
        mode: csi.access_mode,
    });
    if csi.block {
        return VolumeCapability {
            access_type: Some(AccessType::Block(BlockVolume {})),
            access_mode,
        };
    }
    let mount = MountVolume {
        fs_type: csi.fs_type.clone(),
        mount_flags: csi.mount_options.clone(),
        volume_mount_group: csi
            .mount_group
            .map(|gid| gid.to_string())
            .unwrap_or_default(),
    };
    VolumeCapability {
        access_type: Some(AccessType::Mount(mount)),
        access_mode,
    }
}

/// As the wire has them; what is no text cannot be told.
fn secrets(of: &BTreeMap<String, Bytes>) -> std::collections::HashMap<String, String> {
    let text = |bytes: &Bytes| String::from_utf8_lossy(&bytes.0).into_owned();
    of.iter().map(|(key, is)| (key.clone(), text(is))).collect()
}
