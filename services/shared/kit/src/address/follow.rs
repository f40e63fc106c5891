//! Changes of the node's addresses.

use std::net::IpAddr;
use std::time::Duration;

use futures::{Stream, stream};
use tokio::time::{sleep, timeout};

use super::by_name;
use super::netlink::AddressChanges;
use crate::Config;

/// An address and its routes appear one after the other.
const SETTLE_DELAY: Duration = Duration::from_millis(250);

/// While the resolver says the same, the time between two polls grows to this many of upstream's.
const MAX_GROWTH: u32 = 6;

/// The addresses that the node reports, the primary one first: the present ones, and each change of
/// them. The kernel reports changes of addresses and routes; the resolver is polled each `every`, as
/// upstream polls all sources, and less often once it says the same again and again. When none is left,
/// the last ones stay.
pub fn follow(
    config: &Config,
    name: &str,
    every: Duration,
) -> impl Stream<Item = Vec<IpAddr>> + use<> {
    let given = config.polylet.node_ip;
    let is_fixed = given.is_some_and(|ip| !ip.is_unspecified()) || name.parse::<IpAddr>().is_ok();
    let tracker = AddressTracker {
        given,
        second: config.polylet.secondary_node_ip,
        name: name.to_owned(),
        every,
        polled: every,
        is_fixed,
        changes: None,
        current: None,
    };
    stream::unfold(tracker, |mut tracker| async move {
        let found = tracker.next().await;
        Some((found, tracker))
    })
}

struct AddressTracker {
    given: Option<IpAddr>,
    second: Option<IpAddr>,
    name: String,
    every: Duration,
    /// The present time between two polls.
    polled: Duration,
    /// Configured, or the node's name: they do not change.
    is_fixed: bool,
    changes: Option<AddressChanges>,
    current: Option<Vec<IpAddr>>,
}

impl AddressTracker {
    async fn next(&mut self) -> Vec<IpAddr> {
        // Before the first lookup, so that no change after it is missed.
        if !self.is_fixed && self.current.is_none() {
            self.changes = AddressChanges::open()
                .inspect_err(|error| tracing::warn!(%error, "failed to subscribe to address changes; polling addresses"))
                .ok();
        }
        loop {
            if self.current.is_some() {
                self.changed().await;
            }
            let found = by_name(self.given, self.second, &self.name).await;
            let is_new = match &self.current {
                Some(current) => !found.is_empty() && *current != found,
                None => true,
            };
            if is_new {
                self.polled = self.every;
                self.current = Some(found.clone());
                return found;
            }
        }
    }

    /// Waits until the addresses may have changed.
    async fn changed(&mut self) {
        if self.is_fixed {
            return std::future::pending().await;
        }
        let Some(changes) = &self.changes else {
            return sleep(self.every).await;
        };
        match timeout(self.polled, changes.next()).await {
            Ok(Ok(())) => {
                self.polled = self.every;
                sleep(SETTLE_DELAY).await;
            }
            Ok(Err(error)) => {
                tracing::warn!(%error, "subscription to address changes failed; polling addresses");
                self.changes = None;
            }
            Err(_) => self.polled = longer(self.polled, self.every),
        }
    }
}

/// The time until the poll after one that has brought nothing new.
fn longer(polled: Duration, every: Duration) -> Duration {
    let max = every.saturating_mul(MAX_GROWTH);
    polled.saturating_mul(2).min(max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn polls_without_news_become_rare() {
        let every = Duration::from_secs(10);
        let polls = std::iter::successors(Some(every), |polled| Some(longer(*polled, every)));
        let seconds: Vec<u64> = polls.take(5).map(|polled| polled.as_secs()).collect();
        assert_eq!(seconds, [10, 20, 40, 60, 60]);
    }
}
