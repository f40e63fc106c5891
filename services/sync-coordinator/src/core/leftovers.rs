//! When to look for what is left on the node of pods that are no more: of which neither a source
//! nor the runtime says anything, and which left folders or cgroups behind all the same (a crash of
//! the node, another agent before this one). They are taken for what they are, pods that leave, and
//! go the way of all others: volumes first, then cgroup and files.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};

/// So long after something went, the rest of it should be gone as well.
const AFTER: SignedDuration = SignedDuration::from_secs(60);

/// Whether a directory among those of pods may be a pod's. Other things lie beside them, and are
/// nobody's.
pub fn is_uid(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    !name.is_empty() && !name.starts_with('.') && name.chars().all(plain)
}

/// When to look.
#[derive(Debug, Default)]
pub struct Sweep {
    due: Option<Timestamp>,
    looking: bool,
    began: bool,
    /// Pods of which something stays, told once.
    stubborn: BTreeSet<String>,
}

impl Sweep {
    /// All have been heard: nothing may be looked at before.
    pub fn all_heard(&mut self, now: Timestamp) {
        if !std::mem::replace(&mut self.began, true) {
            self.due = Some(now);
        }
    }

    /// A pod has left, or volume-manager is done with one: what was held back may go now.
    pub fn left(&mut self, uid: &str, now: Timestamp) {
        self.stubborn.remove(uid);
        self.sooner(now.checked_add(AFTER).ok());
    }

    /// When the next look is due.
    pub fn due(&self) -> Option<Timestamp> {
        self.due.filter(|_| !self.looking)
    }

    /// Whether to look now.
    pub fn begin(&mut self, now: Timestamp) -> bool {
        if self.due().is_none_or(|due| due > now) {
            return false;
        }
        self.looking = true;
        self.due = None;
        true
    }

    /// A look is over.
    pub fn ended(&mut self) {
        self.looking = false;
    }

    /// Nobody said anything for long: all the same.
    pub fn again(&mut self, now: Timestamp) {
        self.sooner(Some(now));
    }

    /// Whether to take a pod up by its remains. Not again when all that could go has gone.
    pub fn take_up(&mut self, uid: &str) -> bool {
        self.stubborn.insert(uid.to_owned())
    }

    fn sooner(&mut self, at: Option<Timestamp>) {
        if self.began {
            self.due = [self.due, at].into_iter().flatten().min();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_things_lie_beside_pods() {
        for uid in ["2b9b65bc8a728c40", "11111111-2222-3333-4444-555555555555"] {
            assert!(is_uid(uid), "{uid}");
        }
        for other in ["", ".snapshot", "lost+found", "a b"] {
            assert!(!is_uid(other), "{other}");
        }
    }

    #[test]
    fn looks_at_the_start_after_a_pod_left_and_seldom() {
        let at = |seconds| Timestamp::from_second(seconds).unwrap();
        let mut sweep = Sweep::default();
        sweep.left("a", at(0));
        assert_eq!(sweep.due(), None, "not before all have been heard");
        sweep.all_heard(at(1));
        assert!(sweep.begin(at(1)));
        assert!(!sweep.begin(at(2)), "one at a time");
        sweep.all_heard(at(2));
        sweep.ended();
        assert_eq!(sweep.due(), None, "at rest");
        sweep.left("a", at(10));
        sweep.left("b", at(20));
        assert_eq!(sweep.due(), Some(at(70)), "together");
        assert!(!sweep.begin(at(69)));
        assert!(sweep.begin(at(70)));
        sweep.left("c", at(71));
        assert_eq!(sweep.due(), None);
        sweep.ended();
        assert_eq!(sweep.due(), Some(at(131)));
        sweep.again(at(80));
        assert!(sweep.begin(at(80)));
    }

    #[test]
    fn what_stays_is_not_tried_for_ever() {
        let at = |seconds| Timestamp::from_second(seconds).unwrap();
        let mut sweep = Sweep::default();
        assert!(sweep.take_up("a"));
        assert!(!sweep.take_up("a"));
        sweep.left("a", at(0));
        assert!(sweep.take_up("a"));
    }
}
