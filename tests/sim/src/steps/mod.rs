//! The effects of the coordinator's steps, in the order of the real ones.

pub mod devices;
mod make;

use polylet_kit::CancellationToken;
use polylet_model::constants::reason;
use polylet_model::status::ContainerPhase;
use polylet_pleg::core::RuntimeEventKind;
use polylet_sync_coordinator::core::step::Step;
use polylet_sync_coordinator::core::step::{StepFailure, StepOutcome};
use polylet_sync_coordinator::core::volume_state::ObservedVolume;
use polylet_sync_coordinator::input::Input;
use polylet_sync_coordinator::runtime::StepContext;
use polylet_wire::pleg::v1::{RuntimeChange, RuntimeChangeKind};
use polylet_wire::volume::v1::{PodVolumes, VolumePhase};

use crate::calls::{Work, done, step_failure};
use crate::invariants;
use crate::mutations::Mutation;
use crate::node::{coordinator, volumes};
use crate::runtime::SimContainer;
use crate::world::World;

type Next = (Option<Work>, bool);

/// Starts a call for a step of the coordinator.
pub fn begin(world: &mut World, context: StepContext, cancel: Option<CancellationToken>) -> Work {
    match context.step {
        Step::AllocateDevices | Step::PrepareDevices { .. } => {
            devices::begin(world, context, cancel)
        }
        _ => Work::step(context, cancel),
    }
}

/// Advances a step of the coordinator.
pub fn advance(
    world: &mut World,
    incarnation: u32,
    alive: bool,
    context: Box<StepContext>,
    cancel: Option<CancellationToken>,
    started: bool,
    outcome: Option<StepOutcome>,
) -> Next {
    if let Some(outcome) = outcome {
        if alive {
            return deliver_outcome(world, &context, outcome);
        }
        return (None, true);
    }
    if alive && cancel.as_ref().is_some_and(CancellationToken::is_cancelled) {
        return deliver_outcome(world, &context, StepOutcome::Cancelled);
    }
    // A request that was not sent before the death of the process is never sent.
    let written = matches!(context.step, Step::CreateSandbox { .. });
    if !started && !alive && (written || is_local(&context.step) || world.rng.percent(50)) {
        return (None, true);
    }
    let outcome = if started {
        continue_step(world, incarnation, alive, &context)
    } else {
        start_step(world, incarnation, &context)
    };
    let moved = outcome.is_some() || !started;
    let again = Work::Step {
        context,
        cancel,
        started: true,
        outcome,
    };
    (Some(again), moved)
}

/// Steps that the process executes itself.
fn is_local(step: &Step) -> bool {
    use Step::{
        Checkpoint, CheckpointTerminated, CheckpointTermination, EnsureCgroup, RemoveCgroup,
        RemoveFiles,
    };
    matches!(
        step,
        Checkpoint
            | CheckpointTermination(_)
            | CheckpointTerminated
            | EnsureCgroup
            | RemoveCgroup
            | RemoveFiles
    )
}

fn deliver_outcome(world: &mut World, context: &StepContext, outcome: StepOutcome) -> Next {
    let (key, outcome) = done(&context.step, outcome);
    world.record(|| {
        format!(
            "coordinator: outcome of {} {key:?}: {outcome:?}",
            context.pod.uid
        )
    });
    let uid = context.pod.uid.clone();
    if let Some(change) = inspected_change(context, &outcome) {
        let again = Work::Refresh {
            request: coordinator::refresh_request(&context.pod, vec![change]),
            acts: 0,
            step: Some((key, outcome)),
            answer: None,
        };
        return (Some(again), true);
    }
    let input = Input::StepFinished {
        uid: uid.into(),
        key,
        outcome: Box::new(outcome),
        state: None,
    };
    coordinator::handle_inputs(world, vec![input]);
    (None, true)
}

/// The change that a step has pleg inspect before it ends.
fn inspected_change(context: &StepContext, outcome: &StepOutcome) -> Option<RuntimeChange> {
    let (id, sandbox_id, kind) = match (&context.step, outcome) {
        (Step::CreateSandbox { .. }, StepOutcome::SandboxCreated(sandbox)) => {
            (&sandbox.id, &sandbox.id, RuntimeChangeKind::Created)
        }
        (Step::StopContainer { id, .. }, _) => {
            let sandbox_id = &context.observed.container(id)?.sandbox_id;
            (id, sandbox_id, RuntimeChangeKind::Stopped)
        }
        _ => return None,
    };
    Some(RuntimeChange {
        id: id.clone(),
        sandbox_id: sandbox_id.clone(),
        kind: kind.into(),
    })
}

