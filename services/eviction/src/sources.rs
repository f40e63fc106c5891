//! What eviction follows.

use futures::StreamExt;
use futures::stream::BoxStream;
use polylet_kit::{Ctx, follow};

use crate::run::Input;

/// Every stream, as inputs of the task.
pub(crate) fn all(ctx: &Ctx) -> Vec<BoxStream<'static, Input>> {
    let pods = |source| follow::podconfig::pods(ctx, source).map(Input::Pod).boxed();
    let states = follow::pleg::pod_states(ctx).map(Input::State).boxed();
    let pods = follow::podconfig::SOURCES.into_iter().map(pods);
    pods.chain([states]).collect()
}
