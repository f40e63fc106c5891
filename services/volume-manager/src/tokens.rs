//! Requests service account tokens from pod-config, and refreshes each before it expires.

use std::rc::Rc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use polylet_kit::{Ctx, Peer, clock};
use polylet_schedule::Backoff;
use polylet_wire::podconfig::v1::object_service_client::ObjectServiceClient;
use tokio::sync::mpsc;

use crate::convert;
use crate::core::tokens::PodTokenKey;
use crate::input::Input;
use crate::subscriptions::Subscribe;

/// The deadline of one request.
const DEADLINE: Duration = Duration::from_secs(30);
/// Delays after failures.
const FIRST_RETRY: Duration = Duration::from_millis(500);
const MAX_RETRY: Duration = Duration::from_secs(30);
/// The shortest period of refreshes, for tokens that expire at once.
const MIN_PERIOD: SignedDuration = SignedDuration::from_secs(1);

/// Subscribes to tokens at pod-config.
pub fn subscribe(ctx: &Ctx, peer: Peer, inputs: mpsc::Sender<Input>) -> Subscribe<PodTokenKey> {
    let ctx = ctx.clone();
    Rc::new(move |key, token| {
        let (peer, inputs, drain) = (peer.clone(), inputs.clone(), ctx.drain());
        ctx.background("token", async move {
            tokio::select! {
                () = token.cancelled() => {}
                () = drain.cancelled() => {}
                () = refresh(key, peer, inputs) => {}
            }
        });
    })
}

async fn refresh(key: PodTokenKey, peer: Peer, inputs: mpsc::Sender<Input>) {
    let mut client = ObjectServiceClient::new(peer.channel());
    let mut backoff = Backoff::new(FIRST_RETRY, MAX_RETRY);
    loop {
        let mut request = tonic::Request::new(convert::token_request(&key));
        request.set_timeout(DEADLINE);
        let response = tokio::time::timeout(DEADLINE, client.issue_token(request)).await;
        let now = Timestamp::now();
        let (result, refresh_at) = match response {
            Ok(Ok(response)) => {
                backoff.reset();
                let (token, refresh_at) = convert::token(response.into_inner(), now);
                let earliest = now.checked_add(MIN_PERIOD).unwrap_or(now);
                (Ok(token), Some(refresh_at.max(earliest)))
            }
            Ok(Err(status)) => (Err(status.message().to_owned()), None),
            Err(_) => (Err("no answer in time".to_owned()), None),
        };
        let retry_in = match &result {
            Ok(_) => Duration::ZERO,
            Err(error) => {
                let retry_in = backoff.next_delay();
                let pod = format_args!("{}/{}", key.namespace, key.pod);
                tracing::debug!(%pod, error, ?retry_in, "token request failed; retrying");
                retry_in
            }
        };
        if inputs
            .send(Input::Token(key.clone(), result))
            .await
            .is_err()
        {
            return;
        }
        match refresh_at {
            Some(at) => clock::sleep_until(at).await,
            None => tokio::time::sleep(retry_in).await,
        }
    }
}
