//! The streams that are followed.

use futures::StreamExt;
use futures::stream::{LocalBoxStream, SelectAll};
use polylet_kit::{Ctx, follow};
use polylet_wire::podconfig::v1::PodSource;

use crate::core::facts::Source;
use crate::desk::Input;

/// Every stream, as inputs of the task; those of the cluster only for a node of one.
pub(crate) fn all(ctx: &Ctx, of_cluster: bool) -> SelectAll<LocalBoxStream<'static, Input>> {
    let mut all = SelectAll::new();
    if of_cluster {
        let mirrors = follow::podconfig::mirrors(ctx);
        all.push(mirrors.map(Input::Mirror).boxed_local());
        let node = follow::podconfig::node(ctx);
        all.push(node.map(Input::Node).boxed_local());
    }
    for source in Source::ALL {
        let pods = follow::podconfig::pods_with_status(ctx, wire(source));
        all.push(
            pods.map(move |update| Input::Pod(wire(source), update))
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
            .map(Input::State)
            .boxed_local(),
    );
    all.push(follow::pleg::runtime(ctx).map(Input::Runtime).boxed_local());
    all.push(
        follow::prober::verdicts(ctx)
            .map(Input::Verdict)
            .boxed_local(),
    );
    all
}

fn wire(source: Source) -> PodSource {
    match source {
        Source::File => PodSource::File,
        Source::Http => PodSource::Http,
        Source::Api => PodSource::Api,
    }
}
