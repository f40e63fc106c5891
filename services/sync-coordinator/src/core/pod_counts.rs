//! How many pods are in which state, kept up to date pod by pod.

use std::collections::BTreeMap;

use polylet_model::PodUid;

use super::plan::{Plan, ResizeDecision, SyncPhase};

/// What counts of one pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CountedPod {
    pub(crate) phase: SyncPhase,
    /// A source serves it.
    pub(crate) has_source: bool,
    /// It has a manifest, if only one that no source serves any more.
    pub(crate) has_manifest: bool,
    /// Its source is not the API server.
    pub(crate) is_static: bool,
    pub(crate) ephemeral_containers: usize,
    /// The reason of a resize that is pending.
    pub(crate) pending_resize: Option<&'static str>,
    pub(crate) resizes: bool,
}

/// All pods.
#[derive(Debug, Default)]
pub(crate) struct PodCounts {
    pods: BTreeMap<PodUid, CountedPod>,
    totals: PodTotals,
    changed: bool,
}

/// The numbers of pods by upstream's labels.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct PodTotals {
    /// Of the API server, and of other sources.
    pub(crate) active: [usize; 2],
    /// By lifecycle, configuration and whether they are static. Those without a pod are there, too.
    pub(crate) working: BTreeMap<[&'static str; 3], usize>,
    pub(crate) ephemeral_containers: usize,
    /// By reason; none is 0.
    pub(crate) pending_resizes: BTreeMap<&'static str, usize>,
    pub(crate) resizes: usize,
}

const LIFECYCLES: [&str; 3] = ["sync", "terminating", "terminated"];

impl CountedPod {
    /// Sets what its plan says.
    pub(crate) fn with_plan(self, plan: &Plan) -> Self {
        Self {
            phase: plan.phase,
            pending_resize: match &plan.resize {
                ResizeDecision::Pending { reason, .. } => Some(reason),
                _ => None,
            },
            resizes: plan.resize_progress.is_some(),
            ..self
        }
    }

    fn lifecycle(&self) -> &'static str {
        match self.phase {
            SyncPhase::Pending | SyncPhase::Syncing => "sync",
            SyncPhase::Terminating => "terminating",
            SyncPhase::Terminated | SyncPhase::CleanedUp => "terminated",
        }
    }

    fn config(&self) -> &'static str {
        match (self.has_source, self.has_manifest) {
            (true, _) => "desired",
            (false, true) => "orphan",
            (false, false) => "runtime_only",
        }
    }

    /// Known from the runtime alone, and therefore being stopped.
    fn is_runtime_only(&self) -> bool {
        self.config() == "runtime_only" && self.phase != SyncPhase::Pending
    }

    fn static_label(&self) -> &'static str {
        match (self.config(), self.is_static) {
            ("runtime_only", _) => "unknown",
            (_, true) => "true",
            (_, false) => "",
        }
    }
}

impl PodCounts {
    /// Sets what counts of a pod. Whether the runtime has it and nothing else is known of it, for
    /// the first time.
    pub(crate) fn set(&mut self, uid: &PodUid, pod: CountedPod) -> bool {
        let before = self.pods.get(uid);
        if before == Some(&pod) {
            return false;
        }
        let is_new = pod.is_runtime_only() && !before.is_some_and(CountedPod::is_runtime_only);
        if let Some(before) = before {
            self.totals.subtract(before);
        }
        self.totals.add(&pod);
        self.pods.insert(uid.clone(), pod);
        self.changed = true;
        is_new
    }

    /// Forgets a pod.
    pub(crate) fn remove(&mut self, uid: &str) {
        if let Some(before) = self.pods.remove(uid) {
            self.totals.subtract(&before);
            self.changed = true;
        }
    }

    /// The numbers, if any may have changed since the last call.
    pub(crate) fn take_changed(&mut self) -> Option<&PodTotals> {
        std::mem::take(&mut self.changed).then_some(&self.totals)
    }
}

impl Default for PodTotals {
    /// The numbers of no pods.
    fn default() -> Self {
        let mut working = BTreeMap::new();
        for lifecycle in LIFECYCLES {
            for config in ["desired", "orphan"] {
                working.insert([lifecycle, config, ""], 0);
                working.insert([lifecycle, config, "true"], 0);
            }
            working.insert([lifecycle, "runtime_only", "unknown"], 0);
        }
        PodTotals {
            active: [0; 2],
            working,
            ephemeral_containers: 0,
            pending_resizes: BTreeMap::new(),
            resizes: 0,
        }
    }
}

impl PodTotals {
    /// Adds a pod.
    fn add(&mut self, pod: &CountedPod) {
        self.update(pod, |total, number| *total += number);
    }

