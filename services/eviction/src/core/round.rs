//! One round: from a sample to conditions, and to at most one act.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;

use super::message;
use super::pressure::{Condition, Pressure};
use super::rank::{Candidate, rank};
use super::signal::{Levels, Signal, Starved};
use super::threshold::{self, Threshold};

/// Settings that do not change while the process lives.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    pub(crate) thresholds: Vec<Threshold>,
    /// How long a condition stays after its last threshold was met.
    pub(crate) transition: Duration,
    /// The longest grace of a soft eviction, seconds.
    pub(crate) maximum_grace_seconds: u32,
    /// Images, logs and volumes live on one file system.
    pub(crate) one_filesystem: bool,
}

impl Rules {
    /// Hard thresholds alone, as the configuration writes them: what cannot be read holds nobody.
    pub fn hard(lines: &BTreeMap<String, String>) -> Self {
        let none = BTreeMap::new();
        let (thresholds, _) = threshold::parse(lines, &none, &BTreeMap::new(), &none);
        Rules {
            thresholds,
            one_filesystem: true,
            ..Rules::default()
        }
    }
}

/// What lasts from round to round.
#[derive(Clone, Debug, Default)]
pub(crate) struct Standing {
    pub(crate) conditions: BTreeMap<Condition, Pressure>,
    /// Since when each threshold is met.
    pub(crate) met_since: Vec<(Threshold, Timestamp)>,
}

/// What to do after a sample.
#[derive(Clone, Debug, PartialEq)]
pub enum Act {
    /// All is well, or nothing is due.
    Nothing,
    /// Sample the pods and ask image-gc for this many bytes (zero: all it can), then come again.
    Reclaim {
        /// What is short.
        signal: Signal,
        /// How much is missing.
        bytes: u64,
    },
    /// Sample the pods, then evict the first by rank.
    Evict {
        /// The threshold that was met.
        threshold: Threshold,
    },
}

/// Takes a sample in: the new standing, and the one act that follows. `reclaimed` says that image-gc
/// has just done what it could.
pub(crate) fn observe(
    rules: &Rules,
    before: &Standing,
    levels: &Levels,
    reclaimed: bool,
    now: Timestamp,
) -> (Standing, Act) {
    let earlier: Vec<Threshold> = before.met_since.iter().map(|(t, _)| t.clone()).collect();
    let met = threshold::met(&rules.thresholds, &earlier, levels);
    let met_since: Vec<(Threshold, Timestamp)> = met
        .iter()
        .map(|threshold| {
            let since = before.met_since.iter().find(|(t, _)| t == *threshold);
            ((*threshold).clone(), since.map_or(now, |(_, at)| *at))
        })
        .collect();
    let conditions = Condition::ALL
        .into_iter()
        .map(|condition| {
            let is_met = met
                .iter()
                .any(|t| Condition::from(t.signal.starved()) == condition);
            let old = before.conditions.get(&condition).copied();
            let old = old.unwrap_or_else(|| Pressure::none(now));
            (condition, old.next(is_met, now, rules.transition))
        })
        .collect();
    let act = choose(rules, &met_since, levels, reclaimed, now);
    let standing = Standing {
        conditions,
        met_since,
    };
    (standing, act)
}

/// Takes one threshold: memory first, then those that images can help, then the rest.
fn choose(
    rules: &Rules,
    met_since: &[(Threshold, Timestamp)],
    levels: &Levels,
    reclaimed: bool,
    now: Timestamp,
) -> Act {
    let due = met_since.iter().filter(|(threshold, since)| {
        let held = Duration::try_from(now.duration_since(*since)).unwrap_or(Duration::ZERO);
        threshold.grace.is_none_or(|grace| held >= grace)
    });
    let order = |signal: Signal| match signal.starved() {
        Starved::Memory => 0,
        Starved::Disk | Starved::Inodes => 1,
        Starved::Pids => 2,
    };
    // A hard threshold acts before a soft one of the same kind.
    let first = due.min_by_key(|(t, _)| (order(t.signal), t.signal, t.grace.is_some()));
    let Some((threshold, _)) = first else {
        return Act::Nothing;
    };
    if threshold.signal.reclaimable(rules.one_filesystem) && !reclaimed {
        return Act::Reclaim {
            signal: threshold.signal,
            bytes: missing_bytes(threshold, levels),
        };
    }
    Act::Evict {
        threshold: threshold.clone(),
    }
}

/// How much is missing to the threshold and its minimum reclaim; inodes cannot be told in bytes.
fn missing_bytes(threshold: &Threshold, levels: &Levels) -> u64 {
    let Some(level) = levels.get(&threshold.signal) else {
        return 0;
    };
    if !threshold.signal.is_bytes() {
        return 0;
    }
    let extra = threshold
        .minimum_reclaim
        .as_ref()
        .map_or(0, |amount| amount.of(level.capacity));
    let bound = threshold.amount.of(level.capacity).saturating_add(extra);
    bound.saturating_sub(level.available)
}

/// The order for one pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(crate) uid: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) starved: Starved,
    pub(crate) grace_seconds: u32,
    pub(crate) message: String,
    /// Whether the node's shortage is the cause, and not the pod's own limit.
    pub(crate) disruption_target: bool,
}

/// The pod to evict for this threshold, if there is one that may go.
///
/// Grace: 1 s for a hard threshold, else the smaller of the configured maximum and the pod's own,
/// never below 1 s.
pub(crate) fn evict(
    rules: &Rules,
    threshold: &Threshold,
    levels: &Levels,
    pods: &[Candidate],
) -> Option<Verdict> {
    let first = *rank(pods, threshold.signal, rules.one_filesystem).first()?;
    let grace_seconds = match threshold.grace {
        None => 1,
        Some(_) => rules
            .maximum_grace_seconds
            .min(first.termination_grace_seconds)
            .max(1),
    };
    Some(Verdict {
        uid: first.uid.clone(),
        namespace: first.namespace.clone(),
        name: first.name.clone(),
        starved: threshold.signal.starved(),
        grace_seconds,
        message: message::evicted(threshold, levels.get(&threshold.signal).copied(), first),
        disruption_target: true,
    })
}
