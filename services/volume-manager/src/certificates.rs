//! Follows the certificates that pods hold at pod-config.

use std::rc::Rc;

use futures::StreamExt;
use polylet_kit::{Ctx, Peer};
use polylet_watch::{Value, follow_value};
use polylet_wire::common::v1::PodRef;
use polylet_wire::podconfig::v1::object_service_client::ObjectServiceClient;
use polylet_wire::podconfig::v1::watch_pod_certificate_response::State;
use polylet_wire::podconfig::v1::{WatchPodCertificateRequest, WatchPodCertificateResponse};
use tokio::sync::mpsc;

use crate::core::certificates::{CertificateKey, Issued, Told};
use crate::run::Input;
use crate::watches::Watch;

/// Follows certificates at pod-config.
pub fn from_peer(ctx: &Ctx, peer: Peer, inputs: mpsc::Sender<Input>) -> Watch<CertificateKey> {
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
    let request = request(&key);
    let channel = peer.channel();
    let mut values = follow_value(peer, move || {
        let mut client = ObjectServiceClient::new(channel.clone());
        let request = request.clone();
        async move { client.watch_pod_certificate(request).await }
    });
    while let Some(value) = values.next().await {
        // What was heard last stands while the stream is lost.
        let Value::Current(value) = value else {
            continue;
        };
        let told = told(value);
        if inputs
            .send(Input::Certificate(key.clone(), told))
            .await
            .is_err()
        {
            return;
        }
    }
}

fn request(key: &CertificateKey) -> WatchPodCertificateRequest {
    WatchPodCertificateRequest {
        pod: Some(PodRef {
            uid: key.uid.clone(),
            namespace: key.namespace.clone(),
            name: key.pod.clone(),
        }),
        service_account: key.service_account.clone(),
        volume: key.volume.clone(),
        source_index: key.index,
        signer_name: key.signer.clone(),
        key_type: key.key_type.clone(),
        max_expiration_seconds: key.max_expiration_seconds,
        user_annotations: key.annotations.clone().into_iter().collect(),
    }
}

fn told(value: WatchPodCertificateResponse) -> Told {
    match value.state {
        Some(State::Certificate(it)) => {
            Told::Issued(Issued::new(it.private_key, &it.certificate_chain))
        }
        Some(State::Refused(refused)) => Told::Refused(refused.message),
        Some(State::Unknown(unknown)) => Told::Unknown(unknown.message),
        None => Told::Unknown(String::new()),
    }
}
