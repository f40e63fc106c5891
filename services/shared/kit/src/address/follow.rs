//! The node's addresses as they change.

use std::net::IpAddr;
use std::time::Duration;

use futures::{Stream, stream};
use tokio::time::{sleep, timeout};

use super::by_name;
use super::news::News;
use crate::Config;

/// An address and its routes come one after the other.
const SETTLES: Duration = Duration::from_millis(250);

/// The addresses that the node tells, the primary one first, now and whenever they are others. The kernel tells of
/// addresses and routes. Of the resolver nobody tells: it is asked each `every`, which upstream does
/// with everything. When there is none any more, the last ones stand.
pub fn follow(
    config: &Config,
    name: &str,
    every: Duration,
) -> impl Stream<Item = Vec<IpAddr>> + use<> {
    let given = config.polylet.node_ip;
    let is_fixed = given.is_some_and(|ip| !ip.is_unspecified()) || name.parse::<IpAddr>().is_ok();
    let follows = Follows {
        given,
        second: config.polylet.secondary_node_ip,
        name: name.to_owned(),
        every,
        is_fixed,
        news: None,
        told: None,
    };
    stream::unfold(follows, |mut follows| async move {
        let found = follows.next().await;
        Some((found, follows))
    })
}

struct Follows {
    given: Option<IpAddr>,
    second: Option<IpAddr>,
    name: String,
    every: Duration,
    /// They were given: nothing changes them.
    is_fixed: bool,
    news: Option<News>,
    told: Option<Vec<IpAddr>>,
}

impl Follows {
    async fn next(&mut self) -> Vec<IpAddr> {
        // Before the first look, so that nothing is missed after it.
        if !self.is_fixed && self.told.is_none() {
            self.news = News::open()
                .inspect_err(|error| tracing::warn!(%error, "changes of addresses are not heard"))
                .ok();
        }
        loop {
            if self.told.is_some() {
                self.change().await;
            }
            let found = by_name(self.given, self.second, &self.name).await;
            let is_new = match &self.told {
                Some(told) => !found.is_empty() && *told != found,
                None => true,
            };
            if is_new {
                self.told = Some(found.clone());
                return found;
            }
        }
    }

    /// Returns when it is time to look again.
    async fn change(&mut self) {
        if self.is_fixed {
            return std::future::pending().await;
        }
        let Some(news) = &self.news else {
            return sleep(self.every).await;
        };
        match timeout(self.every, news.next()).await {
            Ok(Ok(())) => sleep(SETTLES).await,
            Ok(Err(error)) => {
                tracing::warn!(%error, "changes of addresses are heard no longer");
                self.news = None;
            }
            Err(_) => {}
        }
    }
}
