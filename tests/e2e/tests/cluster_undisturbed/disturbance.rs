//! What is done to the services.

use std::fmt;
use std::path::Path;

use polylet_e2e::ok;
use polylet_harness::node::SERVICES;
use polylet_harness::wait::{Poll, until};
use polylet_harness::{Node, machine};
use rustix::process::Signal;

use crate::gap::{Gap, Gaps};

/// Something that replaces processes.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Disturbance {
    Restart(&'static str),
    Kill(&'static str),
    Upgrade(&'static str),
    RollBack(&'static str),
    RestartAll,
    KillAll,
    UpgradeAll,
    RollBackAll,
}

impl Disturbance {
    /// Those of a round, each upgrade before its rollback.
    pub(crate) fn all(with_upgrades: bool) -> Vec<Self> {
        let mut all = Vec::new();
        for service in SERVICES {
            all.extend([Self::Restart(service), Self::Kill(service)]);
            if with_upgrades {
                all.extend([Self::Upgrade(service), Self::RollBack(service)]);
            }
        }
        all.extend([Self::RestartAll, Self::KillAll]);
        if with_upgrades {
            all.extend([Self::UpgradeAll, Self::RollBackAll]);
        }
        all
    }

    /// Whether it kills the process that answers the clients of the node API.
    pub(crate) fn may_break_calls(self) -> bool {
        matches!(self, Self::Kill("node-api") | Self::KillAll)
    }
}

impl fmt::Display for Disturbance {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Restart(service) => write!(to, "{service} is restarted"),
            Self::Kill(service) => write!(to, "{service} is killed"),
            Self::Upgrade(service) => write!(to, "{service} is upgraded"),
            Self::RollBack(service) => write!(to, "{service} is rolled back"),
            Self::RestartAll => write!(to, "all are restarted"),
            Self::KillAll => write!(to, "all are killed"),
            Self::UpgradeAll => write!(to, "all are upgraded"),
            Self::RollBackAll => write!(to, "all are rolled back"),
        }
    }
}

/// Does it, and waits until all services are in step again. `other` has another build of each program.
pub(crate) async fn disturb(
    node: &mut Node,
    other: &Path,
    disturbance: Disturbance,
    gaps: &mut Gaps,
) {
    match disturbance {
        Disturbance::Restart(service) => measured(node, service, Signal::TERM, gaps).await,
        Disturbance::Kill(service) => measured(node, service, Signal::KILL, gaps).await,
        Disturbance::Upgrade(service) => {
            let to = other.join(format!("polylet-{service}"));
            let to = to.display().to_string();
            command(node, &["upgrade", service, "--to", &to]).await;
        }
        Disturbance::RollBack(service) => command(node, &["rollback", service]).await,
        Disturbance::RestartAll => replace(node, &SERVICES, Signal::TERM).await,
        Disturbance::KillAll => replace(node, &SERVICES, Signal::KILL).await,
        Disturbance::UpgradeAll => {
            let to = other.display().to_string();
            command(node, &["upgrade", "--all", "--to", &to]).await;
        }
        Disturbance::RollBackAll => command(node, &["rollback", "--all"]).await,
    }
    ok(node.wait_in_step().await);
}

/// Replaces the process of one service, which is called meanwhile.
async fn measured(node: &Node, service: &'static str, signal: Signal, gaps: &mut Gaps) {
    let gap = Gap::watch(node, service);
    replace(node, &[service], signal).await;
    gaps.add(gap.end(node, signal == Signal::KILL).await);
}

/// Signals services, and waits until each serves in another process.
async fn replace(node: &Node, services: &[&str], signal: Signal) {
    let before = ok(node.services().await);
    let replaced: Vec<_> = before
        .iter()
        .filter(|one| services.contains(&one.name.as_str()))
        .collect();
    assert_eq!(replaced.len(), services.len(), "{before:?}");
    for service in &replaced {
        machine::signal(service.pid, signal);
    }
    let poll = || async {
        let now = match node.services().await {
            Ok(now) => now,
            Err(error) => return Poll::Pending(polylet_harness::error::report(&error)),
        };
        let is_replaced = |old: &&&polylet_harness::view::SupervisedService| {
            now.iter().any(|new| {
                new.name == old.name && new.pid != old.pid && new.pid != 0 && new.has_synced()
            })
        };
        match replaced.iter().find(|old| !is_replaced(old)) {
            None => Poll::Ready(()),
            Some(behind) => Poll::Pending(format!("{behind:?}: {now:?}")),
        }
    };
    ok(until("other processes to serve", poll).await);
}

async fn command(node: &Node, words: &[&str]) {
    let output = ok(node.cli(words).await);
    let (out, err) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(
        output.status.success(),
        "polylet {}: {out}{err}",
        words.join(" ")
    );
}
