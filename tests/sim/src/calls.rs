//! Calls under way: each is sent, does its work, ends, and is heard of, with anything in between.

use jiff::{SignedDuration, Timestamp};
use polylet_kit::CancellationToken;
use polylet_pleg::core::{HintKind, Known, Listing, PodView, Seen};
use polylet_prober::judge::{Attempt, Verdicts};
use polylet_sync_coordinator::act::Job;
use polylet_sync_coordinator::core::learn::{Outcome, Trouble};
use polylet_sync_coordinator::core::step::{Step, StepKey};
use polylet_sync_coordinator::run::Input;
use polylet_volume_manager::core::plan::Step as VolumeStep;
use polylet_wire::common::v1::PodRef;
use polylet_wire::pleg::v1::RefreshPodResponse;
use tokio::sync::oneshot;

use crate::node::images::{self, Gc};
use crate::node::{coordinator, pleg, prober, volumes};
use crate::world::{Who, World};

/// A call of some life of some service.
pub struct Call {
    /// In order of their making.
    pub number: u64,
    /// Whose.
    pub who: Who,
    /// Which life's.
    pub life: u32,
    /// What.
    pub work: Work,
}

pub(crate) type Answered = oneshot::Receiver<Result<RefreshPodResponse, String>>;

/// What a call does.
pub enum Work {
    /// A step of the coordinator.
    Step {
        /// The step with all it needs.
        job: Box<Job>,
        /// Ends it early.
        cancel: Option<CancellationToken>,
        /// The world is at it.
        begun: bool,
        /// It has ended, and nobody has heard.
        outcome: Option<Outcome>,
    },
    /// The coordinator asks pleg, until it answers; with the end of a stop, once.
    Refresh {
        /// The pod.
        uid: String,
        /// Acts so far.
        acts: u64,
        /// The stop that ended.
        stopped: Option<(StepKey, Outcome)>,
        /// Where the answer comes.
        answer: Option<Answered>,
    },
    /// The coordinator has declared all.
    Complete {
        /// Under this name.
        declarer: u32,
        /// So many.
        pods: u32,
    },
    /// The coordinator looks for remains of pods.
    Leftovers,
    /// pleg asks the runtime about itself.
    Poll,
    /// pleg lists.
    List {
        /// Its number.
        turn: u64,
        /// The answer on its way.
        seen: Option<Result<Listing, String>>,
    },
    /// pleg looks at a pod.
    Look {
        /// The pod.
        uid: String,
        /// The list's word.
        view: Option<PodView>,
        /// What need not be asked about.
        known: Known,
    },
    /// A look whose answer is on its way.
    Looked {
        /// The pod.
        uid: String,
        /// The answer.
        seen: Result<Seen, String>,
    },
    /// The prober asks a container.
    Probe {
        /// How.
        attempt: Attempt,
        /// What it answered, on its way.
        said: Option<Option<Result<(), String>>>,
    },
    /// The prober writes its verdicts.
    SaveVerdicts {
        /// All of them.
        verdicts: Verdicts,
        /// They are on the disk.
        written: bool,
    },
    /// image-gc is at its images.
    Images(Gc),
    /// A step of volume-manager.
    Volume {
        /// The step.
        step: VolumeStep,
        /// It is half done.
        begun: bool,
    },
}

impl Work {
    /// A step that was just decided.
    pub fn step(job: Job, cancel: Option<CancellationToken>) -> Self {
        Work::Step {
            job: Box::new(job),
            cancel,
            begun: false,
            outcome: None,
        }
    }

    /// A question to pleg.
    pub fn refresh(uid: String, acts: u64) -> Self {
        Work::Refresh {
            uid,
            acts,
            stopped: None,
            answer: None,
        }
    }
}

impl World {
    /// A call is made.
    pub fn call(&mut self, who: Who, life: u32, work: Work) {
        self.call_count += 1;
        let number = self.call_count;
        self.calls.push(Call {
            number,
            who,
            life,
            work,
        });
    }

