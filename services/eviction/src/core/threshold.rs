//! Eviction thresholds: parsed from the configuration and compared with observations.

use std::collections::BTreeMap;
use std::time::Duration;

use polylet_model::quantity::Amount;

use super::signal::{Observation, Observations, Signal};

/// The value of a threshold.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ThresholdValue {
    /// A quantity, with the text in the configuration.
    Quantity(u64, String),
    /// A fraction of the capacity, in upstream's precision.
    Fraction(f32),
}

impl ThresholdValue {
    /// The value in the signal's unit.
    pub(crate) fn resolve(&self, capacity: u64) -> u64 {
        match self {
            Self::Quantity(amount, _) => *amount,
            Self::Fraction(fraction) => (capacity as f64 * f64::from(*fraction)) as u64,
        }
    }
}

/// One entry of `evictionHard` or `evictionSoft`.
#[derive(Clone, Debug, PartialEq)]
pub struct Threshold {
    pub(crate) signal: Signal,
    pub(crate) value: ThresholdValue,
    /// The grace period of a soft threshold; `None` for a hard one. As upstream, a soft threshold with
    /// a grace period of zero is a hard one.
    pub(crate) grace: Option<Duration>,
    /// Added to the value after the threshold was met for its grace period, until the available amount
    /// is above both.
    pub(crate) minimum_reclaim: Option<ThresholdValue>,
}

/// An invalid threshold. The configuration does not accept any that leads to one.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ThresholdError {
    #[error("unknown eviction signal {0}")]
    UnknownSignal(String),
    #[error("{signal}: {value} is neither a quantity nor a percentage from 0% to 100%")]
    InvalidValue { signal: String, value: String },
}

/// The entries of the configuration.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ThresholdSettings<'a> {
    pub(crate) hard: &'a BTreeMap<String, String>,
    pub(crate) soft: &'a BTreeMap<String, String>,
    pub(crate) soft_grace: &'a BTreeMap<String, Duration>,
    pub(crate) minimum_reclaim: &'a BTreeMap<String, String>,
    /// `enforceNodeAllocatable` contains `pods`.
    pub(crate) pods_are_limited: bool,
}

/// Parses the configured thresholds. `0%` and `100%` disable a signal.
///
/// As upstream, each hard memory threshold also applies to the cgroup of all pods, if it is limited.
pub(crate) fn parse(settings: ThresholdSettings<'_>) -> (Vec<Threshold>, Vec<ThresholdError>) {
    let (mut found, mut errors) = (Vec::new(), Vec::new());
    let hard = settings.hard.iter().map(|(name, text)| (name, text, None));
    let soft = settings.soft.iter().map(|(name, text)| {
        let grace = settings.soft_grace.get(name).copied();
        (name, text, grace.filter(|grace| !grace.is_zero()))
    });
    for (name, text, grace) in hard.chain(soft) {
        match parse_entry(name, text, grace, settings.minimum_reclaim.get(name)) {
            Ok(Some(threshold)) => found.push(threshold),
            Ok(None) => {}
            Err(error) => errors.push(error),
        }
    }
    if settings.pods_are_limited {
        let memory = |t: &&Threshold| t.signal == Signal::MemoryAvailable && t.grace.is_none();
        let allocatable: Vec<Threshold> = found
            .iter()
            .filter(memory)
            .map(|t| t.with_signal(Signal::AllocatableMemoryAvailable))
            .collect();
        found.extend(allocatable);
    }
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
    let Some(value) = value(name, text)? else {
        return Ok(None);
    };
    let minimum_reclaim = match minimum_reclaim {
        Some(text) => self::value(name, text)?,
        None => None,
    };
    Ok(Some(Threshold {
        signal,
        value,
        grace,
        minimum_reclaim,
    }))
}

fn value(signal: &str, text: &str) -> Result<Option<ThresholdValue>, ThresholdError> {
    let bad = || ThresholdError::InvalidValue {
        signal: signal.to_owned(),
        value: text.to_owned(),
    };
    if let Some(percent) = text.strip_suffix('%') {
        let percent: f32 = percent.parse().map_err(|_| bad())?;
        if !(0.0..=100.0).contains(&percent) {
            return Err(bad());
        }
        let off = percent == 0.0 || percent == 100.0;
        return Ok((!off).then_some(ThresholdValue::Fraction(percent / 100.0)));
    }
    let amount = Amount::parse(text).map_err(|_| bad())?.value();
    let amount = u64::try_from(amount).map_err(|_| bad())?;
    Ok(Some(ThresholdValue::Quantity(amount, text.to_owned())))
}

/// The thresholds of writable layers: those of `nodefs`, or of `imagefs` if the runtime has a file
/// system of its own. As upstream, configured ones have no effect; the second value is whether there
/// are any.
pub(crate) fn with_container_fs(
    configured: &[Threshold],
    one_filesystem: bool,
) -> (Vec<Threshold>, bool) {
    let is_configured = configured.iter().any(|t| t.signal.is_container_fs());
    let mut thresholds: Vec<Threshold> = configured.to_vec();
    thresholds.retain(|threshold| !threshold.signal.is_container_fs());
    let derived: Vec<Threshold> = thresholds
        .iter()
        .filter_map(|threshold| {
            let signal = match (threshold.signal, one_filesystem) {
                (Signal::NodeFsAvailable, true) | (Signal::ImageFsAvailable, false) => {
                    Signal::ContainerFsAvailable
                }
                (Signal::NodeFsInodesFree, true) | (Signal::ImageFsInodesFree, false) => {
                    Signal::ContainerFsInodesFree
                }
                _ => return None,
            };
            Some(threshold.with_signal(signal))
        })
        .collect();
    thresholds.extend(derived);
    (thresholds, is_configured)
}

impl Threshold {
    fn with_signal(&self, signal: Signal) -> Self {
        Self {
            signal,
            ..self.clone()
        }
    }

    /// Whether the observation is below the threshold; with `reclaim`, below it plus the minimum
    /// reclaim.
    pub(crate) fn is_met(&self, observations: &Observations, reclaim: bool) -> bool {
        let met = |observation: Observation| {
            let mut bound = self.value.resolve(observation.capacity);
            if let Some(extra) = self.minimum_reclaim.as_ref().filter(|_| reclaim) {
                bound = bound.saturating_add(extra.resolve(observation.capacity));
            }
            observation.available < bound
        };
        observations.get(self.signal).is_some_and(met)
    }
}
