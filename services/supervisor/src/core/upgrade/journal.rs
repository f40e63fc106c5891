//! The journal of the upgrade that is under way, and the records of those that ended.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Whether programs are replaced by new ones or by those before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum UpgradeKind {
    /// By new ones.
    Upgrade,
    /// By those before.
    Rollback,
}

/// The replacement of one service's program by another installed version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProgramSwap {
    /// The service.
    pub service: String,
    /// Name of the present version.
    pub from: String,
    /// Name of the new version.
    pub to: String,
    /// The present program cannot read what the new one writes: it is not brought back once that has run.
    pub one_way: bool,
}

/// A caller and its callee.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallEdge {
    /// The service that calls.
    pub caller: String,
    /// The service that is called.
    pub callee: String,
}

/// How far a swap is. A stage is written before its first effect, and every effect may be repeated.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum SwapStage {
    /// The present process is drained. From here on it has to be restarted, whatever happens.
    Drain,
    /// The link is changed to the target version.
    Activate,
    /// The process is replaced. `process` identifies the one from before; any other was started from the
    /// link of the target version.
    #[serde(rename_all = "camelCase")]
    Restart {
        /// `None` if none was running.
        process: Option<String>,
    },
    /// The new process has to become healthy and in step with its peers.
    Verify,
}

/// An upgrade or rollback of one or several services, under way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UpgradeJournal {
    /// Number of the run.
    pub run: u64,
    /// Upgrade or rollback.
    pub kind: UpgradeKind,
    /// How long a new process may take to be in step, in milliseconds.
    pub timeout_ms: u64,
    /// The swap under way.
    pub swap: ProgramSwap,
    /// Start of the swap under way.
    pub started_at: Timestamp,
    /// How far it is.
    pub stage: SwapStage,
    /// Why the version before is brought back; `None` on the way to the new one.
    pub back: Option<String>,
    /// Why the swap fails, before the end of a service that may be drained: it is restarted with the program that
    /// its link names, and then the swap has failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub given_up: Option<String>,
    /// Calls that were not in step at the start, which are not waited for.
    pub excused: Vec<CallEdge>,
    /// Swaps to do after this one.
    pub queue: Vec<ProgramSwap>,
    /// The supervisor was restarted meanwhile.
    pub resumed: bool,
}

impl UpgradeJournal {
    /// The version that the link has to name.
    pub fn target(&self) -> &str {
        match self.back {
            None => &self.swap.to,
            Some(_) => &self.swap.from,
        }
    }

    /// The record of the swap under way, which ended.
    pub fn record(&self, outcome: UpgradeOutcome, now: Timestamp) -> UpgradeRecord {
        UpgradeRecord {
            run: self.run,
            kind: self.kind,
            service: self.swap.service.clone(),
            from: self.swap.from.clone(),
            to: self.swap.to.clone(),
            started_at: self.started_at,
            finished_at: now,
            outcome,
            resumed: self.resumed,
            starts: None,
        }
    }
}

/// How a swap ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum UpgradeOutcome {
    /// The new version runs and is in step.
    Done,
    /// The version before runs again.
    RolledBack {
        /// Why the new version was given up.
        cause: String,
    },
    /// Neither is in step.
    Failed {
        /// What is wrong with each.
        cause: String,
    },
}

/// A swap that ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UpgradeRecord {
    /// Number of the run: one for all services of `--all`.
    pub run: u64,
    /// Upgrade or rollback.
    pub kind: UpgradeKind,
    /// The service.
    pub service: String,
    /// Version before.
    pub from: String,
    /// Version to change to.
    pub to: String,
    /// Start of the swap.
    pub started_at: Timestamp,
    /// Its end.
    pub finished_at: Timestamp,
    /// How it ended.
    pub outcome: UpgradeOutcome,
    /// The supervisor was restarted meanwhile.
    pub resumed: bool,
    /// How pods have started since, if somebody has compared that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub starts: Option<StartComparison>,
}

/// Starts of pods after an upgrade, compared with those before it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StartComparison {
    /// `slower`, `faster`, `same`, `unclear` or `too few`.
    pub verdict: String,
    /// How many starts before were compared.
    pub before: u32,
    /// How many starts after were compared.
    pub after: u32,
    /// What became slower, with its shift.
    pub slower: Vec<String>,
}

