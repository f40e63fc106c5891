//! Counts of the steps of starts, with exemplars that lead to their traces.

use std::sync::{Mutex, PoisonError};

use polylet_metrics::{Metric, register};
use polylet_trace::{TraceSummary, hex, parse_trace_id};

use super::TraceStoreInner;
use crate::core::start_steps::CountedSteps;

/// From the steps between two services to pulls of large images.
const BUCKETS: [f64; 15] = [
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 120.0,
];

static STEP_SECONDS: Metric = Metric::histogram(
    "polylet_pod_start_step_seconds",
    "Time of a step on the critical path of a pod's start, of pods that became ready. The steps of a start sum up to its \
     duration.",
    &["service", "step"],
    &BUCKETS,
);

/// The steps that have a series each.
#[derive(Default)]
pub(super) struct StartCounts(Mutex<CountedSteps>);

impl StartCounts {
    /// Makes the counts those of this process.
    pub(super) fn new() -> StartCounts {
        register(&[&STEP_SECONDS]);
        StartCounts::default()
    }

    /// Counts the steps of a trace, if it is a start.
    pub(super) fn count(&self, trace: &TraceSummary) {
        let times = {
            let mut counted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            counted.times(trace)
        };
        let id = hex(&trace.id);
        let ended_at = trace.end().as_millisecond() as f64 / 1e3;
        for (labels, time) in times {
            let labels = [&*labels.service, &*labels.step];
            STEP_SECONDS.observe_in_trace(&labels, time.as_secs_f64(), &id, ended_at);
        }
    }
}

/// Forgets exemplars whose traces were dropped.
pub(super) fn forget_dropped(store: &TraceStoreInner) {
    let buffer = store.buffer();
    STEP_SECONDS.retain_exemplars(|id| parse_trace_id(id).is_some_and(|id| buffer.contains(id)));
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use jiff::Timestamp;
    use polylet_kit::cause::{OUTCOME_ATTRIBUTE, ROOT_ATTRIBUTE, root_id};
    use polylet_kit::config::TraceRing;
    use polylet_trace::{POD_UID, SpanRecord};

    use super::*;
    use crate::traces::TraceStore;

    fn start(trace: u8) -> SpanRecord {
        let attributes = [
            (OUTCOME_ATTRIBUTE, "ready"),
            (ROOT_ATTRIBUTE, "pod.start"),
            (POD_UID, "u1"),
        ];
        let attributes = attributes.map(|(key, value)| (key.to_owned(), value.to_owned()));
        SpanRecord {
            trace: [trace; 16],
            span: [0xfe; 8],
            parent: Some(root_id([trace; 16])),
            service: "pleg".to_owned(),
            version: String::new(),
            name: format!("step{trace}"),
            start: Timestamp::UNIX_EPOCH,
            end: Timestamp::from_millisecond(40).unwrap(),
            attributes: BTreeMap::from(attributes),
            error: None,
            links: Vec::new(),
        }
    }

    fn exemplars(store: &TraceStore) -> BTreeSet<String> {
        let families = store.counts().into_iter();
        let mut steps = families.filter(|family| family.name == STEP_SECONDS.name());
        let series = steps.next().unwrap().series.into_iter();
        let histograms = series.filter_map(|series| series.histogram);
        let exemplars = histograms.flat_map(|histogram| histogram.exemplars);
        exemplars.map(|exemplar| exemplar.trace_id).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn exemplars_are_those_of_traces_that_are_kept() {
        let bounds = TraceRing {
            max_spans: 1,
            ..TraceRing::default()
        };
        let store = TraceStore::for_tests(&bounds);
        let mut ended = store.select(polylet_trace::TraceFilter::default(), true);
        for trace in [0xe1, 0xe2] {
            store
                .inner
                .buffer()
                .push(&start(trace), super::super::now());
            store.inner.received.notify_one();
            assert_eq!(ended.next().await.unwrap().id, [trace; 16]);
            // The trace before has made room.
            assert_eq!(exemplars(&store), BTreeSet::from([hex(&[trace; 16])]));
        }
    }
}
