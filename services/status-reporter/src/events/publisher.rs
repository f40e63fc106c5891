//! The queue of notices, and the requests that write them as events.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use futures::future::LocalBoxFuture;
use futures::{FutureExt, StreamExt};
use polylet_api::{ApiConnection, ApiErrorKind, ClientConfig};
use polylet_kit::Ctx;
use polylet_kit::state_file::StateFileError;
use polylet_model::PodUid;
use polylet_schedule::TokenBucket;
use polylet_wire::notice::v1::{Notice, Severity};
use polylet_wire::time;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, sleep_until};

use super::sources;
use crate::core::events::removed::RemovedPods;
use crate::core::events::{Correlator, EventNotice, InvolvedObject, PendingEvent, delay};
use crate::report::request::{self, ApiWriteError};
use crate::state_file::StateWriter;

/// Attempts to write an event and the time between them, as upstream.
const MAX_ATTEMPTS: u32 = 12;
const RETRY_INTERVAL: Duration = Duration::from_secs(10);

/// The last notice of each service: the incarnation and sequence number in its id.
type NoticePositions = BTreeMap<String, (String, u64)>;

/// A notice that is not written yet.
struct QueuedNotice {
    notice: EventNotice,
    received: Duration,
    /// Source service, its incarnation, and the sequence number.
    position: (String, String, u64),
}

/// Writes events one after the other.
pub(super) struct EventPublisher {
    ctx: Ctx,
    started: Instant,
    node: String,
    correlator: Correlator,
    rate_limit: TokenBucket<Duration>,
    busy: watch::Receiver<bool>,
    removals: mpsc::UnboundedReceiver<PodUid>,
    removed: RemovedPods,
    queue: VecDeque<QueuedNotice>,
    /// Warnings in the queue.
    warnings: usize,
    connection: ApiConnection,
    in_flight: Option<LocalBoxFuture<'static, ()>>,
    received: NoticePositions,
    /// Notices that were sent; persisted, so that the others are read again after a restart.
    sent: NoticePositions,
    writer: StateWriter<NoticePositions>,
    dropped: u64,
}

impl EventPublisher {
    pub(super) fn new(
        ctx: &Ctx,
        access: ClientConfig,
        busy: watch::Receiver<bool>,
        removals: mpsc::UnboundedReceiver<PodUid>,
    ) -> Result<Self, StateFileError> {
        let path = ctx.run_dir().join("notices.json");
        let (writer, sent) = StateWriter::<NoticePositions>::open(path)?;
        let config = &ctx.config().kubelet;
        let (rate, burst) = (config.event_record_qps, config.event_burst);
        Ok(Self {
            started: Instant::now(),
            node: ctx.node_name().to_owned(),
            correlator: Correlator::new(ctx.node_name()),
            rate_limit: TokenBucket::new(f64::from(rate), f64::from(burst), Duration::ZERO),
            busy,
            removals,
            removed: RemovedPods::default(),
            queue: VecDeque::new(),
            warnings: 0,
            connection: ApiConnection::new(access),
            in_flight: None,
            received: sent.clone(),
            sent,
            writer,
            dropped: 0,
            ctx: ctx.clone(),
        })
    }

    pub(super) async fn run(mut self) {
        let drain = self.ctx.drain();
        let mut notices = sources::all(&self.ctx);
        loop {
            let next_due = self.send_next().map(|at| self.started + at);
            let forget_due = self.removed.due().map(|at| self.started + at);
            tokio::select! {
                () = drain.cancelled() => break,
                Some(notice) = notices.next() => {
                    let mut batch = vec![notice];
                    while let Some(Some(notice)) = notices.next().now_or_never() {
                        batch.push(notice);
                    }
                    self.handle_notices(batch);
                }
                () = completed(&mut self.in_flight) => self.in_flight = None,
                () = until(next_due) => {}
                Some(uid) = self.removals.recv() => self.removed.add(uid.as_str(), self.started.elapsed()),
                () = until(forget_due) => self.forget_removed(),
                Ok(()) = self.busy.changed() => {}
                () = self.writer.wait() => {}
            }
            self.writer.write_if_due(|| self.sent.clone());
        }
        self.writer.finish(self.sent).await;
    }

    fn forget_removed(&mut self) {
        let removed = self.removed.take_due(self.started.elapsed());
        if !removed.is_empty() {
            self.correlator.forget(&removed);
        }
    }

