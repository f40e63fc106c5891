//! When to scan for orphaned pod data: directories and cgroups on the node of pods that no source
//! serves and the runtime does not know, for example after a crash of the node or under a previous
//! agent. Orphans found are removed like any deleted pod: volumes first, then cgroup and files.
//! Upstream does this in housekeeping (`cleanupOrphanedPodDirs`, `cleanupOrphanedPodCgroups`).

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};

/// Delay of the scan after the removal of a pod, by when the rest of it should be gone.
const SCAN_DELAY: SignedDuration = SignedDuration::from_secs(60);

/// Whether a directory name can be a pod UID. Other entries in the pods directory are left alone.
pub fn is_uid(name: &str) -> bool {
    let is_valid = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    !name.is_empty() && !name.starts_with('.') && name.chars().all(is_valid)
}

/// The schedule of scans.
#[derive(Debug, Default)]
pub struct OrphanCleanup {
    due: Option<Timestamp>,
    running: bool,
    enabled: bool,
    /// Pods whose removal did not remove everything; adopted once.
    adopted: BTreeSet<String>,
}

impl OrphanCleanup {
    /// Allows scans from now on: all sources have synced.
    pub fn enable(&mut self, now: Timestamp) {
        if !std::mem::replace(&mut self.enabled, true) {
            self.due = Some(now);
        }
    }

    /// Schedules a scan after a pod was removed, or its volumes were released.
    pub fn on_pod_removed(&mut self, uid: &str, now: Timestamp) {
        self.adopted.remove(uid);
        self.schedule(now.checked_add(SCAN_DELAY).ok());
    }

    /// When the next scan is due.
    pub fn due(&self) -> Option<Timestamp> {
        self.due.filter(|_| !self.running)
    }

    /// Starts a scan if one is due.
    pub fn start(&mut self, now: Timestamp) -> bool {
        if self.due().is_none_or(|due| due > now) {
            return false;
        }
        self.running = true;
        self.due = None;
        true
    }

    /// Ends the scan.
    pub fn on_finished(&mut self) {
        self.running = false;
    }

    /// Schedules a scan for now.
    pub fn run_now(&mut self, now: Timestamp) {
        self.schedule(Some(now));
    }

    /// Whether to remove an orphan that was found. Only once: what remains after that cannot be
    /// removed.
    pub fn should_adopt(&mut self, uid: &str) -> bool {
        self.adopted.insert(uid.to_owned())
    }

    fn schedule(&mut self, at: Option<Timestamp>) {
        if self.enabled {
            self.due = [self.due, at].into_iter().flatten().min();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_directory_entries_are_not_uids() {
        for uid in ["2b9b65bc8a728c40", "11111111-2222-3333-4444-555555555555"] {
            assert!(is_uid(uid), "{uid}");
        }
        for other in ["", ".snapshot", "lost+found", "a b"] {
            assert!(!is_uid(other), "{other}");
        }
    }

    #[test]
    fn scans_at_start_and_once_after_removals() {
        let at = |seconds| Timestamp::from_second(seconds).unwrap();
        let mut cleanup = OrphanCleanup::default();
        cleanup.on_pod_removed("a", at(0));
        assert_eq!(cleanup.due(), None, "not before all sources have synced");
        cleanup.enable(at(1));
        assert!(cleanup.start(at(1)));
        assert!(!cleanup.start(at(2)), "one at a time");
        cleanup.enable(at(2));
        cleanup.on_finished();
        assert_eq!(cleanup.due(), None, "idle");
        cleanup.on_pod_removed("a", at(10));
        cleanup.on_pod_removed("b", at(20));
        assert_eq!(cleanup.due(), Some(at(70)), "one scan for both");
        assert!(!cleanup.start(at(69)));
        assert!(cleanup.start(at(70)));
        cleanup.on_pod_removed("c", at(71));
        assert_eq!(cleanup.due(), None);
        cleanup.on_finished();
        assert_eq!(cleanup.due(), Some(at(131)));
        cleanup.run_now(at(80));
        assert!(cleanup.start(at(80)));
    }

    #[test]
    fn an_orphan_is_adopted_once_per_removal() {
        let at = |seconds| Timestamp::from_second(seconds).unwrap();
        let mut cleanup = OrphanCleanup::default();
        assert!(cleanup.should_adopt("a"));
        assert!(!cleanup.should_adopt("a"));
        cleanup.on_pod_removed("a", at(0));
        assert!(cleanup.should_adopt("a"));
    }
}
