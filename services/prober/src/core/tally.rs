//! How often each container was asked, and how long that took.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use polylet_model::ids::PodUid;
use polylet_model::probe::ProbeKind;

use super::types::{Job, Observation};

/// Upper bounds in milliseconds of the classes of durations: those that metrics have by default.
pub(crate) const BOUNDS: [u16; 11] = [5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000];

/// The attempts of one probe of one container name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) namespace: Arc<str>,
    pub(crate) pod: Arc<str>,
    pub(crate) successful: u64,
    pub(crate) failed: u64,
    pub(crate) unknown: u64,
    /// Attempts that did not fail, by the first bound that they kept to.
    pub(crate) classes: [u64; BOUNDS.len()],
    /// Of the same attempts.
    pub(crate) time: Duration,
}

/// All tallies. A pod's go with its last container.
#[derive(Debug, Default)]
pub(crate) struct Tallies(BTreeMap<PodUid, BTreeMap<(Arc<str>, ProbeKind), Tally>>);

impl Tallies {
    pub(crate) fn count(&mut self, job: &Job, said: &Observation, took: Duration) {
        let of_pod = self.0.entry(job.id.pod.clone()).or_default();
        let tally = of_pod
            .entry((job.container.clone(), job.id.kind))
            .or_insert_with(|| Tally {
                namespace: job.namespace.clone(),
                pod: job.pod.clone(),
                ..Tally::default()
            });
        match said {
            Observation::Success | Observation::Warning(_) => tally.successful += 1,
            Observation::Unknown(_) => tally.unknown += 1,
            // As upstream: how long a failure takes says more of the time-out than of the container.
            Observation::Failure(_) => {
                tally.failed += 1;
                return;
            }
        }
        tally.time += took;
        let kept = |bound: &u16| took <= Duration::from_millis(u64::from(*bound));
        let class = BOUNDS.iter().position(kept);
        if let Some(class) = class.and_then(|class| tally.classes.get_mut(class)) {
            *class += 1;
        }
    }

    pub(crate) fn forget(&mut self, pod: &PodUid) {
        self.0.remove(pod);
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = (&PodUid, &str, ProbeKind, &Tally)> {
        self.0.iter().flat_map(|(uid, of_pod)| {
            of_pod
                .iter()
                .map(move |((container, kind), tally)| (uid, &**container, *kind, tally))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::tests::{failure, job};

    #[test]
    fn attempts_are_counted_by_result_and_duration() {
        let mut tallies = Tallies::default();
        let job = job("c", ProbeKind::Readiness);
        let unknown = Observation::Unknown(String::new());
        let warning = Observation::Warning(String::new());
        for (said, ms) in [
            (Observation::Success, 5),
            (Observation::Success, 6),
            (warning, 600),
            (unknown, 20_000),
            (failure(), 1),
        ] {
            tallies.count(&job, &said, Duration::from_millis(ms));
        }
        let (uid, container, kind, tally) = tallies.all().next().unwrap();
        assert_eq!(
            (uid, container, kind),
            (&job.id.pod, "main", ProbeKind::Readiness)
        );
        assert_eq!((tally.successful, tally.failed, tally.unknown), (3, 1, 1));
        assert_eq!(tally.classes, [1, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0]);
        assert_eq!(tally.time, Duration::from_millis(20_611));
        let pod = job.id.pod.clone();
        tallies.forget(&pod);
        assert!(tallies.all().next().is_none());
    }
}
