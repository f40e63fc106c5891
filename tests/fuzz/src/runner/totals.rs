//! How long targets have run in all, in `target/fuzz/<target>/totals.json`.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{FuzzError, target_directory, write_error};
use crate::Target;

/// The sums of all runs of a target.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Totals {
    /// Processor time in milliseconds.
    processor_ms: u64,
    inputs: u64,
}

impl Totals {
    /// The sums so far: none if there was no run, or their file is not readable.
    pub(super) fn read(target: &Target) -> Self {
        let text = fs::read(file(target)).unwrap_or_default();
        serde_json::from_slice(&text).unwrap_or_default()
    }

    /// Adds a run and stores the sums.
    pub(super) fn add(target: &Target, time: Duration, inputs: u64) -> Result<Self, FuzzError> {
        let sum = Totals::read(target).plus(time, inputs);
        let path = file(target);
        let error = write_error(&path);
        let text = serde_json::to_vec(&sum).map_err(|source| error(source.into()))?;
        fs::write(&path, text).map_err(error)?;
        Ok(sum)
    }

    fn plus(self, time: Duration, inputs: u64) -> Self {
        let ms = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        Totals {
            processor_ms: self.processor_ms.saturating_add(ms),
            inputs: self.inputs.saturating_add(inputs),
        }
    }

    pub(super) fn processor_time(self) -> Duration {
        Duration::from_millis(self.processor_ms)
    }

    pub(super) fn describe(self) -> String {
        let seconds = self.processor_time().as_secs();
        format!("{seconds:>6} s, {:>10} inputs", self.inputs)
    }
}

fn file(target: &Target) -> PathBuf {
    target_directory(target).join("totals.json")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_add_up() {
        let sum = Totals::default().plus(Duration::from_millis(1500), 10);
        let sum = sum.plus(Duration::from_secs(59), 5);
        assert_eq!(sum.processor_time(), Duration::from_millis(60_500));
        assert_eq!(sum.describe(), "    60 s,         15 inputs");
    }
}
