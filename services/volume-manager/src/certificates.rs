//! Follows pod certificates at pod-config.

use std::rc::Rc;

use futures::StreamExt;
use polylet_kit::{Ctx, Peer};
use polylet_watch::{Value, follow_value};
use polylet_wire::podconfig::v1::object_service_client::ObjectServiceClient;
use tokio::sync::mpsc;

use crate::convert;
use crate::core::certificates::CertificateKey;
use crate::input::Input;
use crate::subscriptions::Subscribe;

/// Subscribes to certificates at pod-config.
pub fn subscribe(ctx: &Ctx, peer: Peer, inputs: mpsc::Sender<Input>) -> Subscribe<CertificateKey> {
    let ctx = ctx.clone();
    Rc::new(move |key, token| {
        let (peer, inputs, drain) = (peer.clone(), inputs.clone(), ctx.drain());
        ctx.background("certificate", async move {
            tokio::select! {
                () = token.cancelled() => {}
                () = drain.cancelled() => {}
                () = follow(key, peer, inputs) => {}
            }
        });
    })
}

async fn follow(key: CertificateKey, peer: Peer, inputs: mpsc::Sender<Input>) {
    let request = convert::certificate_request(&key);
    let channel = peer.channel();
    let mut values = follow_value(peer, move || {
        let mut client = ObjectServiceClient::new(channel.clone());
        let request = request.clone();
        async move { client.watch_pod_certificate(request).await }
    });
    while let Some(value) = values.next().await {
        // The last state stays in force while the stream is lost.
        let Value::Current(response) = value else {
            continue;
        };
        let input = Input::Certificate(key.clone(), convert::certificate(response));
        if inputs.send(input).await.is_err() {
            return;
        }
    }
}