/// The version that a rollback of a service brings back: the one before the upgrade to the active version.
pub fn version_before(history: &[UpgradeRecord], service: &str, active: &str) -> Option<String> {
    let upgrade = history.iter().rev().find(|record| {
        record.service == service
            && record.kind == UpgradeKind::Upgrade
            && record.outcome == UpgradeOutcome::Done
            && record.to == active
    });
    upgrade.map(|record| record.from.clone())
}

/// How many rollbacks in a row have to remain possible.
const KEPT_ROLLBACKS: usize = 2;

/// Versions that upgrades have installed or replaced and that are not needed any more: neither by the next
/// rollbacks nor by the last swap. Others, such as those of a package, are not ours to remove.
pub fn obsolete_versions(
    history: &[UpgradeRecord],
    service: &str,
    active: &str,
    installed: &[String],
) -> Vec<String> {
    let mut needed = vec![active.to_owned()];
    for _ in 0..KEPT_ROLLBACKS {
        let before = needed.last();
        needed.extend(before.and_then(|version| version_before(history, service, version)));
    }
    let own = history.iter().filter(|record| record.service == service);
    if let Some(last) = own.clone().next_back() {
        needed.extend([last.from.clone(), last.to.clone()]);
    }
    let swapped: Vec<&String> = own.flat_map(|record| [&record.from, &record.to]).collect();
    let is_obsolete = |version: &&String| swapped.contains(version) && !needed.contains(version);
    installed.iter().filter(is_obsolete).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: UpgradeKind, service: &str, from: &str, to: &str) -> UpgradeRecord {
        UpgradeRecord {
            run: 1,
            kind,
            service: service.to_owned(),
            from: from.to_owned(),
            to: to.to_owned(),
            started_at: Timestamp::UNIX_EPOCH,
            finished_at: Timestamp::UNIX_EPOCH,
            outcome: UpgradeOutcome::Done,
            resumed: false,
            starts: None,
        }
    }

    #[test]
    fn versions_that_no_rollback_needs_are_obsolete() {
        use UpgradeKind::Upgrade;
        let swap = |from: u32| record(Upgrade, "pleg", &from.to_string(), &(from + 1).to_string());
        let installed: Vec<String> = ["1", "2", "3", "4", "packaged"].map(str::to_owned).into();
        let obsolete = |swaps: u32| {
            let mut history: Vec<UpgradeRecord> = (1..=swaps).map(swap).collect();
            history.push(record(Upgrade, "prober", "1", "2"));
            let active = (swaps + 1).to_string();
            obsolete_versions(&history, "pleg", &active, &installed)
        };
        assert_eq!(obsolete(0), [""; 0]);
        assert_eq!(obsolete(2), [""; 0]);
        assert_eq!(obsolete(3), ["1"]);
        // The one that a rollback has just left.
        let mut history: Vec<UpgradeRecord> = (1..=3).map(swap).collect();
        history.push(record(UpgradeKind::Rollback, "pleg", "4", "3"));
        assert_eq!(
            obsolete_versions(&history, "pleg", "3", &installed),
            [""; 0]
        );
    }

    #[test]
    fn a_rollback_goes_back_one_upgrade_at_a_time() {
        use UpgradeKind::{Rollback, Upgrade};
        let mut history = vec![
            record(Upgrade, "pleg", "1", "2"),
            record(Upgrade, "prober", "1", "9"),
            record(Upgrade, "pleg", "2", "3"),
        ];
        let before = |history: &[UpgradeRecord], active| version_before(history, "pleg", active);
        assert_eq!(before(&history, "3").as_deref(), Some("2"));
        history.push(record(Rollback, "pleg", "3", "2"));
        assert_eq!(before(&history, "2").as_deref(), Some("1"));
        history.push(record(Rollback, "pleg", "2", "1"));
        assert_eq!(before(&history, "1"), None);
        // A version that was changed by hand.
        assert_eq!(before(&history, "7"), None);
        let mut failed = record(Upgrade, "pleg", "1", "4");
        failed.outcome = UpgradeOutcome::RolledBack {
            cause: String::new(),
        };
        history.push(failed);
        assert_eq!(before(&history, "4"), None);
    }
}
