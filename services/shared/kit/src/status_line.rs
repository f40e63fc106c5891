//! The state of the process in one line, for `systemctl status`: what it works on, whether its peers are
//! in sync, and what impairs it.

use std::fmt::Write;
use std::time::Duration;

use polylet_watch::until_pulse;
use polylet_wire::lifecycle::v1::{HealthCondition, Peer};

use crate::ctx::Ctx;
use crate::service::Activity;
use crate::{memory, notify, status_change};

/// The least time between two lines, in which changes are collected.
const INTERVAL: Duration = Duration::from_secs(1);
/// The longest line, in characters.
const MAX_LINE: usize = 300;

/// Publishes the line when it changes; returns at once without a service manager.
pub(crate) async fn publish(ctx: Ctx, activity: Option<Activity>) {
    if !notify::has_manager() {
        return;
    }
    let mut published = String::new();
    // What the process begins with is listed after it.
    tokio::time::sleep(INTERVAL).await;
    loop {
        let activity = activity.as_ref().map(|describe| describe());
        let peers = ctx.inner().peers.to_wire();
        let conditions = ctx.conditions().to_wire();
        let line = compose(&activity.unwrap_or_default(), &peers, &conditions);
        if line != published {
            notify::status(&line);
            published = line;
        }
        // A service without spans has no end of a burst at which it is trimmed.
        memory::trim_stack();
        // Of the activity there are no notifications: it is looked at with each pulse.
        let changed = tokio::time::timeout(until_pulse(), status_change::notified()).await;
        if changed.is_ok() {
            tokio::time::sleep(INTERVAL).await;
        }
    }
}

fn compose(activity: &str, peers: &[Peer], conditions: &[HealthCondition]) -> String {
    let mut line = match activity {
        "" => "Serving".to_owned(),
        activity => activity.to_owned(),
    };
    let behind = peers.iter().filter(|peer| !peer.synced);
    let behind: Vec<&str> = behind.map(|peer| peer.service.as_str()).collect();
    // Writing into a String cannot fail.
    let _ = match (peers.len(), behind.as_slice()) {
        (0, _) => Ok(()),
        (1, []) => write!(line, ", 1 peer in sync"),
        (all, []) => write!(line, ", {all} peers in sync"),
        (_, behind) => write!(line, ", not in sync with {}", behind.join(", ")),
    };
    if let Some(first) = conditions.first() {
        let _ = write!(line, "; {}", first.reason);
        if !first.object.is_empty() {
            let _ = write!(line, " {}", first.object);
        }
        let _ = write!(line, ": {}", first.message);
        if conditions.len() > 1 {
            let _ = write!(line, " (and {} more)", conditions.len() - 1);
        }
    }
    match line.char_indices().nth(MAX_LINE) {
        Some((end, _)) => line.split_at(end).0.to_owned() + "…",
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(service: &str, synced: bool) -> Peer {
        Peer {
            service: service.to_owned(),
            synced,
            ..Peer::default()
        }
    }

    fn condition(reason: &str, object: &str) -> HealthCondition {
        HealthCondition {
            reason: reason.to_owned(),
            object: object.to_owned(),
            message: "no space".to_owned(),
            ..HealthCondition::default()
        }
    }

    #[test]
    fn line_names_work_peers_and_the_first_condition() {
        let (a, b) = (peer("pleg", true), peer("prober", false));
        let full = condition("StateNotWritten", "/a");
        for (activity, peers, conditions, line) in [
            ("", vec![], vec![], "Serving"),
            (
                "12 pods",
                vec![a.clone()],
                vec![],
                "12 pods, 1 peer in sync",
            ),
            (
                "12 pods",
                vec![a.clone(), a.clone()],
                vec![],
                "12 pods, 2 peers in sync",
            ),
            (
                "12 pods",
                vec![a, b],
                vec![full.clone(), condition("X", "")],
                "12 pods, not in sync with prober; StateNotWritten /a: no space (and 1 more)",
            ),
            ("", vec![], vec![condition("X", "")], "Serving; X: no space"),
        ] {
            assert_eq!(compose(activity, &peers, &conditions), line);
        }
    }

    #[test]
    fn line_is_bounded() {
        let mut long = condition("X", "");
        long.message = "ä".repeat(9000);
        assert_eq!(compose("", &[], &[long]).chars().count(), MAX_LINE + 1);
    }
}
