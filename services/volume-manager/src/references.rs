//! Follows the objects that pods refer to at pod-config.

use std::rc::Rc;

use futures::StreamExt;
use polylet_kit::{Ctx, MAX_MESSAGE_SIZE, Peer};
use polylet_watch::{Value, follow_value};
use polylet_wire::podconfig::v1::object_service_client::ObjectServiceClient;
use tokio::sync::mpsc;

use crate::convert;
use crate::core::reference_key::ReferenceKey;
use crate::input::Input;
use crate::subscriptions::Subscribe;

/// Subscribes to objects at pod-config.
pub fn subscribe(ctx: &Ctx, peer: Peer, inputs: mpsc::Sender<Input>) -> Subscribe<ReferenceKey> {
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

async fn follow(key: ReferenceKey, peer: Peer, inputs: mpsc::Sender<Input>) {
    let request = convert::object_request(&key);
    let channel = peer.channel();
    let mut values = follow_value(peer, move || {
        let mut client =
            ObjectServiceClient::new(channel.clone()).max_decoding_message_size(MAX_MESSAGE_SIZE);
        let request = request.clone();
        async move { client.watch_object(request).await }
    });
    while let Some(value) = values.next().await {
        // The last state stays in force while the stream is lost.
        let Value::Current(response) = value else {
            continue;
        };
        let state = convert::object(key.kind, response);
        if inputs
            .send(Input::Object(key.clone(), state))
            .await
            .is_err()
        {
            return;
        }
    }
}
