//! One sync iteration: from observations to node conditions, and to at most one action.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;

use super::message;
use super::pressure::{ConditionState, NodeCondition};
use super::rank::{Candidate, rank};
use super::signal::{EvictionResource, Observations, Signal};
use super::threshold::{self, Threshold};

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
        let (thresholds, _) = threshold::parse(thresholds, &none, &BTreeMap::new(), &none);
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
}

/// What to do after an observation.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// No threshold is met, or its grace period is not over.
    None,
    /// Request this many bytes from image-gc (zero for all it can free), then observe again.
    Reclaim {
        /// The signal of the threshold.
        signal: Signal,
        /// The bytes missing to the threshold.
        bytes: u64,
    },
    /// Evict the first pod by rank.
    Evict {
        /// The threshold that is met.
        threshold: Threshold,
    },
}

/// Takes observations and returns the new state and the action to take. `reclaimed` means that
/// image-gc has just freed what it could.
pub(crate) fn synchronize(
    config: &EvictionConfig,
    previous: &State,
    observations: &Observations,
    reclaimed: bool,
    now: Timestamp,
) -> (State, Action) {
    let met_before: Vec<Threshold> = previous.met_since.iter().map(|(t, _)| t.clone()).collect();
    let met = threshold::met(&config.thresholds, &met_before, observations);
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
            let is_met = met
                .iter()
                .any(|t| NodeCondition::from(t.signal.resource()) == condition);
            let state = previous.conditions.get(&condition).copied();
            let state = state.unwrap_or_else(|| ConditionState::inactive(now));
            let transition = config.pressure_transition_period;
            (condition, state.next(is_met, now, transition))
        })
        .collect();
    let action = choose_action(config, &met_since, observations, reclaimed, now);
    let state = State {
        conditions,
        met_since,
    };
    (state, action)
}

/// Acts on one threshold: memory first, then those that image-gc can help, then the rest.
fn choose_action(
    config: &EvictionConfig,
    met_since: &[(Threshold, Timestamp)],
    observations: &Observations,
    reclaimed: bool,
    now: Timestamp,
) -> Action {
    let due = met_since.iter().filter(|(threshold, since)| {
        let age = Duration::try_from(now.duration_since(*since)).unwrap_or(Duration::ZERO);
        threshold.grace.is_none_or(|grace| age >= grace)
    });
    let order = |signal: Signal| match signal.resource() {
        EvictionResource::Memory => 0,
        EvictionResource::Disk | EvictionResource::Inodes => 1,
        EvictionResource::Pids => 2,
    };
    // A hard threshold goes before a soft one of the same signal.
    let first = due.min_by_key(|(t, _)| (order(t.signal), t.signal, t.grace.is_some()));
    let Some((threshold, _)) = first else {
        return Action::None;
    };
    if threshold.signal.is_reclaimable(config.one_filesystem) && !reclaimed {
        return Action::Reclaim {
            signal: threshold.signal,
            bytes: missing_bytes(threshold, observations),
        };
    }
    Action::Evict {
        threshold: threshold.clone(),
    }
}

/// The bytes missing to the threshold and its minimum reclaim; zero for inodes.
fn missing_bytes(threshold: &Threshold, observations: &Observations) -> u64 {
    let Some(observation) = observations.get(&threshold.signal) else {
        return 0;
    };
    if !threshold.signal.is_bytes() {
        return 0;
    }
    let extra = threshold
        .minimum_reclaim
        .as_ref()
        .map_or(0, |value| value.resolve(observation.capacity));
    let bound = threshold.value.resolve(observation.capacity);
    bound
        .saturating_add(extra)
        .saturating_sub(observation.available)
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
    let observation = observations.get(&threshold.signal).copied();
    Some(PodEviction {
        uid: first.uid.clone(),
        namespace: first.namespace.clone(),
        name: first.name.clone(),
        resource: threshold.signal.resource(),
        grace_seconds,
        message: message::evicted(threshold, observation, first),
        disruption_target: true,
    })
}
