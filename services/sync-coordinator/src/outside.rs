//! Where decisions become acts. Everything that the coordinator does to the world goes through
//! [`Outside`], and every answer comes back as an [`Input`].

use std::collections::BTreeSet;
use std::rc::Rc;

use polylet_kit::CancellationToken;
use polylet_wire::common::v1::PodRef;
use polylet_wire::volume::v1::CompleteDesiredRequest;
use tokio::sync::mpsc::UnboundedSender;
use tracing::{Instrument, Span};

use crate::act::logs::Running;
use crate::act::{self, Hands, Job, leftovers, object, refresh, trace};
use crate::core::hooks::Lifecycle;
use crate::core::learn::{Lacking, Outcome};
use crate::core::notices::Notice;
use crate::core::step::{Step, StepKey};
use crate::run::Input;
use crate::underway::Underway;

/// The world as the coordinator acts on it. None of these waits.
pub trait Outside {
    /// Carries a step out within a span; [`Input::StepDone`] follows. The token, where there is
    /// one, ends the step early.
    fn carry_out(&self, job: Job, span: Span) -> Option<CancellationToken>;
    /// Asks the runtime how a pod stands after so many acts; [`Input::Refreshed`] follows.
    fn refresh(&self, pod: &PodRef, acts: u64, span: Span);
    /// Tells volume-manager, under a name of this life, that this many pods are all that is wanted;
    /// [`Input::Completed`] follows.
    fn complete(&self, declarer: u32, pod_count: u32);
    /// Keeps what is under way with a pod's containers, before the steps that follow from it.
    fn keep(&self, uid: &str, lifecycle: &Lifecycle);
    /// Drops what is kept of a pod.
    fn forget(&self, uid: &str);
    /// Says which containers of a pod run, so that their logs are kept small. A world without logs
    /// need not care.
    fn running(&self, _running: Running) {}
    /// Tells people of a decision. A world without people need not care.
    fn tell(&self, _pod: &PodRef, _notice: Notice) {}
    /// Waits for an object without which a step failed; [`Input::Appeared`] follows. The token ends
    /// the wait.
    fn await_object(&self, _uid: &str, _key: &StepKey, _lacking: Lacking) -> CancellationToken {
        CancellationToken::new()
    }
    /// Looks for pods of which something is on the node; [`Input::Leftovers`] follows.
    fn leftovers(&self);
    /// Everything has been heard: what is kept of pods other than these is nobody's.
    fn known(&self, _is_known: &dyn Fn(&str) -> bool) {}
    /// Takes away links that lead to no log, but for these. A world without logs need not care.
    fn unlink(&self, _needed: BTreeSet<String>) {}
}

/// The real world: steps run in the background of the process.
pub(crate) struct Background {
    hands: Rc<Hands>,
    underway: Underway,
    inputs: UnboundedSender<Input>,
    running: UnboundedSender<Running>,
}

impl Background {
    /// Acts with these hands and answers there; tells the keeper of logs what runs.
    pub(crate) fn new(
        hands: Rc<Hands>,
        underway: Underway,
        inputs: UnboundedSender<Input>,
        running: UnboundedSender<Running>,
    ) -> Self {
        Background {
            hands,
            underway,
            inputs,
            running,
        }
    }
}