    /// Subtracts a pod that was added.
    fn subtract(&mut self, pod: &CountedPod) {
        self.update(pod, |total, number| *total -= number);
        if let Some(reason) = pod.pending_resize
            && self.pending_resizes.get(reason) == Some(&0)
        {
            self.pending_resizes.remove(reason);
        }
    }

    /// Applies a change to each number that a pod is part of.
    fn update(&mut self, pod: &CountedPod, change: impl Fn(&mut usize, usize)) {
        let key = [pod.lifecycle(), pod.config(), pod.static_label()];
        change(self.working.entry(key).or_default(), 1);
        if pod.has_source {
            change(&mut self.ephemeral_containers, pod.ephemeral_containers);
        }
        if pod.has_source && pod.lifecycle() != "terminated" {
            let [of_api, others] = &mut self.active;
            change(if pod.is_static { others } else { of_api }, 1);
        }
        if let Some(reason) = pod.pending_resize {
            change(self.pending_resizes.entry(reason).or_default(), 1);
        }
        change(&mut self.resizes, usize::from(pod.resizes));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn pods_count_by_their_state() {
        let mut counts = PodCounts::default();
        let served = CountedPod {
            phase: SyncPhase::Syncing,
            has_source: true,
            has_manifest: true,
            ephemeral_containers: 2,
            ..CountedPod::default()
        };
        let ended = CountedPod {
            phase: SyncPhase::Terminated,
            is_static: true,
            ..served.clone()
        };
        let orphan = CountedPod {
            phase: SyncPhase::Terminating,
            has_source: false,
            ..served.clone()
        };
        let unknown = CountedPod {
            phase: SyncPhase::Pending,
            ..CountedPod::default()
        };
        let stopped = CountedPod {
            phase: SyncPhase::Terminating,
            ..CountedPod::default()
        };
        assert!(!counts.set(&"a".into(), served.clone()));
        assert!(!counts.set(&"b".into(), ended));
        assert!(!counts.set(&"c".into(), orphan));
        assert!(
            !counts.set(&"d".into(), unknown),
            "not all sources have synced"
        );
        assert!(counts.set(&"d".into(), stopped.clone()));
        assert!(!counts.set(&"d".into(), stopped), "it is known by now");
        let totals = counts.take_changed().unwrap();
        assert_eq!(totals.active, [1, 0]);
        assert_eq!(totals.ephemeral_containers, 4);
        assert_eq!(totals.working.len(), 15);
        for key in [
            ["sync", "desired", ""],
            ["terminated", "desired", "true"],
            ["terminating", "orphan", ""],
            ["terminating", "runtime_only", "unknown"],
        ] {
            assert_eq!(totals.working[&key], 1, "{key:?}");
        }
        counts.set(&"a".into(), served);
        assert_eq!(counts.take_changed(), None);
        counts.remove("a");
        assert_eq!(counts.take_changed().unwrap().active, [0, 0]);
    }

    /// Pods of all kinds.
    fn any_pod() -> impl Strategy<Value = CountedPod> {
        let phase = prop_oneof![
            Just(SyncPhase::Pending),
            Just(SyncPhase::Syncing),
            Just(SyncPhase::Terminating),
            Just(SyncPhase::Terminated),
            Just(SyncPhase::CleanedUp),
        ];
        let reason = prop_oneof![Just(None), Just(Some("Deferred")), Just(Some("Infeasible"))];
        let flags = any::<[bool; 4]>();
        (phase, flags, 0usize..3, reason).prop_map(|(phase, flags, containers, reason)| {
            let [has_source, has_manifest, is_static, resizes] = flags;
            CountedPod {
                phase,
                has_source,
                has_manifest,
                is_static,
                ephemeral_containers: containers,
                pending_resize: reason,
                resizes,
            }
        })
    }

    proptest! {
        #[test]
        fn totals_are_those_of_the_present_pods(
            changes in prop::collection::vec((0u8..4, prop::option::of(any_pod())), 0..30),
        ) {
            let mut counts = PodCounts::default();
            for (uid, pod) in changes {
                let uid = PodUid::from(uid.to_string());
                let before = counts.pods.get(&uid).cloned();
                match pod.clone() {
                    Some(pod) => drop(counts.set(&uid, pod)),
                    None => counts.remove(&uid),
                }
                let mut expected = PodTotals::default();
                for pod in counts.pods.values() {
                    expected.add(pod);
                }
                let taken = counts.take_changed();
                prop_assert_eq!(taken, (before != pod).then_some(&expected));
            }
            prop_assert!(counts.totals.pending_resizes.values().all(|number| *number > 0));
            prop_assert_eq!(counts.totals.working.len(), 15);
        }
    }
}
