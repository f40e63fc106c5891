//! Running operations, each in a task of its own that sends its result.

use polylet_kit::{CancellationToken, cause, report_lines};
use tracing::field::Empty;
use tracing::{Instrument, Span};

use super::EventLoop;
use super::operation_events::OperationEvents;
use crate::core::layout::{self, VolumeId};
use crate::core::operation::{Operation, OperationError, OperationResult};
use crate::input::Input;
use crate::volume::progress::OwnershipProgress;

/// The reason of the condition of a volume that does not answer.
const NOT_RESPONDING: &str = "VolumeNotResponding";

impl EventLoop {
    pub(super) fn start(&mut self, operation: Operation) {
        let (executor, inputs) = (self.executor.clone(), self.inputs.clone());
        let cancel = CancellationToken::new();
        if let Operation::SetUp(id, _) = &operation {
            self.setting_up.insert(id.clone(), cancel.clone());
        }
        let span = self.span(&operation);
        let events = self.operation_events(&operation);
        (self.spawn)(Box::pin(async move {
            let progress = OwnershipProgress::default();
            let work = executor.execute(&operation, &cancel, &progress);
            let work = work.instrument(span.clone());
            let result = tokio::select! {
                result = work => result,
                never = events.emit_progress(&operation, &progress) => match never {},
            };
            events.emit_result(&operation, &result);
            let result = result.map(|_| ()).map_err(|error| OperationError {
                step: error.step(),
                in_use: error.is_in_use(),
                not_responding: error.is_not_responding(),
                message: report_lines(&error),
            });
            if let Err(error) = &result {
                span.record("otel.status_code", "ERROR");
                span.record("otel.status_description", &error.message);
                span.in_scope(|| log_failure(&operation, error));
            }
            span.record(
                "polylet.result",
                if result.is_ok() { "ok" } else { "failed" },
            );
            let cause = (!span.is_disabled()).then(|| cause::from_span(&span));
            drop(span);
            let cause = cause.filter(|cause| !cause.traceparent.is_empty());
            let result = OperationResult { operation, result };
            // The event loop ends only with the process.
            let _ = inputs.send(Input::OperationFinished(result, cause)).await;
        }));
    }

    /// Names a volume that does not answer in the health of the service, until it does.
    pub(super) fn record_health(&self, result: &OperationResult) {
        let pod = self.state.pod(result.operation.pod_uid());
        let mut object = format!("{}/{}", pod.namespace, pod.name);
        if let Some(id) = result.operation.volume() {
            object = format!("{object}/{}", id.name);
        }
        match &result.result {
            Err(error) if error.not_responding => {
                let name = result.operation.name();
                let message = format!("{name}: {}; retrying", error.message);
                self.conditions.set(NOT_RESPONDING, object, message);
            }
            _ => self.conditions.clear(NOT_RESPONDING, object),
        }
    }

    fn operation_events(&self, operation: &Operation) -> OperationEvents {
        let id = match operation {
            Operation::SetUp(id, _) | Operation::Update(id, _, _) => Some(id),
            Operation::TearDown(_) | Operation::RemovePodDir(_) => None,
        };
        let by_claim =
            |id: &&VolumeId| !layout::is_owned(&id.plugin) && id.plugin != layout::HOST_PATH;
        OperationEvents {
            events: self.events.clone(),
            pod: self.state.pod(operation.pod_uid()),
            bound: id
                .filter(by_claim)
                .and_then(|id| self.state.bound_claim(id)),
            was_usable: id.is_some_and(|id| self.state.is_usable(id)),
            node: self.state.node_name().to_owned(),
            layout: self.state.layout().clone(),
        }
    }

    /// A span for a mount that a pod's start waits for; other operations have none.
    fn span(&self, operation: &Operation) -> Span {
        let Operation::SetUp(id @ VolumeId { uid, plugin, name }, _) = operation else {
            return Span::none();
        };
        if self.state.is_usable(id) {
            return Span::none();
        }
        let pod = self.state.pod(uid);
        let span = tracing::info_span!(
            "volume.setup",
            k8s.pod.uid = uid.as_str(),
            k8s.pod.name = pod.name,
            k8s.namespace.name = pod.namespace,
            k8s.volume.name = name,
            k8s.volume.type = plugin,
            polylet.result = Empty,
            otel.status_code = Empty,
            otel.status_description = Empty,
        );
        if let Some(declared) = self.causes.get(uid) {
            cause::set_caller(&span, &declared.traceparent);
        }
        span
    }
}

/// To be called within the operation's span, so that the entry has its trace.
fn log_failure(operation: &Operation, error: &OperationError) {
    let volume = operation.volume();
    tracing::warn!(
        operation = operation.name(),
        pod_uid = operation.pod_uid().as_str(),
        plugin = volume.map(|id| id.plugin.as_str()),
        volume = volume.map(|id| id.name.as_str()),
        step = error.step,
        error = error.message,
        "volume operation failed; retrying"
    );
}
