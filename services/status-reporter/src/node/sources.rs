//! The streams that the Node's status is computed from.

use futures::stream::{LocalBoxStream, SelectAll};
use futures::{FutureExt, StreamExt};
use k8s_openapi::api::core::v1::{NodeRuntimeHandler, NodeRuntimeHandlerFeatures};
use polylet_kit::{Ctx, address, follow};
use polylet_watch::{PressureItemKey, Update, Value};
use polylet_wire::pleg::v1::WatchRuntimeResponse;
use polylet_wire::podconfig::v1::watch_node_response::State;
use polylet_wire::{device, eviction, imagegc};
use tokio::sync::watch;

use super::input::NodeInput;
use crate::core::node::facts::{
    NodeDevices, NodeImage, NodeRuntimeStatus, PressureCondition, PressureResource,
};

/// All streams as inputs.
pub(super) fn all(
    ctx: &Ctx,
    mut has_csi_node: watch::Receiver<bool>,
) -> SelectAll<LocalBoxStream<'static, NodeInput>> {
    let mut all = SelectAll::new();
    let interval = ctx.config().kubelet.node_status_update_frequency;
    let addresses = address::follow(ctx.config(), ctx.node_name(), interval);
    let addresses =
        addresses.map(|ips| NodeInput::Addresses(ips.iter().map(ToString::to_string).collect()));
    all.push(addresses.boxed_local());
    let created = async move {
        let created = has_csi_node.wait_for(|created| *created).await.is_ok();
        created.then_some(NodeInput::CsiNodeCreated)
    };
    let created = created.into_stream().filter_map(std::future::ready);
    all.push(created.boxed_local());
    all.push(follow::pleg::runtime(ctx).map(runtime).boxed_local());
    let pressure = follow::eviction::pressure(ctx).map(pressure);
    all.push(pressure.filter_map(std::future::ready).boxed_local());
    let images = follow::imagegc::images(ctx).map(image);
    all.push(images.filter_map(std::future::ready).boxed_local());
    let in_use = follow::volume::in_use(ctx).map(|value| match value {
        Value::Current(response) => Some(NodeInput::VolumesInUse(response.names)),
        Value::Stale(_) => None,
    });
    all.push(in_use.filter_map(std::future::ready).boxed_local());
    let devices = follow::device::resources(ctx).map(devices);
    all.push(devices.filter_map(std::future::ready).boxed_local());
    let node = follow::podconfig::node(ctx).map(|value| match value {
        Value::Current(response) => match response.state? {
            State::Manifest(manifest) => node(&manifest),
            State::Absent(_) => Some(NodeInput::Node(None)),
        },
        Value::Stale(_) => None,
    });
    all.push(node.filter_map(std::future::ready).boxed_local());
    all
}

fn node(manifest: &[u8]) -> Option<NodeInput> {
    match serde_json::from_slice(manifest) {
        Ok(node) => Some(NodeInput::Node(Some(node))),
        Err(error) => {
            tracing::warn!(%error, "invalid Node from API server; ignored");
            None
        }
    }
}

fn runtime(value: Value<WatchRuntimeResponse>) -> NodeInput {
    let Value::Current(runtime) = value else {
        return NodeInput::RuntimeStale;
    };
    let handlers = runtime
        .handlers
        .into_iter()
        .map(|handler| NodeRuntimeHandler {
            name: Some(handler.name),
            features: Some(NodeRuntimeHandlerFeatures {
                recursive_read_only_mounts: Some(handler.recursive_read_only_mounts),
                user_namespaces: Some(handler.user_namespaces),
            }),
        });
    let mut handlers: Vec<_> = handlers.collect();
    handlers.sort_by(|a, b| a.name.cmp(&b.name));
    let version = match (
        runtime.runtime_name.as_str(),
        runtime.runtime_version.as_str(),
    ) {
        ("", _) => String::new(),
        (name, version) => format!("{name}://{version}"),
    };
    NodeInput::Runtime(Box::new(NodeRuntimeStatus {
        not_ready: (!runtime.ready).then_some(runtime.reason),
        network_not_ready: (!runtime.network_ready).then_some(runtime.network_reason),
        version,
        handlers,
        supplemental_groups_policy: runtime.supplemental_groups_policy,
    }))
}

fn pressure(update: Update<PressureItemKey, eviction::v1::Pressure>) -> Option<NodeInput> {
    use eviction::v1::pressure::Fact;
    let Update::Upsert(_, pressure) = update else {
        return None;
    };
    let Some(Fact::Condition(condition)) = pressure.fact else {
        return None;
    };
    let resource = match condition.resource() {
        eviction::v1::Resource::Memory => PressureResource::Memory,
        eviction::v1::Resource::Disk => PressureResource::Disk,
        eviction::v1::Resource::Pids => PressureResource::Pids,
        eviction::v1::Resource::Unspecified => return None,
    };
    let (active, reason) = (condition.under_pressure, condition.reason);
    let condition = PressureCondition { active, reason };
    Some(NodeInput::Pressure(resource, condition))
}

fn image(update: Update<String, imagegc::v1::Image>) -> Option<NodeInput> {
    match update {
        Update::Upsert(id, image) => {
            let (names, bytes) = (image.names, image.size_bytes);
            Some(NodeInput::Image(id, Some(NodeImage { names, bytes })))
        }
        Update::Remove(id) => Some(NodeInput::Image(id, None)),
        Update::Synced => Some(NodeInput::ImagesSynced),
        Update::Stale(_) => None,
    }
}

/// A resource that is no longer served is gone for good. The last known ones stay while device-manager is
/// unavailable.
fn devices(update: Update<String, device::v1::DeviceResource>) -> Option<NodeInput> {
    let number = |devices: u64| i64::try_from(devices).unwrap_or(i64::MAX);
    match update {
        Update::Upsert(name, resource) => {
            let devices = NodeDevices {
                capacity: number(resource.capacity),
                allocatable: number(resource.allocatable),
            };
            Some(NodeInput::Devices(name, devices))
        }
        Update::Remove(name) => Some(NodeInput::Devices(name, NodeDevices::default())),
        Update::Synced => Some(NodeInput::DevicesSynced),
        Update::Stale(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_of_the_wire() {
        let name = || "example.com/x".to_owned();
        let served = |capacity, allocatable| {
            let resource = device::v1::DeviceResource {
                name: name(),
                capacity,
                allocatable,
            };
            Update::Upsert(name(), resource)
        };
        for (update, expected) in [
            (served(3, 2), Some((3, 2))),
            (served(0, 0), Some((0, 0))),
            (served(u64::MAX, 1), Some((i64::MAX, 1))),
            (Update::Remove(name()), Some((0, 0))),
            (Update::Synced, None),
        ] {
            let case = format!("{update:?}");
            let found = match devices(update) {
                Some(NodeInput::Devices(resource, devices)) => {
                    assert_eq!(resource, name());
                    Some((devices.capacity, devices.allocatable))
                }
                Some(NodeInput::DevicesSynced) => None,
                _ => panic!("{case}"),
            };
            assert_eq!(found, expected, "{case}");
        }
        assert!(devices(Update::Stale("unavailable".to_owned())).is_none());
    }
}
