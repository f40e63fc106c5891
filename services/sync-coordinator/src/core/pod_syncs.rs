//! When a pod's worker is busy: what upstream calls a sync. A pod at rest has none.

use jiff::Timestamp;

use super::plan::SyncPhase;

/// Measures the syncs of one pod.
#[derive(Debug, Default)]
pub(crate) struct SyncMeter {
    current: Option<CurrentSync>,
    /// The pod had a sync before.
    was_created: bool,
    /// The manifest has changed since the last sync began.
    updated: bool,
}

#[derive(Debug)]
struct CurrentSync {
    kind: SyncKind,
    since: Timestamp,
}

/// Upstream's type of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SyncKind {
    /// The first steps of a pod of which nothing existed.
    Create,
    /// The manifest has changed.
    Update,
    /// The runtime, a volume, a probe or the time has changed.
    Sync,
    /// The pod is being stopped.
    Kill,
    /// What is left of a stopped pod is cleaned up.
    Terminated,
}

impl SyncKind {
    /// The value of upstream's label.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Update => "update",
            Self::Sync => "sync",
            Self::Kill => "kill",
            Self::Terminated => "terminated",
        }
    }
}

/// What has begun and ended.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct SyncChange {
    /// The sync that has begun.
    pub(crate) begun: Option<SyncKind>,
    /// The sync that has ended, and its duration in seconds.
    pub(crate) ended: Option<(SyncKind, f64)>,
}

impl SyncMeter {
    /// Handles a changed manifest.
    pub(crate) fn on_update(&mut self) {
        self.updated = true;
    }

    /// Handles a plan after which the pod is busy or at rest; `exists`: the runtime has something of it.
    pub(crate) fn on_plan(
        &mut self,
        phase: SyncPhase,
        busy: bool,
        exists: bool,
        now: Timestamp,
    ) -> SyncChange {
        let mut change = SyncChange::default();
        let phase_kind = match phase {
            SyncPhase::Pending | SyncPhase::Syncing => None,
            SyncPhase::Terminating => Some(SyncKind::Kill),
            SyncPhase::Terminated | SyncPhase::CleanedUp => Some(SyncKind::Terminated),
        };
        // A stop cuts a sync off, and begins one of its own.
        let other = |sync: &CurrentSync| phase_kind.is_some_and(|kind| kind != sync.kind);
        if !busy || self.current.as_ref().is_some_and(other) {
            change.ended = self.current.take().map(|sync| {
                // Negative if the clock was set back meanwhile.
                let seconds = now.duration_since(sync.since).as_secs_f64().max(0.0);
                (sync.kind, seconds)
            });
        }
        if busy && self.current.is_none() {
            let kind = phase_kind.unwrap_or(match (self.was_created || exists, self.updated) {
                (false, _) => SyncKind::Create,
                (true, true) => SyncKind::Update,
                (true, false) => SyncKind::Sync,
            });
            self.was_created = true;
            self.updated = false;
            self.current = Some(CurrentSync { kind, since: now });
            change.begun = Some(kind);
        }
        change
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn each_time_of_steps_is_a_sync() {
        use SyncPhase::{Syncing, Terminated, Terminating};
        let at = |second| Timestamp::UNIX_EPOCH + Duration::from_secs(second);
        let mut meter = SyncMeter::default();
        let mut plan = |phase, busy, second| {
            let change = meter.on_plan(phase, busy, second > 1, at(second));
            (change.begun, change.ended)
        };
        assert_eq!(plan(Syncing, false, 0), (None, None));
        assert_eq!(plan(Syncing, true, 1), (Some(SyncKind::Create), None));
        assert_eq!(plan(Syncing, true, 2), (None, None));
        assert_eq!(
            plan(Syncing, false, 4),
            (None, Some((SyncKind::Create, 3.0)))
        );
        assert_eq!(plan(Syncing, true, 5), (Some(SyncKind::Sync), None));
        let ended = Some((SyncKind::Sync, 1.0));
        assert_eq!(plan(Terminating, true, 6), (Some(SyncKind::Kill), ended));
        let ended = Some((SyncKind::Kill, 2.0));
        assert_eq!(
            plan(Terminated, true, 8),
            (Some(SyncKind::Terminated), ended)
        );
        // The clock was set back.
        let ended = Some((SyncKind::Terminated, 0.0));
        assert_eq!(plan(Terminated, false, 7), (None, ended));
    }

    #[test]
    fn a_changed_manifest_is_an_update_unless_nothing_exists() {
        let now = Timestamp::UNIX_EPOCH;
        let mut meter = SyncMeter::default();
        meter.on_update();
        let begun = meter.on_plan(SyncPhase::Syncing, true, false, now).begun;
        assert_eq!(begun, Some(SyncKind::Create));
        meter.on_plan(SyncPhase::Syncing, false, true, now);
        meter.on_update();
        let begun = meter.on_plan(SyncPhase::Syncing, true, true, now).begun;
        assert_eq!(begun, Some(SyncKind::Update));
        // A process that finds the pod running did not create it.
        let begun = SyncMeter::default().on_plan(SyncPhase::Syncing, true, true, now);
        assert_eq!(begun.begun, Some(SyncKind::Sync));
    }
}
