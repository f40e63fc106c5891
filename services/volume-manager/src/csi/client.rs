//! Calls to CSI drivers, each on a connection of its own and with a deadline.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use polylet_kit::{channel, trace_context};
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
use tonic::service::interceptor::InterceptedService;
use tonic::transport::Channel;
use tonic::{Request, Response, Status};
use tracing::Instrument;

use super::call_span::{call_span, record_result};
use crate::core::bytes::Bytes;
use crate::core::csi_volume::{CsiVolume, RegisteredDriver};
use crate::volume::CsiError;

/// The deadline of a call, as upstream.
const DEADLINE: Duration = Duration::from_secs(120);
/// The deadline of a call for statistics, for which a caller waits.
const STATS_DEADLINE: Duration = Duration::from_secs(10);

/// A call of a method of the node service.
struct DriverCall<'a> {
    method: &'static str,
    /// What comes before the driver's message in an error.
    prefix: &'static str,
    driver: &'a Path,
    deadline: Duration,
}

impl<'a> DriverCall<'a> {
    fn new(method: &'static str, driver: &'a Path) -> Self {
        DriverCall {
            method,
            prefix: "",
            driver,
            deadline: DEADLINE,
        }
    }

    /// With a text before the driver's message.
    fn prefixed(self, prefix: &'static str) -> Self {
        DriverCall { prefix, ..self }
    }

    async fn run<T>(
        self,
        response: impl Future<Output = Result<Response<T>, Status>>,
    ) -> Result<T, CsiError> {
        let span = call_span(self.method, self.driver);
        let response = tokio::time::timeout(self.deadline, response.instrument(span.clone()));
        let result = response
            .await
            .unwrap_or_else(|_| Err(Status::deadline_exceeded("context deadline exceeded")));
        record_result(&span, &result);
        result.map(Response::into_inner).map_err(|status| CsiError {
            call: self.prefix,
            code: status.code(),
            message: status.message().to_owned(),
        })
    }
}

fn node(endpoint: &Path) -> NodeClient<InterceptedService<Channel, TraceHeader>> {
    let add: TraceHeader = add_trace_context;
    NodeClient::with_interceptor(channel::unix(endpoint), add)
}

type TraceHeader = fn(Request<()>) -> Result<Request<()>, Status>;

/// Calls that a span is waiting for are part of its trace.
fn add_trace_context(mut call: Request<()>) -> Result<Request<()>, Status> {
    let header = trace_context::header(&tracing::Span::current());
    trace_context::add_to(&mut call, header);
    Ok(call)
}

/// Calls `NodeGetInfo` and `NodeGetCapabilities`.
pub async fn get_info(name: String, endpoint: PathBuf) -> Result<RegisteredDriver, CsiError> {
    let mut client = node(&endpoint);
    let call = DriverCall::new("NodeGetInfo", &endpoint).prefixed("NodeGetInfo: ");
    let info = call
        .run(client.node_get_info(NodeGetInfoRequest {}))
        .await?;
    let call = DriverCall::new("NodeGetCapabilities", &endpoint).prefixed("NodeGetCapabilities: ");
    let request = NodeGetCapabilitiesRequest {};
    let response = call.run(client.node_get_capabilities(request)).await?;
    let has = |kind: Type| {
        let mut all = response.capabilities.iter();
        all.any(|capability| match &capability.r#type {
            Some(node_service_capability::Type::Rpc(rpc)) => rpc.r#type() == kind,
            None => false,
        })
    };
    Ok(RegisteredDriver {
        name,
        endpoint,
        node_id: info.node_id,
        topology: info
            .accessible_topology
            .map(|topology| topology.segments.into_iter().collect())
            .unwrap_or_default(),
        max_volumes: info.max_volumes_per_node,
        stage_unstage: has(Type::StageUnstageVolume),
        volume_mount_group: has(Type::VolumeMountGroup),
        single_node_multi_writer: has(Type::SingleNodeMultiWriter),
        volume_stats: has(Type::GetVolumeStats),
        expand_volume: has(Type::ExpandVolume),
        version: (0, 0, 0),
    })
}

/// Calls `NodeStageVolume`.
pub async fn stage(csi: &CsiVolume, staging: &Path) -> Result<(), CsiError> {
    let request = NodeStageVolumeRequest {
        volume_id: csi.handle.clone(),
        publish_context: csi.publish_context.clone().into_iter().collect(),
        staging_target_path: staging.display().to_string(),
        volume_capability: Some(capability(csi)),
        secrets: secrets(&csi.stage_secrets),
        volume_context: csi.attributes.clone().into_iter().collect(),
    };
    let mut client = node(&csi.endpoint);
    let call = DriverCall::new("NodeStageVolume", &csi.endpoint);
    call.run(client.node_stage_volume(request)).await?;
    Ok(())
}

/// The key under which drivers find service account tokens.
const TOKENS: &str = "csi.storage.k8s.io/serviceAccount.tokens";