    /// Queues new notices in the order of their sequence numbers.
    fn handle_notices(&mut self, notices: Vec<Notice>) {
        let mut ordered: Vec<_> = notices
            .iter()
            .filter_map(|notice| Some((position(notice)?, notice)))
            .collect();
        ordered.sort_by_key(|(position, _)| *position);
        for ((service, incarnation, number), notice) in ordered {
            let known = self.received.get(service);
            if known.is_some_and(|(known, last)| known == incarnation && *last >= number) {
                continue;
            }
            let last = (incarnation.to_owned(), number);
            self.received.insert(service.to_owned(), last);
            if self.queue.len() >= delay::MAX_QUEUED {
                self.dropped += 1;
                if self.dropped.is_power_of_two() {
                    tracing::warn!(count = self.dropped, "event queue is full; events dropped");
                }
                continue;
            }
            let notice = self.event_notice(notice);
            self.warnings += usize::from(notice.warning);
            self.queue.push_back(QueuedNotice {
                notice,
                received: self.started.elapsed(),
                position: (service.to_owned(), incarnation.to_owned(), number),
            });
        }
    }

    fn event_notice(&self, notice: &Notice) -> EventNotice {
        let object = match (&notice.pod, &notice.object) {
            (Some(pod), _) => InvolvedObject {
                kind: "Pod".to_owned(),
                namespace: pod.namespace.clone(),
                name: pod.name.clone(),
                uid: pod.uid.clone(),
            },
            (None, Some(object)) => InvolvedObject {
                kind: object.kind.clone(),
                namespace: object.namespace.clone(),
                name: object.name.clone(),
                uid: object.uid.clone(),
            },
            // Upstream uses the node's name as its uid, too, and clients select by that.
            (None, None) => InvolvedObject {
                kind: "Node".to_owned(),
                namespace: String::new(),
                name: self.node.clone(),
                uid: self.node.clone(),
            },
        };
        EventNotice {
            id: notice.id.clone(),
            object,
            field_path: notice.field_path.clone(),
            warning: notice.severity() == Severity::Warning,
            reason: notice.reason.clone(),
            message: notice.message.clone(),
            at: time::from_wire_opt(notice.at.as_ref()).unwrap_or_default(),
            annotations: notice.annotations.clone().into_iter().collect(),
        }
    }

    /// Sends the next event; returns when it is due if it is not yet.
    fn send_next(&mut self) -> Option<Duration> {
        while self.in_flight.is_none() {
            let now = self.started.elapsed();
            let busy = *self.busy.borrow_and_update();
            let received = self.queue.front()?.received;
            let due = delay::due(received, self.queue.len(), self.warnings > 0, busy);
            if due > now {
                return Some(due);
            }
            if let Err(at) = self.rate_limit.try_take(now) {
                return Some(at);
            }
            let QueuedNotice {
                notice, position, ..
            } = self.queue.pop_front()?;
            self.warnings -= usize::from(notice.warning);
            if self.queue.is_empty() {
                // A queue that was full once would stay as large.
                self.queue = VecDeque::new();
            }
            let (service, incarnation, number) = position;
            self.sent.insert(service, (incarnation, number));
            self.writer.schedule();
            if let Some(event) = self.correlator.correlate(&notice, now) {
                let connection = self.connection.clone();
                let call = async move { write_with_retries(&connection, &event).await };
                self.in_flight = Some(call.boxed_local());
            }
        }
        None
    }
}

/// The source service of a notice, its incarnation, and the sequence number.
fn position(notice: &Notice) -> Option<(&str, &str, u64)> {
    let (source, number) = notice.id.rsplit_once('-')?;
    let (service, incarnation) = source.rsplit_once('-')?;
    Some((service, incarnation, number.parse().ok()?))
}

async fn until(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}

async fn completed(call: &mut Option<LocalBoxFuture<'static, ()>>) {
    match call {
        Some(call) => call.await,
        None => std::future::pending().await,
    }
}

/// Writes an event, or drops it after the last attempt.
async fn write_with_retries(connection: &ApiConnection, event: &PendingEvent) {
    for _ in 0..MAX_ATTEMPTS {
        let Err(error) = write(connection, event).await else {
            return;
        };
        let report = polylet_kit::report(&error);
        if !error.kind().is_transient() {
            // For example, a namespace that is being deleted accepts no events.
            return tracing::debug!(
                event = event.name,
                error = report,
                "event rejected; dropped"
            );
        }
        tracing::debug!(
            event = event.name,
            error = report,
            retry_in = ?RETRY_INTERVAL,
            "failed to write event; retrying"
        );
        sleep(RETRY_INTERVAL).await;
    }
    tracing::warn!(event = event.name, "API server unavailable; event dropped");
}

async fn write(connection: &ApiConnection, event: &PendingEvent) -> Result<(), ApiWriteError> {
    let events = format!("/api/v1/namespaces/{}/events", event.namespace);
    if let Some(patch) = &event.patch {
        let path = format!("{events}/{}", event.name);
        match request::patch(connection, path, patch).await {
            // The event has expired there: created again.
            Err(error) if error.kind() == ApiErrorKind::NotFound => {}
            patched => return patched.map(drop),
        }
    }
    match request::create(connection, events, &event.event).await {
        // Created by the previous process instance.
        Err(error) if error.kind() == ApiErrorKind::AlreadyExists => Ok(()),
        created => created.map(drop),
    }
}
