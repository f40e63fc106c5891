//! Patches pod statuses at the API server, and deletes pods that have ended. What is sent, and when,
//! is decided in `core/report`.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::StreamExt;
use futures::future::LocalBoxFuture;
use futures::stream::FuturesUnordered;
use polylet_api::{ApiConnection, ApiErrorKind, RetryTimer};
use polylet_kit::cause;
use polylet_model::PodUid;
use polylet_model::status::is_ready;
use polylet_schedule::TokenBucket;
use tracing::field::Empty;
use tracing::{Instrument, Span};

use crate::core::report::desired::{ApiAction, ApiStatus, DesiredStatus};
use crate::core::report::queue::PatchQueue;
use crate::core::report::request::{PatchResult, StatusRequest};
use crate::core::shared_status::SharedStatus;
use crate::metrics;
use crate::trace::StatusStep;
use request::ApiWriteError;

pub(crate) mod request;

type CompletedPatch = (StatusRequest, Result<PatchResult, ApiWriteError>);

/// Sends the requests of the queue.
pub(crate) struct StatusPatcher {
    connection: ApiConnection,
    queue: PatchQueue,
    unavailable: RetryTimer,
    in_flight: FuturesUnordered<LocalBoxFuture<'static, CompletedPatch>>,
    /// Causes of changes that are not sent yet, of pods whose start is traced.
    steps: BTreeMap<PodUid, StatusStep>,
}

impl StatusPatcher {
    pub(crate) fn new(connection: ApiConnection) -> Self {
        Self {
            connection,
            queue: PatchQueue::default(),
            unavailable: RetryTimer::new(Duration::from_millis(200), Duration::from_secs(5)),
            in_flight: FuturesUnordered::new(),
            steps: BTreeMap::new(),
        }
    }

    /// Sets a pod's desired status. With a step of the pod's start, its patch is the next one.
    pub(crate) fn set_desired(
        &mut self,
        pod: &PodUid,
        desired: DesiredStatus,
        step: Option<StatusStep>,
        now: Duration,
    ) {
        if let Some(mut newest) = step {
            if let Some(earlier) = self.steps.get(pod) {
                cause::fold(&mut newest.cause, &earlier.cause);
            }
            self.steps.insert(pod.clone(), newest);
        }
        self.queue.set_desired(pod, Some(desired), now);
    }

    /// A pod's desired status.
    pub(crate) fn desired_status(&self, pod: &str) -> Option<&SharedStatus> {
        self.queue.desired_status(pod)
    }

    /// Keeps a pod's statuses as JSON alone, until they are read again.
    pub(crate) fn drop_parsed(&mut self, pod: &str, own: &SharedStatus) {
        self.queue.drop_parsed(pod, own);
    }

    /// Handles the removal of a pod from this node.
    pub(crate) fn remove_desired(&mut self, pod: &PodUid, now: Duration) {
        self.steps.remove(pod);
        self.queue.set_desired(pod, None, now);
    }

    /// Sets a pod's status at the API server.
    pub(crate) fn set_api_status(&mut self, pod: &PodUid, api: Option<ApiStatus>, now: Duration) {
        self.queue.set_api_status(pod, api, now);
    }

    /// Whether a request is in flight, or pending and no repeat.
    pub(crate) fn is_busy(&self) -> bool {
        self.queue.is_busy()
    }

    pub(crate) fn next_due(&self) -> Option<Duration> {
        self.queue.next_due()
    }

    /// Sends the requests that are due.
    pub(crate) fn send_due(&mut self, rate_limit: &mut TokenBucket<Duration>, now: Duration) {
        for request in self.queue.take_due(rate_limit, now) {
            let span = self.span(&request);
            let connection = self.connection.clone();
            let call = async move {
                let result = request::send(&connection, &request).await;
                (request, result)
            };
            self.in_flight.push(Box::pin(call.instrument(span)));
        }
    }

    /// The span of a request; none unless the pod's start or end is traced.
    fn span(&mut self, request: &StatusRequest) -> Span {
        let (name, is_last) = match (&request.action, self.steps.get(&request.pod)) {
            (_, None) => return Span::none(),
            // The deletion follows its status.
            (ApiAction::Patch(_), Some(step)) => ("status.patch", !step.is_removal()),
            (ApiAction::Delete, Some(_)) => ("status.delete", true),
        };
        let step = match is_last {
            true => self.steps.remove(&request.pod),
            false => self.steps.get(&request.pod).cloned(),
        };
        let span = polylet_api::request_span!(
            "status.request",
            otel.name = name,
            k8s.pod.uid = request.pod.as_str(),
            k8s.pod.name = &*request.name,
            k8s.namespace.name = &*request.namespace,
            polylet.result = Empty,
        );
        cause::follow(&span, step.as_ref().map(|step| &step.cause));
        let outcome = step.and_then(|step| step.outcome);
        if let Some(outcome) = outcome.filter(|_| is_last) {
            cause::record_outcome(&span, outcome);
        }
        span
    }

    /// The next completed request; pending while none is in flight.
    pub(crate) async fn next(&mut self) -> CompletedPatch {
        match self.in_flight.next().await {
            Some(completed) => completed,
            None => std::future::pending().await,
        }
    }

    /// Records the result of a request. A pod whose status was patched, and the status.
    pub(crate) fn handle_completed(
        &mut self,
        (request, result): CompletedPatch,
        now: Duration,
    ) -> Option<(PodUid, SharedStatus)> {
        let result = match result {
            Ok(result) => {
                self.unavailable.succeeded();
                result
            }
            Err(error) => self.handle_error(&request, &error, now),
        };
        let patched = match &result {
            PatchResult::Patched(status) => Some((request.pod.clone(), status.clone())),
            _ => None,
        };
        if let Some(since_change) = self.queue.on_completed(&request, result, now) {
            metrics::count_status_sync(since_change);
        }
        patched
    }

    fn handle_error(
        &mut self,
        request: &StatusRequest,
        error: &ApiWriteError,
        now: Duration,
    ) -> PatchResult {
        let operation = match &request.action {
            ApiAction::Patch(_) => "patch status",
            ApiAction::Delete => "delete pod",
        };
        let pod = format!("{}/{}", request.namespace, request.name);
        let (uid, report) = (request.uid.as_str(), polylet_kit::report(error));
        match error.kind() {
            kind @ (ApiErrorKind::Unreachable
            | ApiErrorKind::TooManyRequests(_)
            | ApiErrorKind::Unauthorized) => {
                if self.queue.is_unavailable(now) {
                    return PatchResult::Unavailable(Duration::ZERO);
                }
                let retry_in = self.unavailable.failed(kind.retry_after());
                tracing::warn!(
                    pod,
                    pod_uid = uid,
                    operation,
                    error = report,
                    ?retry_in,
                    "API server unavailable; pausing pod status updates"
                );
                return PatchResult::Unavailable(retry_in);
            }
            // Gone or replaced, which the watch will report.
            ApiErrorKind::NotFound | ApiErrorKind::Conflict | ApiErrorKind::Gone => {
                tracing::debug!(
                    pod,
                    pod_uid = uid,
                    operation,
                    error = report,
                    "pod changed at the API server; waiting for the watch"
                );
            }
            _ => tracing::warn!(
                pod,
                pod_uid = uid,
                operation,
                error = report,
                "pod status update rejected; retrying"
            ),
        }
        self.unavailable.succeeded();
        PatchResult::Rejected
    }
}

/// Whether a patch has made the pod Ready at the API server.
pub(crate) fn is_ready_result(result: &PatchResult) -> bool {
    matches!(result, PatchResult::Patched(status) if is_ready(status))
}
