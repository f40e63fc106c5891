//! The streams that eviction follows.

use futures::StreamExt;
use futures::stream::BoxStream;
use polylet_kit::{Ctx, follow};

use crate::input::Input;
use crate::manifest::FIELDS;

/// All streams, as inputs.
pub(crate) fn all(ctx: &Ctx) -> Vec<BoxStream<'static, Input>> {
    let pods = |source| {
        follow::podconfig::pods_masked(ctx, source, &FIELDS)
            .map(Input::Pod)
            .boxed()
    };
    let states = follow::pleg::pod_states(ctx).map(Input::PodState).boxed();
    let pods = follow::podconfig::SOURCES.into_iter().map(pods);
    pods.chain([states]).collect()
}
