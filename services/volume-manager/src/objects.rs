//! Watches the objects that pods refer to at pod-config.

use std::rc::Rc;

use futures::StreamExt;
use polylet_kit::{Ctx, LARGEST_MESSAGE, Peer};
use polylet_watch::{Value, follow_value};
use polylet_wire::podconfig::v1::object_service_client::ObjectServiceClient;
use polylet_wire::podconfig::v1::{PodSource, WatchObjectRequest};
use tokio::sync::mpsc;

use crate::convert;
use crate::core::objects::ObjectKey;
use crate::run::Input;
use crate::watches::Watch;

/// Watches objects at pod-config.
pub fn from_peer(ctx: &Ctx, peer: Peer, inputs: mpsc::Sender<Input>) -> Watch<ObjectKey> {
    let ctx = ctx.clone();
    Rc::new(move |key, token| {
        let (peer, inputs, drain) = (peer.clone(), inputs.clone(), ctx.drain());
        ctx.background("object", async move {
            tokio::select! {
                () = token.cancelled() => {}
                () = drain.cancelled() => {}
                () = follow(key, peer, inputs) => {}
            }
        });
    })
}

async fn follow(key: ObjectKey, peer: Peer, inputs: mpsc::Sender<Input>) {
    let source = match key.cluster {
        true => PodSource::Api,
        false => PodSource::Unspecified,
    };
    let request = WatchObjectRequest {
        kind: key.kind.as_str().to_owned(),
        namespace: key.namespace.clone(),
        name: key.name.clone(),
        source: source.into(),
    };
    let channel = peer.channel();
    let mut values = follow_value(peer, move || {
        let mut client =
            ObjectServiceClient::new(channel.clone()).max_decoding_message_size(LARGEST_MESSAGE);
        let request = request.clone();
        async move { client.watch_object(request).await }
    });
    while let Some(value) = values.next().await {
        // What was heard last stands while the stream is lost.
        let Value::Current(value) = value else {
            continue;
        };
        let state = convert::object(key.kind, value);
        if inputs
            .send(Input::Object(key.clone(), state))
            .await
            .is_err()
        {
            return;
        }
    }
}