fn failed(failure: StepFailure) -> Option<StepOutcome> {
    Some(StepOutcome::Failed(failure))
}

fn unknown(message: &str) -> Option<StepOutcome> {
    failed(StepFailure {
        outcome_unknown: true,
        ..step_failure("Unknown", message)
    })
}

fn flaky(world: &mut World, percent: usize) -> bool {
    !world.quiescing && world.rng.percent(percent)
}

/// Starts a step: executes local work, and sends requests.
fn start_step(world: &mut World, incarnation: u32, context: &StepContext) -> Option<StepOutcome> {
    let uid = context.pod.uid.clone();
    let now = world.now;
    let is_for_other_service = matches!(context.step, Step::ApplyVolumes | Step::ReleaseVolumes);
    if !is_local(&context.step) && !is_for_other_service && (!world.runtime.up || flaky(world, 3)) {
        return unknown("the runtime is unavailable");
    }
    match &context.step {
        Step::Checkpoint
        | Step::CheckpointTermination(_)
        | Step::CheckpointTerminated
        | Step::CheckpointAllocation { .. } => {
            if flaky(world, 5) {
                *world.disk.failed.entry(uid).or_default() += 1;
                return failed(step_failure("JournalError", "no space left"));
            }
            world.disk.failed.remove(&uid);
            let checkpoints = context.checkpoint.clone().unwrap_or_default();
            if checkpoints.termination.is_some() {
                world.memory.ended.insert(uid.clone());
                world.runtime.disturbed.insert(uid.clone());
            }
            world.disk.checkpoints.insert(uid, checkpoints);
            Some(StepOutcome::Done)
        }
        Step::EnsureCgroup => {
            world.disk.cgroups.insert(uid);
            Some(StepOutcome::Done)
        }
        Step::Resize { .. } => Some(StepOutcome::Done),
        Step::RemoveCgroup => {
            invariants::removal::check_removal(world, &uid, "cgroup");
            if flaky(world, 5) {
                return failed(step_failure("CgroupError", "device or resource busy"));
            }
            world.disk.cgroups.remove(&uid);
            Some(StepOutcome::Done)
        }
        Step::RemoveFiles => {
            invariants::removal::check_removal(world, &uid, "files");
            world.disk.logs.remove(&uid);
            Some(StepOutcome::Done)
        }
        Step::ApplyVolumes | Step::ReleaseVolumes => Some(declare(world, incarnation, context)),
        Step::CreateSandbox { attempt } => {
            world.disk.logs.insert(uid.clone());
            invariants::check_sandbox_creation(world, context, *attempt);
            world.disk.sandbox_intents.insert(uid, *attempt);
            match world.runtime.reserve_sandbox(&context.pod, *attempt) {
                Ok(()) => None,
                Err(_) => {
                    world.disk.sandbox_intents.remove(&context.pod.uid);
                    failed(StepFailure {
                        name_reserved: true,
                        ..step_failure(
                            reason::CREATE_POD_SANDBOX_ERROR,
                            "name is reserved for another",
                        )
                    })
                }
            }
        }
        Step::StopContainer {
            id, grace_period, ..
        } => {
            world.runtime.stop_container(id, *grace_period, now);
            if world.mutation == Some(Mutation::VolumesReleasedEarly) {
                let client_id = coordinator::client_id(incarnation, context.client_epoch);
                let _ = volumes::release(world, &client_id, context, context.sequence + 1);
            }
            None
        }
        _ => None,
    }
}

