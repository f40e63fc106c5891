//! Node conditions: when they appear and how long they stay.

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::signal::Starved;

/// The three conditions of the node that eviction judges.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum Condition {
    Memory,
    Disk,
    Pids,
}

impl Condition {
    pub(crate) const ALL: [Self; 3] = [Self::Memory, Self::Disk, Self::Pids];

    /// Upstream's reason for a node condition in this state.
    pub(crate) fn reason(self, under_pressure: bool) -> &'static str {
        match (self, under_pressure) {
            (Self::Memory, true) => "KubeletHasInsufficientMemory",
            (Self::Memory, false) => "KubeletHasSufficientMemory",
            (Self::Disk, true) => "KubeletHasDiskPressure",
            (Self::Disk, false) => "KubeletHasNoDiskPressure",
            (Self::Pids, true) => "KubeletHasInsufficientPID",
            (Self::Pids, false) => "KubeletHasSufficientPID",
        }
    }
}

impl From<Starved> for Condition {
    fn from(starved: Starved) -> Self {
        match starved {
            Starved::Memory => Self::Memory,
            Starved::Disk | Starved::Inodes => Self::Disk,
            Starved::Pids => Self::Pids,
        }
    }
}

/// One condition over time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Pressure {
    pub(crate) under: bool,
    /// When `under` last changed.
    pub(crate) since: Timestamp,
    /// When a threshold of it was last met.
    pub(crate) last_met: Option<Timestamp>,
}

impl Pressure {
    pub(crate) fn none(now: Timestamp) -> Self {
        Self {
            under: false,
            since: now,
            last_met: None,
        }
    }

    /// Upstream's rule: pressure appears at once and goes only when no threshold of it was met for
    /// the whole transition period.
    pub(crate) fn next(self, met: bool, now: Timestamp, transition: Duration) -> Self {
        let last_met = if met { Some(now) } else { self.last_met };
        let recently = last_met.is_some_and(|last| {
            Duration::try_from(now.duration_since(last)).unwrap_or(Duration::ZERO) < transition
        });
        let under = met || (self.under && recently);
        Self {
            under,
            since: if under == self.under { self.since } else { now },
            last_met,
        }
    }
}
