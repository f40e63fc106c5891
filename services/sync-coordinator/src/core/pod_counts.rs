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
    changed: bool,
}

/// The numbers of pods by upstream's labels.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct PodTotals {
    /// Of the API server, and of other sources.
    pub(crate) active: [usize; 2],
    /// By lifecycle, configuration and whether they are static. Those without a pod are there, too.
    pub(crate) working: BTreeMap<[&'static str; 3], usize>,
    pub(crate) ephemeral_containers: usize,
    /// By reason.
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
        self.pods.insert(uid.clone(), pod);
        self.changed = true;
        is_new
    }

    /// Forgets a pod.
    pub(crate) fn remove(&mut self, uid: &str) {
        self.changed |= self.pods.remove(uid).is_some();
    }

    /// The numbers, if any may have changed since the last call.
    pub(crate) fn take_changed(&mut self) -> Option<PodTotals> {
        std::mem::take(&mut self.changed).then(|| self.totals())
    }

    fn totals(&self) -> PodTotals {
        let mut totals = PodTotals::default();
        for lifecycle in LIFECYCLES {
            for config in ["desired", "orphan"] {
                totals.working.insert([lifecycle, config, ""], 0);
                totals.working.insert([lifecycle, config, "true"], 0);
            }
            let unknown = [lifecycle, "runtime_only", "unknown"];
            totals.working.insert(unknown, 0);
        }
        for pod in self.pods.values() {
            let key = [pod.lifecycle(), pod.config(), pod.static_label()];
            *totals.working.entry(key).or_default() += 1;
            if pod.has_source {
                totals.ephemeral_containers += pod.ephemeral_containers;
            }
            if pod.has_source && pod.lifecycle() != "terminated" {
                let [of_api, others] = &mut totals.active;
                *(if pod.is_static { others } else { of_api }) += 1;
            }
            if let Some(reason) = pod.pending_resize {
                *totals.pending_resizes.entry(reason).or_default() += 1;
            }
            totals.resizes += usize::from(pod.resizes);
        }
        totals
    }
}

#[cfg(test)]
mod tests {
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
}
