//! The streams that the node's status is made of.

use futures::stream::{LocalBoxStream, SelectAll};
use futures::{FutureExt, StreamExt};
use k8s_openapi::api::core::v1::{Node, NodeRuntimeHandler, NodeRuntimeHandlerFeatures};
use polylet_kit::{Ctx, address, follow};
use polylet_watch::{PressureKeyOwned, Update, Value};
use polylet_wire::pleg::v1::WatchRuntimeResponse;
use polylet_wire::podconfig::v1::watch_node_response::State;
use polylet_wire::{eviction, imagegc};
use tokio::sync::watch;

use crate::core::node::facts::{Image, Pressure, Resource, Runtime};

/// Everything that is heard.
pub(super) enum Input {
    /// What the runtime is.
    Runtime(Box<Runtime>),
    /// Nobody says what the runtime is any longer.
    RuntimeSilent,
    /// Whether a resource is short.
    Pressure(Resource, Pressure),
    /// An image came or went.
    Image(String, Option<Image>),
    /// All images were told.
    Images,
    /// Attachable volumes that pods use, or are about to.
    VolumesInUse(Vec<String>),
    /// The object as the cluster holds it, or its absence.
    Node(Option<Box<Node>>),
    /// The node's addresses.
    Addresses(Vec<String>),
    /// The CSINode is there.
    CsiNode,
    /// Word that changes nothing.
    Nothing,
}

/// All streams as one.
pub(super) fn all(
    ctx: &Ctx,
    mut csi_node: watch::Receiver<bool>,
) -> SelectAll<LocalBoxStream<'static, Input>> {
    let mut all = SelectAll::new();
    let every = ctx.config().kubelet.node_status_update_frequency;
    let found = address::follow(ctx.config(), ctx.node_name(), every);
    let found =
        found.map(|found| Input::Addresses(found.iter().map(ToString::to_string).collect()));
    all.push(found.boxed_local());
    let made = async move {
        let there = csi_node.wait_for(|made| *made).await.is_ok();
        if there {
            Input::CsiNode
        } else {
            Input::Nothing
        }
    };
    all.push(made.into_stream().boxed_local());
    all.push(follow::pleg::runtime(ctx).map(runtime).boxed_local());
    all.push(follow::eviction::pressure(ctx).map(pressure).boxed_local());
    all.push(follow::imagegc::images(ctx).map(image).boxed_local());
    let in_use = follow::volume::in_use(ctx).map(|value| match value {
        Value::Current(answer) => Input::VolumesInUse(answer.names),
        Value::Stale(_) => Input::Nothing,
    });
    all.push(in_use.boxed_local());
    all.push(
        follow::podconfig::node(ctx)
            .map(|value| match value {
                Value::Current(answer) => match answer.state {
                    Some(State::Manifest(manifest)) => node(&manifest),
                    Some(State::Absent(_)) => Input::Node(None),
                    None => Input::Nothing,
                },
                Value::Stale(_) => Input::Nothing,
            })
            .boxed_local(),
    );
    all
}

fn node(manifest: &[u8]) -> Input {
    match serde_json::from_slice(manifest) {
        Ok(node) => Input::Node(Some(node)),
        Err(error) => {
            tracing::warn!(%error, "the Node that the cluster holds cannot be read");
            Input::Nothing
        }
    }
}

fn runtime(value: Value<WatchRuntimeResponse>) -> Input {
    let Value::Current(answer) = value else {
        return Input::RuntimeSilent;
    };
    let handlers = answer
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
        answer.runtime_name.as_str(),
        answer.runtime_version.as_str(),
    ) {
        ("", _) => String::new(),
        (name, version) => format!("{name}://{version}"),
    };
    Input::Runtime(Box::new(Runtime {
        not_ready: (!answer.ready).then_some(answer.reason),
        network_not_ready: (!answer.network_ready).then_some(answer.network_reason),
        version,
        handlers,
        supplemental_groups_policy: answer.supplemental_groups_policy,
    }))
}

fn pressure(update: Update<PressureKeyOwned, eviction::v1::Pressure>) -> Input {
    use eviction::v1::pressure::Fact;
    let Update::Upsert(_, fact) = update else {
        return Input::Nothing;
    };
    let Some(Fact::Condition(condition)) = fact.fact else {
        return Input::Nothing;
    };
    let resource = match condition.resource() {
        eviction::v1::Resource::Memory => Resource::Memory,
        eviction::v1::Resource::Disk => Resource::Disk,
        eviction::v1::Resource::Pids => Resource::Pids,
        eviction::v1::Resource::Unspecified => return Input::Nothing,
    };
    let (under, reason) = (condition.under_pressure, condition.reason);
    Input::Pressure(resource, Pressure { under, reason })
}

fn image(update: Update<String, imagegc::v1::Image>) -> Input {
    match update {
        Update::Upsert(id, image) => {
            let (names, bytes) = (image.names, image.size_bytes);
            Input::Image(id, Some(Image { names, bytes }))
        }
        Update::Remove(id) => Input::Image(id, None),
        Update::Synced => Input::Images,
        Update::Stale(_) => Input::Nothing,
    }
}
