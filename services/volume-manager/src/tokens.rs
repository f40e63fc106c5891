//! Has tokens issued by pod-config, and again before each ends.

use std::rc::Rc;
use std::time::Duration;

use jiff::Timestamp;
use polylet_kit::{Ctx, Peer};
use polylet_wire::common::v1::PodRef;
use polylet_wire::podconfig::v1::object_service_client::ObjectServiceClient;
use polylet_wire::podconfig::v1::{IssueTokenRequest, IssueTokenResponse};
use polylet_wire::time::from_wire_opt;
use tokio::sync::mpsc;

use crate::core::tokens::{Issued, TokenKey};
use crate::run::Input;
use crate::watches::Watch;

/// How long one may take to come.
const DEADLINE: Duration = Duration::from_secs(30);
/// After a failure; doubled up to the longest.
const FIRST_WAIT: Duration = Duration::from_millis(500);
const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// However short a token lives: not more often than this.
const SHORTEST_LIFE: Duration = Duration::from_secs(1);

/// Has tokens issued by pod-config.
pub fn from_peer(ctx: &Ctx, peer: Peer, inputs: mpsc::Sender<Input>) -> Watch<TokenKey> {
    let ctx = ctx.clone();
    Rc::new(move |key, token| {
        let (peer, inputs, drain) = (peer.clone(), inputs.clone(), ctx.drain());
        ctx.background("token", async move {
            tokio::select! {
                () = token.cancelled() => {}
                () = drain.cancelled() => {}
                () = keep(key, peer, inputs) => {}
            }
        });
    })
}

async fn keep(key: TokenKey, peer: Peer, inputs: mpsc::Sender<Input>) {
    let mut client = ObjectServiceClient::new(peer.channel());
    let mut wait = FIRST_WAIT;
    loop {
        let mut request = tonic::Request::new(request(&key));
        request.set_timeout(DEADLINE);
        let answer = tokio::time::timeout(DEADLINE, client.issue_token(request)).await;
        let (answer, pause) = match answer {
            Ok(Ok(answer)) => {
                wait = FIRST_WAIT;
                issued(answer.into_inner(), Timestamp::now())
            }
            Ok(Err(status)) => (Err(status.message().to_owned()), wait),
            Err(_) => (Err("no answer in time".to_owned()), wait),
        };
        if let Err(why) = &answer {
            tracing::debug!(pod = key.pod, namespace = key.namespace, why, "no token");
            wait = wait.saturating_mul(2).min(LONGEST_WAIT);
        }
        if inputs
            .send(Input::Token(key.clone(), answer))
            .await
            .is_err()
        {
            return;
        }
        tokio::time::sleep(pause).await;
    }
}

fn request(key: &TokenKey) -> IssueTokenRequest {
    let audiences = (!key.audience.is_empty()).then(|| key.audience.clone());
    IssueTokenRequest {
        pod: Some(PodRef {
            uid: key.uid.clone(),
            namespace: key.namespace.clone(),
            name: key.pod.clone(),
        }),
        service_account: key.service_account.clone(),
        audiences: audiences.into_iter().collect(),
        expiration_seconds: key.expiration_seconds,
    }
}

/// A token, and how long it is good enough.
fn issued(answer: IssueTokenResponse, now: Timestamp) -> (Result<Issued, String>, Duration) {
    let expires_at = from_wire_opt(answer.expires_at.as_ref()).unwrap_or(now);
    let refresh_at = from_wire_opt(answer.refresh_at.as_ref()).unwrap_or(expires_at);
    let pause = Duration::try_from(refresh_at.duration_since(now)).unwrap_or_default();
    let token = answer.token.into_bytes().into();
    (Ok(Issued { token, expires_at }), pause.max(SHORTEST_LIFE))
}
