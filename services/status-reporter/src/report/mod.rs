//! Telling the cluster: one patch for each real change of a pod's status, and its removal when
//! nothing of it is left. What is told, and when, is decided in `core/report`.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::StreamExt;
use futures::future::LocalBoxFuture;
use futures::stream::FuturesUnordered;
use polylet_api::{Backoff, Connection, Refusal};
use polylet_kit::cause;
use polylet_model::status::is_ready;
use polylet_wire::common::v1::Cause;
use tracing::{Instrument, Span, info_span};

use crate::core::bucket::{Bucket, Moment};
use crate::core::report::pods::{End, Job, Pods};
use crate::core::report::want::{Holds, Says, Step};

pub(crate) mod request;

/// A request's end, as it came.
type Ended = (Job, Result<End, request::Failed>);

/// Owns what is told of pods, and the requests under way.
pub(crate) struct Reports {
    connection: Connection,
    pods: Pods,
    away: Backoff,
    under_way: FuturesUnordered<LocalBoxFuture<'static, Ended>>,
    /// What set off the news that are not sent yet; of pods whose start is still traced.
    causes: BTreeMap<String, Cause>,
}

impl Reports {
    pub(crate) fn new(connection: Connection) -> Self {
        Self {
            connection,
            pods: Pods::default(),
            away: Backoff::new(Duration::from_millis(200), Duration::from_secs(5)),
            under_way: FuturesUnordered::new(),
            causes: BTreeMap::new(),
        }
    }

    /// What is said of a pod. With a cause, sending it is a step of the pod's start.
    pub(crate) fn say(&mut self, pod: &str, says: Says, cause: Option<Cause>, now: Moment) {
        if let Some(mut newest) = cause {
            if let Some(earlier) = self.causes.get(pod) {
                cause::fold(&mut newest, earlier);
            }
            self.causes.insert(pod.to_owned(), newest);
        }
        self.pods.say(pod, Some(says), now);
    }

    pub(crate) fn gone(&mut self, pod: &str, now: Moment) {
        self.causes.remove(pod);
        self.pods.say(pod, None, now);
    }

    /// What the cluster holds of a pod.
    pub(crate) fn hold(&mut self, pod: &str, holds: Option<Holds>, now: Moment) {
        self.pods.hold(pod, holds, now);
    }

    /// Whether something of a pod is on its way, or waits to be.
    pub(crate) fn is_busy(&self) -> bool {
        self.pods.is_busy()
    }

    pub(crate) fn next_due(&self) -> Option<Moment> {
        self.pods.next_due()
    }

    /// Makes the requests that are due.
    pub(crate) fn act(&mut self, bucket: &mut Bucket, now: Moment) {
        for job in self.pods.due(bucket, now) {
            let span = self.span(&job);
            let connection = self.connection.clone();
            let work = async move {
                let end = request::send(&connection, &job).await;
                (job, end)
            };
            self.under_way.push(Box::pin(work.instrument(span)));
        }
    }

    /// A request's span: only while the pod's start is traced.
    fn span(&mut self, job: &Job) -> Span {
        let Some(cause) = self.causes.remove(&job.pod) else {
            return Span::none();
        };
        let span = info_span!(
            "status.patch",
            k8s.pod.uid = &*job.pod,
            k8s.pod.name = &*job.name,
            k8s.namespace.name = &*job.namespace,
            result = tracing::field::Empty,
        );
        cause::set_parent(&span, Some(&cause));
        span
    }

    /// The end of a request; waits for ever while none is under way.
    pub(crate) async fn next(&mut self) -> Ended {
        match self.under_way.next().await {
            Some(ended) => ended,
            None => std::future::pending().await,
        }
    }

    /// Takes the end of a request in.
    pub(crate) fn ended(&mut self, (job, result): Ended, now: Moment) {
        let end = match result {
            Ok(end) => {
                self.away.succeeded();
                end
            }
            Err(failed) => self.failed(&job, &failed, now),
        };
        self.pods.ended(&job, end, now);
    }

    fn failed(&mut self, job: &Job, failed: &request::Failed, now: Moment) -> End {
        let what = match &job.step {
            Step::Patch(_) => "a pod's status is not told to the cluster",
            Step::Delete => "a pod that has ended is not removed from the cluster",
        };
        let (uid, why) = (&*job.uid, polylet_kit::report(failed));
        match failed.refusal() {
            Refusal::Unreachable | Refusal::Busy(_) | Refusal::Unauthorized => {
                if self.pods.is_away(now) {
                    return End::Away(Duration::ZERO);
                }
                let asked = match failed.refusal() {
                    Refusal::Busy(asked) => asked,
                    _ => None,
                };
                let wait = self.away.failed(asked);
                tracing::warn!(k8s.pod.uid = uid, ?wait, "{what}: {why}");
                return End::Away(wait);
            }
            // It is gone or another one there, which the watch tells.
            Refusal::NotFound | Refusal::Conflict | Refusal::Gone => {
                tracing::debug!(k8s.pod.uid = uid, "{what}: {why}");
            }
            _ => tracing::warn!(k8s.pod.uid = uid, "{what}: {why}"),
        }
        self.away.succeeded();
        End::Refused
    }
}

/// Whether the cluster now knows that a pod is ready.
pub(crate) fn tells_ready(end: &End) -> bool {
    matches!(end, End::Patched(status) if is_ready(status))
}
