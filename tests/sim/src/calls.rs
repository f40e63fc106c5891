//! Calls in flight: sent, executed, completed and received, with anything in between.

use jiff::{SignedDuration, Timestamp};
use polylet_kit::CancellationToken;
use polylet_pleg::core::{CachedStatuses, Inspected, ListedPod, PodListing, RuntimeEventKind};
use polylet_prober::manager::{ProbeAttempt, ResultChanges};
use polylet_sync_coordinator::core::step::{Step, StepKey};
use polylet_sync_coordinator::core::step::{StepFailure, StepOutcome};
use polylet_sync_coordinator::input::Input;
use polylet_sync_coordinator::runtime::StepContext;
use polylet_volume_manager::core::operation::Operation as VolumeStep;
use polylet_wire::common::v1::PodRef;
use polylet_wire::pleg::v1::{RefreshPodRequest, RefreshPodResponse};
use tokio::sync::oneshot;

use crate::device_plugin::{PluginCall, PluginResponse};
use crate::node::images::{self, Gc};
use crate::node::{coordinator, devices, pleg, prober, volumes};
use crate::world::{ServiceId, World};

/// A call of an incarnation of a service.
pub struct Call {
    /// The sequence number.
    pub number: u64,
    /// The calling service.
    pub service: ServiceId,
    /// The incarnation of the caller.
    pub incarnation: u32,
    /// The work of the call.
    pub work: Work,
}

pub(crate) type PendingResponse = oneshot::Receiver<Result<RefreshPodResponse, String>>;

/// The work of a call.
pub enum Work {
    /// A step of the coordinator.
    Step {
        /// The step with its context.
        context: Box<StepContext>,
        /// Cancels the step.
        cancel: Option<CancellationToken>,
        /// Whether its execution has started.
        started: bool,
        /// The outcome, before the coordinator has received it.
        outcome: Option<StepOutcome>,
    },
    /// A step of the coordinator that waits for device-manager.
    Devices {
        /// The step with its context.
        context: Box<StepContext>,
        /// Cancels the step.
        cancel: Option<CancellationToken>,
        /// The pending response, unless device-manager did not run.
        answer: Option<oneshot::Receiver<StepOutcome>>,
    },
    /// device-manager calls the plugin for a pod.
    Plugin {
        /// The pod's uid.
        uid: String,
        /// The process of the plugin.
        instance: Option<u32>,
        /// The call.
        call: PluginCall,
        /// The response, in flight.
        answer: Option<PluginResponse>,
    },
    /// The coordinator refreshes a pod until pleg responds; as part of a step, once.
    Refresh {
        /// The pod, and its changes.
        request: RefreshPodRequest,
        /// The number of effects so far.
        acts: u64,
        /// The step that is completed by the refresh.
        step: Option<(StepKey, StepOutcome)>,
        /// The pending response.
        answer: Option<PendingResponse>,
    },
    /// The coordinator has declared all pods.
    Complete {
        /// The epoch of the client id.
        client_id: u32,
        /// The number of pods.
        pods: u32,
    },
    /// The coordinator looks for orphaned pods.
    FindOrphans,
    /// pleg checks the health of the runtime.
    CheckHealth,
    /// pleg lists.
    List {
        /// The number of the list.
        sequence: u64,
        /// The result, once the runtime has answered.
        result: Option<Result<PodListing, String>>,
    },
    /// pleg inspects a pod.
    Inspect {
        /// The pod's uid.
        uid: String,
        /// The pod's entries in a full list.
        listed: Option<ListedPod>,
        /// The statuses that need not be requested.
        cached: CachedStatuses,
    },
    /// The response of an inspection, in flight.
    InspectResponse {
        /// The pod's uid.
        uid: String,
        /// The response.
        result: Result<Inspected, String>,
    },
    /// A probe attempt.
    Probe {
        /// The attempt.
        attempt: ProbeAttempt,
        /// The response, in flight.
        response: Option<Option<Result<(), String>>>,
    },
    /// The prober saves changes of its results.
    SaveProbeResults {
        /// The changes.
        changes: ResultChanges,
        /// They are on disk.
        written: bool,
    },
    /// A garbage collection of images.
    Images(Gc),
    /// A step of volume-manager.
    Volume {
        /// The step.
        step: VolumeStep,
        /// Whether half of it is done.
        started: bool,
    },
}

impl Work {
    /// A new step.
    pub fn step(context: StepContext, cancel: Option<CancellationToken>) -> Self {
        Work::Step {
            context: Box::new(context),
            cancel,
            started: false,
            outcome: None,
        }
    }

    /// A new refresh.
    pub fn refresh(request: RefreshPodRequest, acts: u64) -> Self {
        Work::Refresh {
            request,
            acts,
            step: None,
            answer: None,
        }
    }
}

impl World {
    /// Starts a call.
    pub fn call(&mut self, service: ServiceId, incarnation: u32, work: Work) {
        self.call_count += 1;
        let number = self.call_count;
        self.calls.push(Call {
            number,
            service,
            incarnation,
            work,
        });
    }