fn declare(world: &mut World, incarnation: u32, context: &StepContext) -> StepOutcome {
    let client_id = coordinator::client_id(incarnation, context.client_epoch);
    if context.step == Step::ReleaseVolumes {
        return match volumes::release(world, &client_id, context, context.sequence) {
            Ok(state) => StepOutcome::VolumesReleased {
                gone: observed_volumes(&state).iter().all(|v| v.gone),
            },
            Err(failure) => StepOutcome::Failed(failure),
        };
    }
    match volumes::apply(world, &client_id, context) {
        Ok(state) => StepOutcome::VolumesDeclared {
            digest: context
                .manifest
                .as_ref()
                .map(|m| m.digest().to_owned())
                .unwrap_or_default(),
            sequence: state.sequence,
            volumes: observed_volumes(&state),
        },
        Err(failure) => StepOutcome::Failed(failure),
    }
}

fn observed_volumes(state: &PodVolumes) -> Vec<ObservedVolume> {
    let one = |v: &polylet_wire::volume::v1::Volume| ObservedVolume {
        imminent: v.imminent,
        name: v.name.clone(),
        mounted: v.phase() == VolumePhase::Mounted,
        gone: v.phase() == VolumePhase::Gone,
        host_path: v.host_path.clone(),
        message: v.message.clone(),
        rejection_reason: v.rejection_reason.clone(),
        supplemental_group: v.supplemental_group,
    };
    state.volumes.iter().map(one).collect()
}

/// Completes a step in the runtime; `None` while it is in progress.
fn continue_step(
    world: &mut World,
    incarnation: u32,
    alive: bool,
    context: &StepContext,
) -> Option<StepOutcome> {
    let (uid, now) = (context.pod.uid.as_str(), world.now);
    let outcome = match &context.step {
        Step::CreateSandbox { attempt } => {
            return make::sandbox(world, incarnation, alive, context, *attempt);
        }
        Step::PullImage { container } => make::pull(world, context, container),
        Step::CreateContainer { .. } => make::create(world, context),
        Step::StartContainer { id, .. } => {
            if !alive && world.rng.percent(30) {
                world.runtime.abort_start(id, now);
                return Some(StepOutcome::Cancelled);
            }
            invariants::check_container_start(world, id);
            match world.runtime.start(id, now) {
                Ok(()) => {
                    world.send_event(uid, id, RuntimeEventKind::Started);
                    StepOutcome::Done
                }
                Err(why) => StepOutcome::Failed(step_failure(
                    reason::RUN_CONTAINER_ERROR,
                    &format!("{why:?}"),
                )),
            }
        }
        Step::PostStart { id, .. } | Step::PreStop { id, .. } => {
            let runs = |c: &SimContainer| c.phase == ContainerPhase::Running;
            if !world.runtime.containers.get(id).is_some_and(runs) || flaky(world, 10) {
                world.memory.hooks_failed.insert(id.clone());
                return Some(StepOutcome::HookFailed("the hook failed".to_owned()));
            }
            if flaky(world, 50) {
                return None;
            }
            StepOutcome::Done
        }
        Step::StopContainer { id, .. } => {
            let known = world.runtime.containers.get(id);
            if known.is_some_and(|c| c.phase == ContainerPhase::Running) {
                // It may exit before the end of its grace period; else the runtime kills it.
                if world.rng.percent(70) {
                    return None;
                }
                let code = if world.rng.percent(50) { 143 } else { 0 };
                world
                    .runtime
                    .exit(id, code, if code == 0 { "Completed" } else { "Error" }, now);
            }
            world.send_event(uid, id, RuntimeEventKind::Stopped);
            StepOutcome::Done
        }
        Step::StopSandbox { id } => {
            invariants::removal::check_sandbox_stop(world, id);
            world.runtime.stop_sandbox(id, now);
            world.send_event(uid, id, RuntimeEventKind::Stopped);
            StepOutcome::Done
        }
        Step::RemoveContainer { id, .. } => {
            invariants::removal::check_container_removal(world, id);
            world.runtime.remove_container(id);
            world.send_event(uid, id, RuntimeEventKind::Deleted);
            StepOutcome::Done
        }
        Step::RemoveSandbox { id } => {
            invariants::removal::check_sandbox_removal(world, id);
            world.runtime.remove_sandbox(id);
            world.send_event(uid, id, RuntimeEventKind::Deleted);
            StepOutcome::Done
        }
        _ => StepOutcome::Done,
    };
    // The response may be lost.
    if flaky(world, 3) {
        unknown("deadline exceeded")
    } else {
        Some(outcome)
    }
}
