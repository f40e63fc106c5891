//! Eviction thresholds: parsed from the configuration and compared with observations.

use std::collections::BTreeMap;
use std::time::Duration;

use polylet_model::quantity;

use super::signal::{Observation, Observations, Signal};

/// The value of a threshold.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ThresholdValue {
    Quantity(u64),
    /// Percent of the capacity.
    Percentage(f64),
}

impl ThresholdValue {
    /// The value in the signal's unit.
    pub(crate) fn resolve(&self, capacity: u64) -> u64 {
        match self {
            Self::Quantity(amount) => *amount,
            Self::Percentage(percent) => (capacity as f64 * percent / 100.0) as u64,
        }
    }
}

/// One entry of `evictionHard` or `evictionSoft`.
#[derive(Clone, Debug, PartialEq)]
pub struct Threshold {
    pub(crate) signal: Signal,
    pub(crate) value: ThresholdValue,
    /// The configured value.
    pub(crate) text: String,
    /// The grace period of a soft threshold; `None` for a hard one.
    pub(crate) grace: Option<Duration>,
    /// Added to the value once the threshold is met, until the available amount is above both.
    pub(crate) minimum_reclaim: Option<ThresholdValue>,
}

/// An invalid threshold.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ThresholdError {
    #[error("unknown eviction signal {0}")]
    UnknownSignal(String),
    #[error("{signal}: {value} is neither a quantity nor a percentage from 0% to 100%")]
    InvalidValue { signal: String, value: String },
}

/// Parses the configured thresholds. `0%` and `100%` disable a signal.
///
/// As upstream, each hard memory threshold also applies to the cgroup of all pods.
pub(crate) fn parse(
    hard: &BTreeMap<String, String>,
    soft: &BTreeMap<String, String>,
    soft_grace: &BTreeMap<String, Duration>,
    minimum_reclaim: &BTreeMap<String, String>,
) -> (Vec<Threshold>, Vec<ThresholdError>) {
    let (mut found, mut errors) = (Vec::new(), Vec::new());
    let entries = hard
        .iter()
        .map(|(name, text)| (name, text, None))
        .chain(soft.iter().map(|(name, text)| {
            let grace = soft_grace.get(name).copied().unwrap_or_default();
            (name, text, Some(grace))
        }));
    for (name, text, grace) in entries {
        match parse_entry(name, text, grace, minimum_reclaim.get(name)) {
            Ok(Some(threshold)) => found.push(threshold),
            Ok(None) => {}
            Err(error) => errors.push(error),
        }
    }
    let allocatable: Vec<Threshold> = found
        .iter()
        .filter(|t| t.signal == Signal::MemoryAvailable && t.grace.is_none())
        .map(|t| Threshold {
            signal: Signal::AllocatableMemoryAvailable,
            ..t.clone()
        })
        .collect();
    found.extend(allocatable);
    (found, errors)
}

fn parse_entry(
    name: &str,
    text: &str,
    grace: Option<Duration>,
    minimum_reclaim: Option<&String>,
) -> Result<Option<Threshold>, ThresholdError> {
    let signal =
        Signal::parse(name).ok_or_else(|| ThresholdError::UnknownSignal(name.to_owned()))?;
    let Some(amount) = amount(name, text)? else {
        return Ok(None);
    };
    let minimum_reclaim = match minimum_reclaim {
        Some(text) => self::amount(name, text)?,
        None => None,
    };
    Ok(Some(Threshold {
        signal,
        value: amount,
        text: text.to_owned(),
        grace,
        minimum_reclaim,
    }))
}

fn amount(signal: &str, value: &str) -> Result<Option<ThresholdValue>, ThresholdError> {
    let bad = || ThresholdError::InvalidValue {
        signal: signal.to_owned(),
        value: value.to_owned(),
    };
    if let Some(percent) = value.strip_suffix('%') {
        let percent: f64 = percent.parse().map_err(|_| bad())?;
        if !(0.0..=100.0).contains(&percent) {
            return Err(bad());
        }
        let off = percent == 0.0 || percent == 100.0;
        return Ok((!off).then_some(ThresholdValue::Percentage(percent)));
    }
    let parsed = quantity::Amount::parse(value).map_err(|_| bad())?;
    let amount = u64::try_from(parsed.value()).map_err(|_| bad())?;
    Ok(Some(ThresholdValue::Quantity(amount)))
}

impl Threshold {
    /// Whether the observation is below the threshold; with `reclaim`, below it plus the minimum
    /// reclaim.
    pub(crate) fn met(&self, observation: Observation, reclaim: bool) -> bool {
        let mut bound = self.value.resolve(observation.capacity);
        if let Some(extra) = self.minimum_reclaim.as_ref().filter(|_| reclaim) {
            bound = bound.saturating_add(extra.resolve(observation.capacity));
        }
        observation.available < bound
    }
}

/// The thresholds that are met, whatever their grace period. One that was met before stays met until
/// its minimum reclaim is available.
pub(crate) fn met<'a>(
    all: &'a [Threshold],
    before: &[Threshold],
    observations: &Observations,
) -> Vec<&'a Threshold> {
    all.iter()
        .filter(|threshold| {
            let was_met = before.contains(threshold);
            observations
                .get(&threshold.signal)
                .is_some_and(|observation| threshold.met(*observation, was_met))
        })
        .collect()
}