    /// Advances a call. Returns whether anything happened.
    pub fn advance(&mut self, at: usize) -> bool {
        if at >= self.calls.len() {
            return false;
        }
        let call = self.calls.remove(at);
        let alive = self.incarnation(call.service) == Some(call.incarnation);
        let (service, incarnation) = (call.service, call.incarnation);
        let (again, moved) = match call.work {
            Work::Step {
                context,
                cancel,
                started,
                outcome,
            } => crate::steps::advance(self, incarnation, alive, context, cancel, started, outcome),
            Work::Devices {
                context,
                cancel,
                answer,
            } => crate::steps::devices::advance(self, alive, context, cancel, answer),
            Work::Volume { step, started } => (self.volume_step(alive, step, started), true),
            _ if !alive => (None, true),
            Work::Refresh {
                request,
                acts,
                step,
                answer,
            } => self.refresh(request, acts, step, answer),
            Work::Complete { client_id, pods } => {
                let response =
                    volumes::complete(self, &coordinator::client_id(incarnation, client_id), pods);
                self.record(|| format!("coordinator: all {pods} pods declared: {response:?}"));
                coordinator::handle_inputs(
                    self,
                    vec![Input::DesiredCompleted(client_id, response)],
                );
                (None, true)
            }
            Work::FindOrphans => {
                let found = self.disk.cgroups.iter().chain(&self.disk.logs);
                let pods = found.map(|uid| PodRef {
                    uid: uid.clone(),
                    ..PodRef::default()
                });
                let pods = pods.collect();
                coordinator::handle_inputs(self, vec![Input::OrphansFound(pods)]);
                (None, true)
            }
            Work::Probe {
                attempt,
                response: None,
            } => {
                let response = Some(prober::answer(self, &attempt));
                (Some(Work::Probe { attempt, response }), true)
            }
            Work::Probe {
                attempt,
                response: Some(response),
            } => {
                prober::complete(self, &attempt, response);
                (None, true)
            }
            Work::SaveProbeResults {
                changes,
                written: false,
            } => {
                changes.apply_to(&mut self.disk.probe_results);
                let written = true;
                (Some(Work::SaveProbeResults { changes, written }), true)
            }
            Work::SaveProbeResults { changes, .. } => {
                if let Some(prober) = &self.prober {
                    prober.publisher.publish(&changes);
                }
                prober::act(self);
                (None, true)
            }
            Work::Plugin {
                uid,
                instance,
                call,
                answer,
            } => devices::advance_call(self, uid, instance, call, answer),
            Work::Images(at) => (images::advance(self, at), true),
            Work::CheckHealth => {
                let (answer, now) = (pleg::health_check(self.runtime.up), self.now);
                if let Some(pleg) = &mut self.pleg {
                    pleg.manager.on_health_check(answer, now);
                }
                pleg::act(self);
                (None, true)
            }
            Work::List {
                sequence,
                result: None,
            } => {
                let result = Some(self.list());
                (Some(Work::List { sequence, result }), true)
            }
            Work::List {
                sequence,
                result: Some(result),
            } => {
                let now = self.unique_now();
                if let Some(pleg) = &mut self.pleg {
                    pleg.manager.on_relisted(sequence, result, now);
                }
                pleg::act(self);
                (None, true)
            }
            Work::Inspect {
                uid,
                listed,
                cached,
            } => {
                let result = self.inspect(&uid, listed, &cached);
                (Some(Work::InspectResponse { uid, result }), true)
            }
            Work::InspectResponse { uid, result } => {
                let now = self.unique_now();
                if let Some(pleg) = &mut self.pleg {
                    pleg.manager.on_inspected(&uid.as_str().into(), result, now);
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
                    service,
                    incarnation,
                    work,
                },
            );
        }
        moved
    }

    /// The present time, different for each response, as with real clocks.
    fn unique_now(&mut self) -> Timestamp {
        let finest = SignedDuration::from_nanos(1);
        self.now = self.now.checked_add(finest).unwrap_or(self.now);
        self.now
    }

    fn volume_step(&mut self, alive: bool, step: VolumeStep, started: bool) -> Option<Work> {
        // Work on the disk ends with the process.
        if !alive {
            return None;
        }
        if !self.quiescing && self.rng.percent(6) {
            volumes::complete_operation(self, step, Err("no space left".to_owned()));
            return None;
        }
        volumes::execute_operation(self, &step, started);
        if started {
            self.record(|| format!("volumes: done {step:?}"));
            volumes::complete_operation(self, step, Ok(()));
            return None;
        }
        Some(Work::Volume {
            step,
            started: true,
        })
    }

    /// The runtime sends an event to pleg, which may be lost.
    pub fn send_event(&mut self, uid: &str, id: &str, kind: RuntimeEventKind) {
        if self.quiescing || self.rng.percent(60) {
            pleg::hint(self, uid, id, kind);
        }
    }

    /// The next due time of any timer.
    pub fn next_due(&self) -> Option<Timestamp> {
        let coordinator = self
            .coordinator
            .as_ref()
            .and_then(coordinator::CoordinatorInstance::due);
        let pleg = self.pleg.as_ref().and_then(|p| p.manager.next_due());
        let volumes = self.volumes.as_ref().and_then(volumes::Volumes::due);
        let prober = self.prober.as_ref().and_then(|p| p.manager.next_due());
        let eviction = self.eviction.as_ref().map(|e| e.next_sync);
        let devices = self.devices.as_ref().and_then(|d| d.settles_at);
        let services = [coordinator, pleg, prober, volumes, eviction, devices];
        services
            .into_iter()
            .flatten()
            .chain(self.runtime.due())
            .min()
    }
}

/// A failure of a step.
pub fn step_failure(reason: &str, message: &str) -> StepFailure {
    StepFailure {
        reason: reason.to_owned(),
        message: message.to_owned(),
        ..StepFailure::default()
    }
}

/// The key of a step with its outcome.
pub fn done(step: &Step, outcome: StepOutcome) -> (StepKey, StepOutcome) {
    (step.key(), outcome)
}
