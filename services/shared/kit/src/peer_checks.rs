//! Checks of the peers that are called now and then only: whether such a peer fits is to be seen before it
//! is needed. A peer whose streams are followed is checked by these.

use std::time::Duration;

use polylet_schedule::Backoff;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

use crate::Ctx;
use crate::peers::Peer;

/// When all streams are opened: services follow them from their start.
const OPENED: Duration = Duration::from_secs(5);
/// Delays before a broken connection is opened again.
const FIRST_DELAY: Duration = Duration::from_secs(1);
const LONGEST_DELAY: Duration = Duration::from_secs(30);

/// Checks these peers at each start of theirs, until it is dropped.
pub(crate) async fn run(ctx: Ctx) {
    tokio::time::sleep(OPENED).await;
    let called = ctx.inner().peers.only_called();
    futures::future::join_all(called.iter().map(keep_checked)).await;
}

/// Keeps a connection to a peer: the channel checks the peer at each one, and sets the health condition.
async fn keep_checked(peer: &Peer) {
    let mut health = HealthClient::new(peer.unwatched_channel());
    let mut backoff = Backoff::new(FIRST_DELAY, LONGEST_DELAY);
    loop {
        if let Ok(response) = health.watch(HealthCheckRequest::default()).await {
            backoff.reset();
            let mut changes = response.into_inner();
            // Only its end matters: the peer has ended.
            while let Ok(Some(_)) = changes.message().await {}
        }
        tokio::time::sleep(backoff.next_delay()).await;
    }
}
