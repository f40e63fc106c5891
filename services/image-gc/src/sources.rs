//! The streams that image-gc follows.

use futures::StreamExt;
use futures::stream::BoxStream;
use polylet_kit::{Ctx, follow};

use crate::input::Input;
use crate::manifest::FIELDS;

/// All streams, as inputs.
pub(crate) fn all(ctx: &Ctx) -> Vec<BoxStream<'static, Input>> {
    let pods = follow::podconfig::SOURCES.map(|source| {
        follow::podconfig::pods_masked(ctx, source, &FIELDS)
            .map(move |update| Input::Pod(source, Box::new(update)))
            .boxed()
    });
    pods.into()
}
