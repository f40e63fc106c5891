//! Traces that a filter selects, for those who ask for many or follow them.

use std::collections::VecDeque;
use std::sync::Arc;

use polylet_trace::{SpanRecord, TraceFilter, TraceSummary};
use tokio::sync::watch;

use super::{FollowState, TraceStoreInner};

/// Summaries that are decoded at once.
const PORTION: usize = 64;

/// Traces that a filter selects, in the order of their ends.
pub(crate) struct TraceSelection {
    store: Arc<TraceStoreInner>,
    filter: TraceFilter,
    /// The number of the next summary.
    next: u64,
    portion: VecDeque<TraceSummary>,
    /// Of those who follow.
    following: Option<watch::Receiver<FollowState>>,
}

impl TraceSelection {
    pub(super) fn new(
        store: Arc<TraceStoreInner>,
        filter: TraceFilter,
        follow: bool,
    ) -> TraceSelection {
        let following = follow.then(|| store.following.subscribe());
        let next = match (follow, filter.since) {
            (true, None) => store.summaries().next_number(),
            _ => 0,
        };
        TraceSelection {
            store,
            filter,
            next,
            portion: VecDeque::new(),
            following,
        }
    }

    /// The next summary; waits for one if this follows. `None` at the end. Nothing is lost if it is cancelled.
    pub(crate) async fn next(&mut self) -> Option<TraceSummary> {
        loop {
            if let Some(summary) = self.portion.pop_front() {
                return Some(summary);
            }
            // Before the look, so that what ends after it is noticed.
            let stopping = match &mut self.following {
                Some(following) => following.borrow_and_update().stopping,
                None => false,
            };
            let (portion, next) = {
                let summaries = self.store.summaries();
                summaries.select(self.next, &self.filter, PORTION)
            };
            self.next = next;
            if !portion.is_empty() {
                self.portion = portion.into();
                continue;
            }
            let following = self.following.as_mut().filter(|_| !stopping)?;
            following.changed().await.ok()?;
        }
    }

    /// The spans of a trace with its root; none if they were dropped.
    pub(crate) fn spans(&self, of: &TraceSummary) -> Vec<SpanRecord> {
        self.store.buffer().trace(of.id)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use jiff::Timestamp;
    use polylet_kit::cause::{OUTCOME_ATTRIBUTE, ROOT_ATTRIBUTE, root_id};
    use polylet_kit::config::TraceRing;

    use super::super::TraceStore;
    use super::*;

    /// Records the only span of a trace.
    fn record(store: &TraceStore, trace: u8, outcome: &str) {
        let attributes = [(ROOT_ATTRIBUTE, "pod.start"), (OUTCOME_ATTRIBUTE, outcome)];
        let attributes = attributes.map(|(key, value)| (key.to_owned(), value.to_owned()));
        let span = SpanRecord {
            trace: [trace; 16],
            span: [0xfe; 8],
            parent: Some(root_id([trace; 16])),
            service: "pleg".to_owned(),
            version: "0.1.0".to_owned(),
            name: "pleg.observe".to_owned(),
            start: Timestamp::from_second(i64::from(trace)).unwrap(),
            end: Timestamp::from_second(i64::from(trace) + 1).unwrap(),
            attributes: BTreeMap::from(attributes),
            error: None,
            links: Vec::new(),
        };
        store.inner.buffer().push(&span, super::super::now());
        store.inner.received.notify_one();
    }

    async fn next(selection: &mut TraceSelection) -> Option<u8> {
        selection.next().await.map(|summary| summary.id[0])
    }

    #[tokio::test(start_paused = true)]
    async fn followed_traces_come_as_they_end() {
        let store = TraceStore::new(&TraceRing::default(), "n1", None);
        record(&store, 1, "ready");
        let mut from_begin = store.select(
            TraceFilter {
                since: Some(Timestamp::UNIX_EPOCH),
                ..TraceFilter::default()
            },
            true,
        );
        let first = from_begin.next().await.unwrap();
        assert_eq!(first.versions["pleg"], "0.1.0");
        assert_eq!(from_begin.spans(&first).len(), 2);
        // Only what ends from now on, and only what is selected.
        let ready = TraceFilter {
            outcome: Some("ready".to_owned()),
            ..TraceFilter::default()
        };
        let mut ready = store.select(ready, true);
        record(&store, 2, "failed");
        record(&store, 3, "ready");
        assert_eq!(next(&mut ready).await, Some(3));
        assert_eq!(next(&mut from_begin).await, Some(2));
        assert_eq!(next(&mut from_begin).await, Some(3));
        let mut all = store.select(TraceFilter::default(), false);
        let mut ids = Vec::new();
        while let Some(id) = next(&mut all).await {
            ids.push(id);
        }
        assert_eq!(ids, [1, 2, 3]);
        store.set_stopping(true);
        assert_eq!(next(&mut ready).await, None);
        store.set_stopping(false);
        record(&store, 4, "ready");
        assert_eq!(next(&mut ready).await, Some(4));
    }

    #[tokio::test(start_paused = true)]
    async fn spans_that_come_late_are_part_of_the_summary() {
        let store = TraceStore::new(&TraceRing::default(), "n1", None);
        let mut following = store.select(TraceFilter::default(), true);
        record(&store, 1, "ready");
        let first = following.next().await.unwrap();
        assert_eq!(first.steps.len(), 1);
        // The runtime's, below the only step.
        let start = first.start + std::time::Duration::from_millis(100);
        let late = SpanRecord {
            trace: [1; 16],
            span: [0xfd; 8],
            parent: Some([0xfe; 8]),
            service: "containerd".to_owned(),
            version: String::new(),
            name: "runtime.v1.RuntimeService/RunPodSandbox".to_owned(),
            start,
            end: start + std::time::Duration::from_millis(700),
            attributes: BTreeMap::new(),
            error: None,
            links: Vec::new(),
        };
        store.inner.buffer().push(&late, super::super::now());
        store.inner.received.notify_one();
        tokio::time::sleep(std::time::Duration::from_secs(3)).await;
        let mut all = store.select(TraceFilter::default(), false);
        let revised = all.next().await.unwrap();
        let times: Vec<_> = revised
            .steps
            .values()
            .map(|time| time.as_millis())
            .collect();
        assert_eq!(times, [700, 300]);
        assert_eq!(revised.duration, first.duration);
        assert_eq!(next(&mut all).await, None, "it counts once");
        // Who follows was told of it.
        record(&store, 2, "ready");
        assert_eq!(next(&mut following).await, Some(2));
    }

    #[tokio::test(start_paused = true)]
    async fn another_program_takes_over_spans_and_summaries() {
        let store = TraceStore::new(&TraceRing::default(), "n1", None);
        record(&store, 1, "ready");
        let mut following = store.select(TraceFilter::default(), true);
        assert_eq!(next(&mut following).await, Some(1));
        for is_older in [false, true] {
            let mut file = tempfile::tempfile().unwrap();
            if is_older {
                serde_json::to_writer(&mut file, &store.inner.buffer().content()).unwrap();
            } else {
                store.save(&mut file).unwrap();
            }
            std::io::Seek::rewind(&mut file).unwrap();
            let restored = TraceStore::new(&TraceRing::default(), "n1", None);
            restored.restore(file);
            let mut all = restored.select(TraceFilter::default(), false);
            assert_eq!(next(&mut all).await, (!is_older).then_some(1));
            assert_eq!(restored.inner.buffer().len(), 1);
        }
    }
}
