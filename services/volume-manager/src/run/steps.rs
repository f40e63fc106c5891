//! Steps on their way: each in a task of its own that tells how it ended.

use polylet_kit::{CancellationToken, cause, report};
use tracing::field::Empty;
use tracing::{Instrument, Span};

use super::{Input, Runner};
use crate::convert;
use crate::core::layout::VolumeId;
use crate::core::plan::{Asked, Step, Why};
use crate::core::state::Outcome;

impl Runner {
    pub(super) fn start(&mut self, step: Step) {
        let (worker, inputs) = (self.worker.clone(), self.inputs.clone());
        let off = CancellationToken::new();
        if let Step::SetUp(id, _) = &step {
            self.setting_up.insert(id.clone(), off.clone());
        }
        let span = self.span(&step);
        let (notice, pod) = (self.notice.clone(), self.state.pod(uid_of(&step)));
        let tell = move |reason: &str, message: &str| {
            notice(&convert::pod_ref(&pod), reason, message);
        };
        (self.spawn)(Box::pin(async move {
            let result = worker.perform(&step, &off).instrument(span.clone()).await;
            let result = result.map_err(|error| Why {
                doing: error.doing(),
                message: report(&error),
            });
            if let Ok(Some(warning)) = &result {
                tell(warning.reason, &warning.message);
            }
            let result = result.map(|_| ());
            if let Err(Why { doing, message }) = &result {
                let error = message;
                span.record("otel.status_code", "ERROR");
                span.record("otel.status_description", error);
                tracing::warn!(
                    error,
                    doing,
                    step = told(&step),
                    "a step failed and is tried again"
                );
            }
            span.record("result", if result.is_ok() { "ok" } else { "failed" });
            let cause = (!span.is_disabled()).then(|| cause::of_span(&span));
            drop(span);
            let cause = cause.filter(|cause| !cause.traceparent.is_empty());
            // Nobody listens only when the process is about to end.
            let _ = inputs
                .send(Input::Finished(Outcome { step, result }, cause))
                .await;
        }));
    }

    /// A span for what a pod's start waits for; updates, checks and clean-up have none.
    fn span(&self, step: &Step) -> Span {
        let Step::SetUp(id @ VolumeId { uid, plugin, name }, _) = step else {
            return Span::none();
        };
        if self.state.is_usable(id) {
            return Span::none();
        }
        let pod = self.state.pod(uid);
        let span = tracing::info_span!(
            "volume.setup",
            k8s.pod.uid = uid,
            k8s.pod.name = pod.name,
            k8s.namespace.name = pod.namespace,
            volume.name = name,
            volume.kind = plugin,
            result = Empty,
            otel.status_code = Empty,
            otel.status_description = Empty,
        );
        cause::set_parent(&span, self.causes.get(uid));
        span
    }
}

pub(super) fn uid_of(step: &Step) -> &str {
    match step {
        Step::SetUp(id, _) | Step::Ask(id, _, _) | Step::TearDown(id) => &id.uid,
        Step::RemovePod(uid) => uid,
    }
}

fn told(step: &Step) -> String {
    match step {
        Step::SetUp(id, _) => format!("set up {} {} of {}", id.plugin, id.name, id.uid),
        Step::Ask(id, _, Asked::Publish) => {
            format!("publish {} {} of {} again", id.plugin, id.name, id.uid)
        }
        Step::Ask(id, _, Asked::Grow) => format!("grow {} {} of {}", id.plugin, id.name, id.uid),
        Step::TearDown(id) => format!("take away {} {} of {}", id.plugin, id.name, id.uid),
        Step::RemovePod(uid) => format!("remove the directory of {uid}"),
    }
}
