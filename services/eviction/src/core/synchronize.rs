//! One sync iteration: from observations to node conditions, and to at most one action.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;

use super::message;
use super::pressure::{ConditionState, NodeCondition};
use super::rank::{Candidate, rank};
use super::signal::{EvictionResource, Observations};
use super::threshold::{self, Threshold, ThresholdSettings};

/// The thresholds and limits of eviction.
#[derive(Clone, Debug, Default)]
pub struct EvictionConfig {
    pub(crate) thresholds: Vec<Threshold>,
    /// A condition lasts this long after its last threshold was met.
    pub(crate) pressure_transition_period: Duration,
    /// The longest grace period of a soft eviction in seconds.
    pub(crate) max_pod_grace_seconds: u32,
    /// Images, logs and volumes are on one file system.
    pub(crate) one_filesystem: bool,
}

impl EvictionConfig {
    /// Hard thresholds only, as in `evictionHard`. Invalid ones are ignored.
    pub fn hard(thresholds: &BTreeMap<String, String>) -> Self {
        let none = BTreeMap::new();
        let (thresholds, _) = threshold::parse(ThresholdSettings {
            hard: thresholds,
            soft: &none,
            soft_grace: &BTreeMap::new(),
            minimum_reclaim: &none,
            pods_are_limited: true,
        });
        EvictionConfig {
            thresholds,
            one_filesystem: true,
            ..EvictionConfig::default()
        }
    }
}

/// The state between sync iterations.
#[derive(Clone, Debug, Default)]
pub(crate) struct State {
    pub(crate) conditions: BTreeMap<NodeCondition, ConditionState>,
    /// The thresholds that are met, and since when.
    pub(crate) met_since: Vec<(Threshold, Timestamp)>,
    /// Those that were met for their grace period: their minimum reclaim is due.
    pub(crate) due: Vec<Threshold>,
}

/// What to do after an observation.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// No threshold is met, or its grace period is not over.
    None,
    /// Remove dead containers, then unused images, then observe again.
    Reclaim {
        /// The threshold that is met.
        threshold: Threshold,
    },
    /// Evict the first pod by rank.
    Evict {
        /// The threshold that is met.
        threshold: Threshold,
    },
}

/// Takes observations and returns the new state and the action to take. While `reclaiming`, thresholds
/// that this can help wait for its end.
pub(crate) fn synchronize(
    config: &EvictionConfig,
    previous: &State,
    observations: &Observations,
    reclaiming: bool,
    now: Timestamp,
) -> (State, Action) {
    let met = thresholds_met(config, previous, observations);
    let met_since: Vec<(Threshold, Timestamp)> = met
        .iter()
        .map(|threshold| {
            let since = previous.met_since.iter().find(|(t, _)| t == *threshold);
            ((*threshold).clone(), since.map_or(now, |(_, at)| *at))
        })
        .collect();
    let conditions = NodeCondition::ALL
        .into_iter()
        .map(|condition| {
            (
                condition,
                next_condition(config, previous, observations, condition, &met, now),
            )
        })
        .collect();
    let due: Vec<Threshold> = met_since
        .iter()
        .filter(|(threshold, since)| {
            let age = Duration::try_from(now.duration_since(*since)).unwrap_or(Duration::ZERO);
            threshold.grace.is_none_or(|grace| age >= grace)
        })
        .map(|(threshold, _)| threshold.clone())
        .collect();
    let action = choose_action(config, &due, observations, reclaiming);
    let state = State {
        conditions,
        met_since,
        due,
    };
    (state, action)
}

/// The thresholds that are met, whatever their grace period. One that was due stays met until its
/// minimum reclaim is available, and one whose signal cannot be observed stays what it was.
fn thresholds_met<'a>(
    config: &'a EvictionConfig,
    previous: &State,
    observations: &Observations,
) -> Vec<&'a Threshold> {
    let is_met = |threshold: &&Threshold| {
        if observations.is_failed(threshold.signal) {
            return previous.met_since.iter().any(|(met, _)| met == *threshold);
        }
        threshold.is_met(observations, previous.due.contains(threshold))
    };
    config.thresholds.iter().filter(is_met).collect()
}

