//! Counts and durations of attempts.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use polylet_model::ids::PodUid;
use polylet_model::probe::ProbeKind;

use super::types::{ProbeAttempt, ProbeOutput};

/// Upper bounds of the duration buckets in milliseconds: the default buckets of Prometheus clients.
pub(crate) const BUCKET_BOUNDS_MS: [u16; 11] =
    [5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000];

/// The attempts of one probe of one container name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ProbeCounter {
    pub(crate) namespace: Arc<str>,
    pub(crate) pod: Arc<str>,
    pub(crate) successful: u64,
    pub(crate) failed: u64,
    /// Successful attempts, each in the first bucket whose bound is not exceeded.
    pub(crate) buckets: [u64; BUCKET_BOUNDS_MS.len()],
    /// The total duration of the same attempts.
    pub(crate) duration: Duration,
}

/// All counters by pod. Those of a pod are dropped when the runtime no longer has it.
#[derive(Debug, Default)]
pub(crate) struct ProbeMetrics(BTreeMap<PodUid, BTreeMap<(Arc<str>, ProbeKind), ProbeCounter>>);

impl ProbeMetrics {
    pub(crate) fn record(
        &mut self,
        attempt: &ProbeAttempt,
        output: &ProbeOutput,
        duration: Duration,
    ) {
        let pod = self.0.entry(attempt.id.pod.clone()).or_default();
        let counter = pod
            .entry((attempt.container.clone(), attempt.id.kind))
            .or_insert_with(|| ProbeCounter {
                namespace: attempt.namespace.clone(),
                pod: attempt.pod.clone(),
                ..ProbeCounter::default()
            });
        match output {
            ProbeOutput::Success | ProbeOutput::Warning(_) => counter.successful += 1,
            // As upstream: the duration of a failure is mostly the timeout.
            ProbeOutput::Failure(_) => {
                counter.failed += 1;
                return;
            }
            // As upstream: an error of the probe itself is no result.
            ProbeOutput::Unknown(_) => return,
        }
        counter.duration += duration;
        let within = |bound: &u16| duration <= Duration::from_millis(u64::from(*bound));
        let bucket = BUCKET_BOUNDS_MS.iter().position(within);
        if let Some(count) = bucket.and_then(|bucket| counter.buckets.get_mut(bucket)) {
            *count += 1;
        }
    }

    pub(crate) fn remove(&mut self, pod: &PodUid) {
        self.0.remove(pod);
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&PodUid, &str, ProbeKind, &ProbeCounter)> {
        self.0.iter().flat_map(|(uid, pod)| {
            pod.iter()
                .map(move |((container, kind), counter)| (uid, &**container, *kind, counter))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::test_support::{attempt, failure};

    #[test]
    fn attempts_are_counted_by_result_and_duration() {
        let mut metrics = ProbeMetrics::default();
        let attempt = attempt("c", ProbeKind::Readiness);
        let unknown = ProbeOutput::Unknown(String::new());
        let warning = ProbeOutput::Warning(String::new());
        for (output, ms) in [
            (ProbeOutput::Success, 5),
            (ProbeOutput::Success, 6),
            (warning, 600),
            (unknown, 20_000),
            (failure(), 1),
        ] {
            metrics.record(&attempt, &output, Duration::from_millis(ms));
        }
        let (uid, container, kind, counter) = metrics.iter().next().unwrap();
        assert_eq!(
            (uid, container, kind),
            (&attempt.id.pod, "main", ProbeKind::Readiness)
        );
        assert_eq!((counter.successful, counter.failed), (3, 1));
        assert_eq!(counter.buckets, [1, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0]);
        assert_eq!(counter.duration, Duration::from_millis(611));
        let pod = attempt.id.pod.clone();
        metrics.remove(&pod);
        assert!(metrics.iter().next().is_none());
    }
}
