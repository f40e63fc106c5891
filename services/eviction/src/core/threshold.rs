//! Thresholds: from the configuration's strings to values that a level is held against.

use std::collections::BTreeMap;
use std::time::Duration;

use polylet_model::quantity;

use super::signal::{Level, Levels, Signal};

/// The amount below which a signal must not fall.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Amount {
    Absolute(u64),
    /// Of the capacity, in percent.
    Percent(f64),
}

impl Amount {
    /// In the signal's unit.
    pub(crate) fn of(&self, capacity: u64) -> u64 {
        match self {
            Self::Absolute(amount) => *amount,
            Self::Percent(percent) => (capacity as f64 * percent / 100.0) as u64,
        }
    }
}

/// One line of `evictionHard` or `evictionSoft`.
#[derive(Clone, Debug, PartialEq)]
pub struct Threshold {
    pub(crate) signal: Signal,
    pub(crate) amount: Amount,
    /// As configured, for messages.
    pub(crate) text: String,
    /// Soft thresholds act only after this time; hard ones have none.
    pub(crate) grace: Option<Duration>,
    /// Added to the amount once the threshold was met, until the level is above both.
    pub(crate) minimum_reclaim: Option<Amount>,
}

/// A line that cannot be read.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ThresholdError {
    #[error("evictionHard: {0} is not a signal")]
    UnknownSignal(String),
    #[error("{signal}: {value} is neither a quantity nor a percentage between 0% and 100%")]
    BadAmount { signal: String, value: String },
}

/// Reads the configured thresholds. `0%` and `100%` switch a signal off.
///
/// Upstream's rule: each hard memory threshold also holds for the pods' own cgroup.
pub(crate) fn parse(
    hard: &BTreeMap<String, String>,
    soft: &BTreeMap<String, String>,
    soft_grace: &BTreeMap<String, Duration>,
    minimum_reclaim: &BTreeMap<String, String>,
) -> (Vec<Threshold>, Vec<ThresholdError>) {
    let (mut found, mut errors) = (Vec::new(), Vec::new());
    let lines = hard
        .iter()
        .map(|(name, text)| (name, text, None))
        .chain(soft.iter().map(|(name, text)| {
            let grace = soft_grace.get(name).copied().unwrap_or_default();
            (name, text, Some(grace))
        }));
    for (name, text, grace) in lines {
        match one(name, text, grace, minimum_reclaim.get(name)) {
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

fn one(
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
        amount,
        text: text.to_owned(),
        grace,
        minimum_reclaim,
    }))
}

fn amount(signal: &str, value: &str) -> Result<Option<Amount>, ThresholdError> {
    let bad = || ThresholdError::BadAmount {
        signal: signal.to_owned(),
        value: value.to_owned(),
    };
    if let Some(percent) = value.strip_suffix('%') {
        let percent: f64 = percent.parse().map_err(|_| bad())?;
        if !(0.0..=100.0).contains(&percent) {
            return Err(bad());
        }
        let off = percent == 0.0 || percent == 100.0;
        return Ok((!off).then_some(Amount::Percent(percent)));
    }
    let parsed = quantity::Amount::parse(value).map_err(|_| bad())?;
    let amount = u64::try_from(parsed.value()).map_err(|_| bad())?;
    Ok(Some(Amount::Absolute(amount)))
}

impl Threshold {
    /// Whether the level is below the threshold; with `reclaim`, below it plus the minimum reclaim.
    pub(crate) fn met(&self, level: Level, reclaim: bool) -> bool {
        let mut bound = self.amount.of(level.capacity);
        if let Some(extra) = self.minimum_reclaim.as_ref().filter(|_| reclaim) {
            bound = bound.saturating_add(extra.of(level.capacity));
        }
        level.available < bound
    }
}

/// Thresholds met now, graces ignored; those met before stay until their minimum reclaim is there.
pub(crate) fn met<'a>(
    all: &'a [Threshold],
    before: &[Threshold],
    levels: &Levels,
) -> Vec<&'a Threshold> {
    all.iter()
        .filter(|threshold| {
            let was_met = before.contains(threshold);
            levels
                .get(&threshold.signal)
                .is_some_and(|level| threshold.met(*level, was_met))
        })
        .collect()
}
