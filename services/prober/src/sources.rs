//! The streams that the prober follows.

use futures::StreamExt;
use futures::stream::{LocalBoxStream, SelectAll};
use polylet_kit::{Ctx, follow};

use crate::input::Input;

/// All streams, merged into inputs.
pub(crate) fn all(ctx: &Ctx) -> SelectAll<LocalBoxStream<'static, Input>> {
    let mut all = SelectAll::new();
    let states = follow::pleg::pod_states(ctx).map(Input::PodState);
    all.push(states.boxed_local());
    for source in follow::podconfig::SOURCES {
        let pods = follow::podconfig::pods(ctx, source);
        all.push(
            pods.map(move |update| Input::Pod(source, update))
                .boxed_local(),
        );
    }
    all
}