/// A condition that none of the observed signals sets is unchanged while another one cannot be
/// observed: not to know is no reason to end it.
fn next_condition(
    config: &EvictionConfig,
    previous: &State,
    observations: &Observations,
    condition: NodeCondition,
    met: &[&Threshold],
    now: Timestamp,
) -> ConditionState {
    let concerns = |t: &Threshold| NodeCondition::from(t.signal.resource()) == condition;
    let state = previous.conditions.get(&condition).copied();
    let state = state.unwrap_or_else(|| ConditionState::inactive(now));
    let is_failed = |t: &Threshold| observations.is_failed(t.signal);
    let is_met = met.iter().any(|t| concerns(t) && !is_failed(t));
    if !is_met
        && config
            .thresholds
            .iter()
            .any(|t| concerns(t) && is_failed(t))
    {
        return state;
    }
    state.next(is_met, now, config.pressure_transition_period)
}

/// Acts on one observed threshold: memory first, then disks, then the rest.
fn choose_action(
    config: &EvictionConfig,
    due: &[Threshold],
    observations: &Observations,
    reclaiming: bool,
) -> Action {
    let is_reclaimable = |t: &Threshold| t.signal.is_reclaimable(config.one_filesystem);
    let order = |threshold: &Threshold| match threshold.signal.resource() {
        EvictionResource::Memory => 0,
        EvictionResource::Disk | EvictionResource::Inodes => 1,
        EvictionResource::Pids => 2,
    };
    let first = due
        .iter()
        .filter(|t| !observations.is_failed(t.signal))
        .filter(|t| !(reclaiming && is_reclaimable(t)))
        // A hard threshold goes before a soft one of the same signal.
        .min_by_key(|t| (order(t), t.signal, t.grace.is_some()));
    let Some(threshold) = first.cloned() else {
        return Action::None;
    };
    if is_reclaimable(&threshold) {
        return Action::Reclaim { threshold };
    }
    Action::Evict { threshold }
}

/// Whether reclaiming was enough: no threshold is met any more, all with their minimum reclaim. `None`
/// when the signal that led to it cannot be observed.
pub(crate) fn is_resolved(
    config: &EvictionConfig,
    threshold: &Threshold,
    observations: &Observations,
) -> Option<bool> {
    observations.get(threshold.signal)?;
    let is_met = |t: &Threshold| t.is_met(observations, true);
    Some(!config.thresholds.iter().any(is_met))
}

/// The eviction of one pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PodEviction {
    pub(crate) uid: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) resource: EvictionResource,
    pub(crate) grace_seconds: u32,
    /// The pod's status message.
    pub(crate) message: String,
    /// The annotations of the pod's event.
    pub(crate) event_annotations: BTreeMap<String, String>,
    /// Whether the cause is a shortage of the node, and not the pod's own limit.
    pub(crate) disruption_target: bool,
}

/// The pod to evict for this threshold, if there is one that may be evicted.
///
/// Grace period: 1 s for a hard threshold, else the smaller of the configured maximum and the pod's
/// own, at least 1 s.
pub(crate) fn evict(
    config: &EvictionConfig,
    threshold: &Threshold,
    observations: &Observations,
    candidates: &[Candidate],
) -> Option<PodEviction> {
    let first = *rank(candidates, threshold.signal, config.one_filesystem).first()?;
    let grace_seconds = match threshold.grace {
        None => 1,
        Some(_) => config
            .max_pod_grace_seconds
            .min(first.termination_grace_seconds)
            .max(1),
    };
    let observation = observations.get(threshold.signal);
    let (message, event_annotations) = message::evicted(threshold, observation, first);
    Some(PodEviction {
        uid: first.uid.clone(),
        namespace: first.namespace.clone(),
        name: first.name.clone(),
        resource: threshold.signal.resource(),
        grace_seconds,
        message,
        event_annotations,
        disruption_target: true,
    })
}
