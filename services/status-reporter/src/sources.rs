//! The streams that the event loop follows.

use futures::StreamExt;
use futures::stream::{LocalBoxStream, SelectAll};
use polylet_kit::{Ctx, follow};
use polylet_wire::podconfig::v1::PodSource;

use crate::input::Input;

/// All streams as inputs; those of the API server only on a node of a cluster, and the devices of pods
/// only if statuses have them.
pub(crate) fn all(
    ctx: &Ctx,
    in_cluster: bool,
    device_health: bool,
) -> SelectAll<LocalBoxStream<'static, Input>> {
    let mut all = SelectAll::new();
    if in_cluster {
        let mirrors = follow::podconfig::mirrors(ctx);
        all.push(mirrors.map(Input::Mirror).boxed_local());
        let node = follow::podconfig::node(ctx);
        all.push(node.map(Input::Node).boxed_local());
    }
    for source in [PodSource::File, PodSource::Http, PodSource::Api] {
        let pods = follow::podconfig::pods_with_status(ctx, source);
        all.push(
            pods.map(move |update| Input::Pod(source, update))
                .boxed_local(),
        );
    }
    all.push(
        follow::sync::pod_sync(ctx)
            .map(Box::new)
            .map(Input::Sync)
            .boxed_local(),
    );
    all.push(
        follow::pleg::pod_states(ctx)
            .map(Input::RuntimeState)
            .boxed_local(),
    );
    all.push(follow::pleg::runtime(ctx).map(Input::Runtime).boxed_local());
    all.push(
        follow::prober::probe_statuses(ctx)
            .map(Input::Probe)
            .boxed_local(),
    );
    if device_health {
        let devices = follow::device::pod_devices(ctx);
        all.push(devices.map(Input::PodDevices).boxed_local());
    }
    all
}
