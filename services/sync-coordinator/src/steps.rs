//! Steps on their way: started in the background, and come back as inputs.

use std::rc::Rc;

use polylet_kit::CancellationToken;
use polylet_model::qos::{self, QosClass};
use polylet_model::{Manifest, resources};
use tracing::Instrument;

use crate::act::{self, Job, refresh, trace};
use crate::coordinator::Coordinator;
use crate::core::learn::Outcome;
use crate::core::plan::{Step, StepKey};
use crate::run::Input;

impl Coordinator {
    /// Starts a step.
    pub(crate) fn launch(&mut self, uid: &str, step: Step) {
        self.sequence += 1;
        let burstable_shares = match step {
            Step::EnsureCgroup => self.burstable_shares(),
            _ => 0,
        };
        let Some(worker) = self.workers.get_mut(uid) else {
            return;
        };
        let key = step.key();
        let job = Job {
            pod: worker.reference.clone(),
            manifest: worker.manifest.clone(),
            step,
            observed: worker.pod.observed.clone().unwrap_or_default(),
            volumes: worker
                .pod
                .volumes
                .seen
                .as_ref()
                .map(|(_, seen)| seen.clone())
                .unwrap_or_default(),
            journal: worker.pod.journal.clone(),
            sequence: self.sequence,
            burstable_shares,
            cause: worker.cause.clone(),
        };
        let span = trace::span(&job);
        worker.last_step = Some(trace::cause_of(&span))
            .filter(|c| !c.traceparent.is_empty())
            .or(worker.cause.clone());
        // A long wait must not hold the process up; what was asked goes on in the runtime.
        let drain = self.hands.ctx.drain();
        let cancel = match key {
            StepKey::Pull(_) => drain.child_token(),
            StepKey::StopContainer(_) => drain,
            _ => CancellationToken::new(),
        };
        if matches!(key, StepKey::Pull(_)) {
            worker.cancels.insert(key.clone(), cancel.clone());
        }
        let (hands, steps) = (Rc::clone(&self.hands), self.steps.clone());
        let work = async move {
            let outcome = tokio::select! {
                outcome = act::carry_out(&hands, &job) => outcome,
                () = cancel.cancelled() => Outcome::Cancelled,
            };
            trace::ended(&tracing::Span::current(), &outcome);
            // How it ended is the runtime's to say, and the next step hangs on it.
            let state = match &job.step {
                Step::StopContainer { .. } => {
                    refresh::once(&hands, &job.pod.uid).await.ok().flatten()
                }
                _ => None,
            };
            // Nobody listens only when the process is ending.
            let _ = steps.send(Input::StepDone {
                uid: job.pod.uid.clone(),
                key,
                outcome: Box::new(outcome),
                state,
            });
        };
        self.hands.ctx.background("step", work.instrument(span));
    }

    fn burstable_shares(&self) -> u64 {
        let specs = self
            .workers
            .values()
            .filter(|w| !w.pod.journal.torn_down)
            .filter_map(|w| w.manifest.as_ref());
        let burstable = specs
            .map(Manifest::spec)
            .filter(|spec| qos::class(spec) == QosClass::Burstable);
        resources::burstable_shares(burstable)
    }

    /// Asks the runtime how a pod stands after our acts.
    pub(crate) fn refresh(&mut self, uid: &str) {
        let Some(worker) = self.workers.get_mut(uid) else {
            return;
        };
        if worker.refreshing {
            worker.refresh_again = true;
            return;
        }
        worker.refreshing = true;
        // What the runtime then shows is the step's doing: its trace goes on there.
        let span = trace::refresh(&worker.reference, worker.last_step.as_ref());
        let (uid, acts) = (uid.to_owned(), worker.pod.acts);
        let (hands, steps) = (Rc::clone(&self.hands), self.steps.clone());
        let work = async move {
            let state = refresh::until_answered(&hands, &uid).await;
            let _ = steps.send(Input::Refreshed { uid, acts, state });
        };
        self.hands.ctx.background("refresh", work.instrument(span));
    }
}
