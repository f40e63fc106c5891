//! Steps on their way: each in a task of its own that tells how it ended.

use std::convert::Infallible;

use polylet_kit::{CancellationToken, cause, report};
use polylet_wire::common::v1::PodRef;
use polylet_wire::notice::v1::ObjectRef;
use tracing::field::Empty;
use tracing::{Instrument, Span};

use super::{About, Input, Notice, Runner, Told};
use crate::convert;
use crate::core::layout::{self, Layout, VolumeId};
use crate::core::plan::{Asked, Step, Why};
use crate::core::state::{Bound, Outcome};
use crate::core::telling::{self, Word};
use crate::volume::progress::Progress;
use crate::volume::{VolumeError, Warning};

impl Runner {
    pub(super) fn start(&mut self, step: Step) {
        let (worker, inputs) = (self.worker.clone(), self.inputs.clone());
        let off = CancellationToken::new();
        if let Step::SetUp(id, _) = &step {
            self.setting_up.insert(id.clone(), off.clone());
        }
        let span = self.span(&step);
        let teller = self.teller(&step);
        (self.spawn)(Box::pin(async move {
            let progress = Progress::default();
            let work = worker.perform(&step, &off, &progress);
            let work = work.instrument(span.clone());
            let result = tokio::select! {
                result = work => result,
                never = teller.tell_of(&step, &progress) => match never {},
            };
            teller.tell(&step, &result);
            let result = result.map(|_| ()).map_err(|error| Why {
                doing: error.doing(),
                in_use: error.is_in_use(),
                message: report(&error),
            });
            if let Err(Why { doing, message, .. }) = &result {
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

    fn teller(&self, step: &Step) -> Teller {
        let id = match step {
            Step::SetUp(id, _) | Step::Ask(id, _, _) => Some(id),
            Step::TearDown(_) | Step::RemovePod(_) => None,
        };
        Teller {
            notice: self.notice.clone(),
            pod: convert::pod_ref(&self.state.pod(uid_of(step))),
            bound: id
                .filter(|id| !layout::is_ours(&id.plugin) && id.plugin != layout::HOST_PATH)
                .and_then(|id| self.state.bound(id)),
            was_usable: id.is_some_and(|id| self.state.is_usable(id)),
            node: self.state.node().to_owned(),
            layout: self.state.layout().clone(),
        }
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

/// Tells people what came of a step, by what was known when it began.
struct Teller {
    notice: Notice,
    pod: PodRef,
    /// The claim and the volume, where it is had by a claim.
    bound: Option<Bound>,
    was_usable: bool,
    node: String,
    layout: Layout,
}

impl Teller {
    /// Tells people of what takes long, for as long as it takes.
    async fn tell_of(&self, step: &Step, progress: &Progress) -> Infallible {
        for nth in 0.. {
            progress.due(nth).await;
            if let Step::SetUp(id, _) = step {
                let files = (nth > 0).then(|| progress.files());
                self.word(&telling::of_group(id, &self.layout, files));
            }
        }
        std::future::pending().await
    }

    fn tell(&self, step: &Step, result: &Result<Option<Warning>, VolumeError>) {
        match result {
            Ok(warning) => {
                if let Some(warning) = warning {
                    let pod = About::Pod(self.pod.clone());
                    self.say(pod, true, warning.reason, &warning.message);
                }
                let words = telling::of_done(step, self.was_usable, &self.node, &self.layout);
                words.into_iter().for_each(|word| self.word(&word));
            }
            Err(error) => {
                if let (Step::SetUp(id, _), Some(why)) = (step, error.mismatch()) {
                    self.word(&telling::of_mismatch(id, why));
                }
            }
        }
    }

    fn word(&self, word: &Word) {
        let object = |kind: &str, namespace: &str, name: &str, uid: &str| {
            About::Object(ObjectRef {
                kind: kind.to_owned(),
                namespace: namespace.to_owned(),
                name: name.to_owned(),
                uid: uid.to_owned(),
            })
        };
        let about = match (word.about, &self.bound) {
            (telling::About::Pod, _) => About::Pod(self.pod.clone()),
            (telling::About::Claim, Some(Bound { claim, uid, .. })) => {
                object("PersistentVolumeClaim", &claim.namespace, &claim.name, uid)
            }
            (telling::About::Persistent, Some(Bound { volume, .. })) => {
                object("PersistentVolume", "", &volume.0, &volume.1)
            }
            _ => return,
        };
        self.say(about, word.warning, word.reason, &word.message);
    }

    fn say(&self, about: About, warning: bool, reason: &str, message: &str) {
        (self.notice)(Told {
            about,
            warning,
            reason: reason.to_owned(),
            message: message.to_owned(),
        });
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