    /// One of the calls goes on. Says whether anything moved.
    pub fn advance(&mut self, at: usize) -> bool {
        if at >= self.calls.len() {
            return false;
        }
        let call = self.calls.remove(at);
        let alive = self.life(call.who) == Some(call.life);
        let (who, life) = (call.who, call.life);
        let (again, moved) = match call.work {
            Work::Step {
                job,
                cancel,
                begun,
                outcome,
            } => crate::steps::advance(self, life, alive, job, cancel, begun, outcome),
            Work::Volume { step, begun } => (self.volume_step(alive, step, begun), true),
            _ if !alive => (None, true),
            Work::Refresh {
                uid,
                acts,
                stopped,
                answer,
            } => self.refresh(uid, acts, stopped, answer),
            Work::Complete { declarer, pods } => {
                let said = volumes::complete(self, &coordinator::declarer(life, declarer), pods);
                self.say(|| format!("coordinator: all declared, {pods} pods: {said:?}"));
                coordinator::take(self, vec![Input::Completed(declarer, said)]);
                (None, true)
            }
            Work::Leftovers => {
                let found = self.disk.cgroups.iter().chain(&self.disk.logs);
                let pods = found.map(|uid| PodRef {
                    uid: uid.clone(),
                    ..PodRef::default()
                });
                let pods = pods.collect();
                coordinator::take(self, vec![Input::Leftovers(pods)]);
                (None, true)
            }
            Work::Probe {
                attempt,
                said: None,
            } => {
                let said = Some(prober::ask(self, &attempt));
                (Some(Work::Probe { attempt, said }), true)
            }
            Work::Probe {
                attempt,
                said: Some(said),
            } => {
                prober::attempted(self, &attempt, said);
                (None, true)
            }
            Work::SaveVerdicts {
                verdicts,
                written: false,
            } => {
                self.disk.verdicts = verdicts.clone();
                let written = true;
                (Some(Work::SaveVerdicts { verdicts, written }), true)
            }
            Work::SaveVerdicts { verdicts, .. } => {
                if let Some(prober) = &mut self.prober {
                    prober.judge.saved(verdicts);
                }
                prober::act(self);
                (None, true)
            }
            Work::Images(at) => (images::advance(self, at), true),
            Work::Poll => {
                let (answer, now) = (pleg::polled(self.runtime.up), self.now);
                if let Some(pleg) = &mut self.pleg {
                    pleg.teller.polled(answer, now);
                }
                pleg::act(self);
                (None, true)
            }
            Work::List { turn, seen: None } => {
                let seen = Some(self.list());
                (Some(Work::List { turn, seen }), true)
            }
            Work::List {
                turn,
                seen: Some(seen),
            } => {
                let now = self.moment();
                if let Some(pleg) = &mut self.pleg {
                    pleg.teller.relisted(turn, seen, now);
                }
                pleg::act(self);
                (None, true)
            }
            Work::Look { uid, view, known } => {
                let seen = self.look(&uid, view, &known);
                (Some(Work::Looked { uid, seen }), true)
            }
            Work::Looked { uid, seen } => {
                let now = self.moment();
                if let Some(pleg) = &mut self.pleg {
                    pleg.teller.looked(&uid, seen, now);
                }
                pleg::act(self);
                (None, true)
            }
        };
        if let Some(work) = again {
            let at = at.min(self.calls.len());
            self.calls.insert(
                at,
                Call {
                    number: call.number,
                    who,
                    life,
                    work,
                },
            );
        }
        moved
    }

    /// Now, and no other answer of the runtime comes at the same time: clocks are that fine.
    fn moment(&mut self) -> Timestamp {
        let finest = SignedDuration::from_nanos(1);
        self.now = self.now.checked_add(finest).unwrap_or(self.now);
        self.now
    }

    fn volume_step(&mut self, alive: bool, step: VolumeStep, begun: bool) -> Option<Work> {
        // The disk's own work ends with the process.
        if !alive {
            return None;
        }
        if !self.calm && self.rng.percent(6) {
            volumes::finished(self, step, Err("no space left".to_owned()));
            return None;
        }
        volumes::carry_out(self, &step, begun);
        if begun {
            self.say(|| format!("volumes: done {step:?}"));
            volumes::finished(self, step, Ok(()));
            return None;
        }
        Some(Work::Volume { step, begun: true })
    }

    /// The runtime tells pleg of something, perhaps.
    pub fn tell_pleg(&mut self, uid: &str, id: &str, kind: HintKind) {
        if self.calm || self.rng.percent(60) {
            pleg::hint(self, uid, id, kind);
        }
    }

    /// When the next thing happens by itself.
    pub fn next_due(&self) -> Option<Timestamp> {
        let coordinator = self.coordinator.as_ref().and_then(coordinator::Node::due);
        let pleg = self.pleg.as_ref().and_then(|p| p.teller.due());
        let volumes = self.volumes.as_ref().and_then(volumes::Volumes::due);
        let prober = self.prober.as_ref().and_then(|p| p.judge.next_due());
        let round = self.eviction.as_ref().map(|e| e.next_round);
        let services = [coordinator, pleg, prober, volumes, round];
        services
            .into_iter()
            .flatten()
            .chain(self.runtime.due())
            .min()
    }
}

/// A trouble in words.
pub fn trouble(reason: &str, message: &str) -> Trouble {
    Trouble {
        reason: reason.to_owned(),
        message: message.to_owned(),
        ..Trouble::default()
    }
}

/// The key of a step, and what became of it.
pub fn done(step: &Step, outcome: Outcome) -> (StepKey, Outcome) {
    (step.key(), outcome)
}