/// Calls `NodePublishVolume`.
pub async fn publish(
    csi: &CsiVolume,
    staging: Option<&Path>,
    target: &Path,
) -> Result<(), CsiError> {
    let (mut context, mut secrets) = (csi.attributes.clone(), secrets(&csi.publish_secrets));
    context.extend(csi.pod_info.clone());
    if let Some(tokens) = &csi.tokens {
        let text = String::from_utf8_lossy(&tokens.0).into_owned();
        let replaced = match csi.tokens_in_secrets {
            true => secrets.insert(TOKENS.to_owned(), text),
            false => context.insert(TOKENS.to_owned(), text),
        };
        // An attribute of the same name does not stand for tokens.
        drop(replaced);
    }
    let request = NodePublishVolumeRequest {
        volume_id: csi.handle.clone(),
        publish_context: csi.publish_context.clone().into_iter().collect(),
        staging_target_path: staging
            .map(|at| at.display().to_string())
            .unwrap_or_default(),
        target_path: target.display().to_string(),
        volume_capability: Some(capability(csi)),
        readonly: csi.read_only,
        secrets,
        volume_context: context.into_iter().collect(),
    };
    let mut client = node(&csi.endpoint);
    let call = DriverCall::new("NodePublishVolume", &csi.endpoint);
    call.run(client.node_publish_volume(request)).await?;
    Ok(())
}

/// Calls `NodeUnpublishVolume`.
pub async fn unpublish(endpoint: &Path, handle: &str, target: &Path) -> Result<(), CsiError> {
    let request = NodeUnpublishVolumeRequest {
        volume_id: handle.to_owned(),
        target_path: target.display().to_string(),
    };
    let mut client = node(endpoint);
    let call = DriverCall::new("NodeUnpublishVolume", endpoint).prefixed("NodeUnpublishVolume: ");
    call.run(client.node_unpublish_volume(request)).await?;
    Ok(())
}

/// Calls `NodeUnstageVolume`.
pub async fn unstage(endpoint: &Path, handle: &str, staging: &Path) -> Result<(), CsiError> {
    let request = NodeUnstageVolumeRequest {
        volume_id: handle.to_owned(),
        staging_target_path: staging.display().to_string(),
    };
    let mut client = node(endpoint);
    let call = DriverCall::new("NodeUnstageVolume", endpoint).prefixed("NodeUnstageVolume: ");
    call.run(client.node_unstage_volume(request)).await?;
    Ok(())
}

const EXPAND_FAILED: &str = "Expander.NodeExpand failed to expand the volume : ";
const EXPAND_INFEASIBLE: &str = "Expander.NodeExpand failed to expand the volume ";

/// Calls `NodeExpandVolume`.
pub async fn expand(csi: &CsiVolume, staging: Option<&Path>, at: &Path) -> Result<(), CsiError> {
    let request = NodeExpandVolumeRequest {
        volume_id: csi.handle.clone(),
        volume_path: at.display().to_string(),
        capacity_range: Some(CapacityRange {
            required_bytes: csi.size.bytes,
            limit_bytes: 0,
        }),
        staging_target_path: staging
            .map(|at| at.display().to_string())
            .unwrap_or_default(),
        volume_capability: Some(capability(csi)),
        secrets: secrets(&csi.expand_secrets),
    };
    let mut client = node(&csi.endpoint);
    let call = DriverCall::new("NodeExpandVolume", &csi.endpoint).prefixed(EXPAND_FAILED);
    let done = call.run(client.node_expand_volume(request)).await;
    done.map(drop).map_err(|error| match error.code {
        // Upstream's message for a final failure has no colon.
        tonic::Code::InvalidArgument | tonic::Code::OutOfRange | tonic::Code::NotFound => {
            CsiError {
                call: EXPAND_INFEASIBLE,
                ..error
            }
        }
        _ => error,
    })
}

/// Usage in one unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct UnitUsage {
    /// The available amount.
    pub available: i64,
    /// The total.
    pub capacity: i64,
    /// The used amount.
    pub used: i64,
}

/// The usage of a volume, as far as its driver reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DriverUsage {
    /// Usage in bytes.
    pub bytes: Option<UnitUsage>,
    /// Usage in inodes.
    pub inodes: Option<UnitUsage>,
}

/// Calls `NodeGetVolumeStats`.
pub async fn stats(
    csi: &CsiVolume,
    staging: Option<&Path>,
    at: &Path,
) -> Result<DriverUsage, CsiError> {
    let request = NodeGetVolumeStatsRequest {
        volume_id: csi.handle.clone(),
        volume_path: at.display().to_string(),
        staging_target_path: staging
            .map(|at| at.display().to_string())
            .unwrap_or_default(),
    };
    let mut client = node(&csi.endpoint);
    let call = DriverCall {
        deadline: STATS_DEADLINE,
        ..DriverCall::new("NodeGetVolumeStats", &csi.endpoint).prefixed("NodeGetVolumeStats: ")
    };
    let response = call.run(client.node_get_volume_stats(request)).await?;
    let usage = |unit: Unit| {
        let usage = response.usage.iter().find(|usage| usage.unit() == unit)?;
        Some(UnitUsage {
            available: usage.available,
            capacity: usage.total,
            used: usage.used,
        })
    };
    Ok(DriverUsage {
        bytes: usage(Unit::Bytes),
        inodes: usage(Unit::Inodes),
    })
}

fn capability(csi: &CsiVolume) -> VolumeCapability {
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

/// Secrets for the wire, where values are text.
fn secrets(data: &BTreeMap<String, Bytes>) -> std::collections::HashMap<String, String> {
    let text = |bytes: &Bytes| String::from_utf8_lossy(&bytes.0).into_owned();
    data.iter()
        .map(|(key, value)| (key.clone(), text(value)))
        .collect()
}