impl Outside for Background {
    fn carry_out(&self, job: Job, span: Span) -> Option<CancellationToken> {
        let key = job.step.key();
        // A long wait must not hold the process up; what was asked goes on in the runtime.
        let drain = self.hands.ctx.drain();
        let cancel = match key {
            StepKey::Pull(_)
            | StepKey::PostStart(_)
            | StepKey::PreStop(_)
            | StepKey::StopContainer(_) => Some(drain.child_token()),
            _ => None,
        };
        let given = cancel.clone();
        let cancel = cancel.unwrap_or_default();
        let (hands, inputs) = (Rc::clone(&self.hands), self.inputs.clone());
        let work = async move {
            let outcome = tokio::select! {
                outcome = act::carry_out(&hands, &job) => outcome,
                () = cancel.cancelled() => Outcome::Cancelled,
            };
            trace::ended(&Span::current(), &outcome);
            // How it ended is the runtime's to say, and the next step hangs on it.
            let state = match &job.step {
                Step::StopContainer { .. } => {
                    refresh::once(&hands, &job.pod.uid).await.ok().flatten()
                }
                // Those who tell what containers have learn it by this.
                Step::Resize { .. } => refresh::anew(&hands, &job.pod.uid).await.ok().flatten(),
                _ => None,
            };
            // Nobody listens only when the process is ending.
            let _ = inputs.send(Input::StepDone {
                uid: job.pod.uid.clone(),
                key,
                outcome: Box::new(outcome),
                state,
            });
        };
        self.hands.ctx.background("step", work.instrument(span));
        given
    }

    fn refresh(&self, pod: &PodRef, acts: u64, span: Span) {
        let (hands, inputs, uid) = (Rc::clone(&self.hands), self.inputs.clone(), pod.uid.clone());
        let work = async move {
            let state = refresh::until_answered(&hands, &uid).await;
            let _ = inputs.send(Input::Refreshed { uid, acts, state });
        };
        self.hands.ctx.background("refresh", work.instrument(span));
    }

    fn complete(&self, declarer: u32, pod_count: u32) {
        let request = CompleteDesiredRequest {
            declarer: act::volumes::declarer(&self.hands.ctx, declarer),
            pod_count,
        };
        let (mut volumes, inputs) = (self.hands.volumes.clone(), self.inputs.clone());
        self.hands.ctx.background("complete", async move {
            let answer = volumes.complete_desired(request).await;
            let result = answer.map(drop);
            let result = result.map_err(|status| act::volumes::refused(&status));
            let _ = inputs.send(Input::Completed(declarer, result));
        });
    }

    fn keep(&self, uid: &str, lifecycle: &Lifecycle) {
        self.underway.save(uid, lifecycle);
    }

    fn known(&self, is_known: &dyn Fn(&str) -> bool) {
        self.hands.userns.keep_only(is_known);
    }

    fn forget(&self, uid: &str) {
        self.hands.book.forget(uid);
        self.underway.forget(uid);
    }

    fn running(&self, running: Running) {
        // Nobody listens only when the process is ending.
        let _ = self.running.send(running);
    }

    fn tell(&self, pod: &PodRef, notice: Notice) {
        let Notice {
            part,
            warning,
            reason,
            message,
        } = notice;
        let notices = self.hands.ctx.notices();
        if warning {
            notices.warning(pod, &part, &reason, message);
        } else {
            notices.normal(pod, &part, &reason, message);
        }
    }

    fn await_object(&self, uid: &str, key: &StepKey, lacking: Lacking) -> CancellationToken {
        let cancel = self.hands.ctx.drain().child_token();
        let (given, uid, key) = (cancel.clone(), uid.to_owned(), key.clone());
        let (hands, inputs) = (Rc::clone(&self.hands), self.inputs.clone());
        self.hands.ctx.background("object", async move {
            tokio::select! {
                () = object::appears(&hands, &lacking) => {
                    let _ = inputs.send(Input::Appeared { uid, key });
                }
                () = cancel.cancelled() => {}
            }
        });
        given
    }

    fn leftovers(&self) {
        let (hands, inputs) = (Rc::clone(&self.hands), self.inputs.clone());
        self.hands.ctx.background("leftovers", async move {
            let _ = inputs.send(Input::Leftovers(leftovers::find(&hands).await));
        });
    }

    fn unlink(&self, needed: BTreeSet<String>) {
        let hands = Rc::clone(&self.hands);
        self.hands.ctx.background("links", async move {
            leftovers::unlink(&hands, needed).await;
        });
    }
}
