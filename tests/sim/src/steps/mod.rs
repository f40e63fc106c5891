//! What the coordinator's steps do to the world, in the order in which the real ones do it.

mod make;

use polylet_kit::CancellationToken;
use polylet_model::constants::reason;
use polylet_pleg::core::HintKind;
use polylet_sync_coordinator::act::Job;
use polylet_sync_coordinator::core::learn::{Outcome, Trouble};
use polylet_sync_coordinator::core::step::Step;
use polylet_sync_coordinator::core::view::SeenVolume;
use polylet_sync_coordinator::run::Input;
use polylet_wire::pleg::v1::ContainerPhase;
use polylet_wire::volume::v1::{PodVolumes, VolumePhase};

use crate::calls::{Work, done, trouble};
use crate::laws;
use crate::node::{coordinator, volumes};
use crate::runtime::SimContainer;
use crate::sabotage::Sabotage;
use crate::world::World;

type Next = (Option<Work>, bool);

/// A step of the coordinator goes on.
pub fn advance(
    world: &mut World,
    life: u32,
    alive: bool,
    job: Box<Job>,
    cancel: Option<CancellationToken>,
    begun: bool,
    outcome: Option<Outcome>,
) -> Next {
    if let Some(outcome) = outcome {
        if alive {
            return heard(world, &job, outcome);
        }
        return (None, true);
    }
    if alive && cancel.as_ref().is_some_and(CancellationToken::is_cancelled) {
        return heard(world, &job, Outcome::Cancelled);
    }
    // What was not sent by the time of the death never is.
    let written = matches!(job.step, Step::CreateSandbox { .. });
    if !begun && !alive && (written || local(&job.step) || world.rng.percent(50)) {
        return (None, true);
    }
    let outcome = if begun {
        go_on(world, life, alive, &job)
    } else {
        begin(world, life, &job)
    };
    let moved = outcome.is_some() || !begun;
    let again = Work::Step {
        job,
        cancel,
        begun: true,
        outcome,
    };
    (Some(again), moved)
}

/// Steps that the process itself carries out.
fn local(step: &Step) -> bool {
    use Step::{Decide, EnsureCgroup, Journal, RemoveCgroup, RemoveFiles, TornDown};
    matches!(
        step,
        Journal | Decide(_) | TornDown | EnsureCgroup | RemoveCgroup | RemoveFiles
    )
}

fn heard(world: &mut World, job: &Job, outcome: Outcome) -> Next {
    let (key, outcome) = done(&job.step, outcome);
    world.say(|| format!("coordinator: hears of {} {key:?}: {outcome:?}", job.pod.uid));
    let uid = job.pod.uid.clone();
    if matches!(job.step, Step::StopContainer { .. }) {
        let again = Work::Refresh {
            uid,
            acts: 0,
            stopped: Some((key, outcome)),
            answer: None,
        };
        return (Some(again), true);
    }
    let input = Input::StepDone {
        uid,
        key,
        outcome: Box::new(outcome),
        state: None,
    };
    coordinator::take(world, vec![input]);
    (None, true)
}

fn failed(trouble: Trouble) -> Option<Outcome> {
    Some(Outcome::Failed(trouble))
}

fn unknown(message: &str) -> Option<Outcome> {
    failed(Trouble {
        unknown: true,
        ..trouble("Unknown", message)
    })
}

fn flaky(world: &mut World, percent: usize) -> bool {
    !world.calm && world.rng.percent(percent)
}

/// The first half: local work is done here, calls reach whom they are for.
fn begin(world: &mut World, life: u32, job: &Job) -> Option<Outcome> {
    let uid = job.pod.uid.clone();
    let now = world.now;
    if !local(&job.step)
        && !matches!(job.step, Step::ApplyVolumes | Step::ReleaseVolumes)
        && (!world.runtime.up || flaky(world, 3))
    {
        return unknown("the runtime is away");
    }
    match &job.step {
        Step::Journal
        | Step::Decide(_)
        | Step::TornDown
        | Step::Allocate { .. }
        | Step::Resize { .. } => {
            if flaky(world, 5) {
                *world.disk.failed.entry(uid).or_default() += 1;
                return failed(trouble("JournalError", "no space left"));
            }
            world.disk.failed.remove(&uid);
            let journal = job.journal.after(&job.step);
            if journal.terminal.is_some() {
                world.memory.ended.insert(uid.clone());
                world.runtime.disturbed.insert(uid.clone());
            }
            world.disk.journal.insert(uid, journal);
            Some(Outcome::Done)
        }
        Step::EnsureCgroup => {
            world.disk.cgroups.insert(uid);
            Some(Outcome::Done)
        }
        Step::RemoveCgroup => {
            laws::takes_away(world, &uid, "cgroup");
            if flaky(world, 5) {
                return failed(trouble("CgroupError", "device or resource busy"));
            }
            world.disk.cgroups.remove(&uid);
            Some(Outcome::Done)
        }
        Step::RemoveFiles => {
            laws::takes_away(world, &uid, "files");
            world.disk.logs.remove(&uid);
            Some(Outcome::Done)
        }
        Step::ApplyVolumes | Step::ReleaseVolumes => Some(declare(world, life, job)),
        Step::CreateSandbox { attempt } => {
            world.disk.logs.insert(uid.clone());
            laws::asks_for_sandbox(world, job, *attempt);
            world.disk.intents.insert(uid, *attempt);
            match world.runtime.reserve_sandbox(&job.pod, *attempt) {
                Ok(()) => None,
                Err(_) => {
                    world.disk.intents.remove(&job.pod.uid);
                    failed(Trouble {
                        reserved: true,
                        ..trouble(
                            reason::CREATE_POD_SANDBOX_ERROR,
                            "name is reserved for another",
                        )
                    })
                }
            }
        }
        Step::StopContainer { id, grace, .. } => {
            world.runtime.ask_to_end(id, *grace, now);
            if world.sabotage == Some(Sabotage::ReleasedEarly) {
                let declarer = coordinator::declarer(life, job.declarer);
                let _ = volumes::release(world, &declarer, job, job.sequence + 1);
            }
            None
        }
        _ => None,
    }
}

fn declare(world: &mut World, life: u32, job: &Job) -> Outcome {
    let declarer = coordinator::declarer(life, job.declarer);
    if job.step == Step::ReleaseVolumes {
        return match volumes::release(world, &declarer, job, job.sequence) {
            Ok(state) => Outcome::Released {
                gone: seen(&state).iter().all(|v| v.gone),
            },
            Err(trouble) => Outcome::Failed(trouble),
        };
    }
    match volumes::apply(world, &declarer, job) {
        Ok(state) => Outcome::Declared {
            digest: job
                .manifest
                .as_ref()
                .map(|m| m.digest().to_owned())
                .unwrap_or_default(),
            sequence: state.sequence,
            seen: seen(&state),
        },
        Err(trouble) => Outcome::Failed(trouble),
    }
}

fn seen(state: &PodVolumes) -> Vec<SeenVolume> {
    let one = |v: &polylet_wire::volume::v1::Volume| SeenVolume {
        coming: v.coming,
        name: v.name.clone(),
        mounted: v.phase() == VolumePhase::Mounted,
        gone: v.phase() == VolumePhase::Gone,
        host_path: v.host_path.clone(),
        message: v.message.clone(),
        refusal: v.refusal.clone(),
        group: v.group,
    };
    state.volumes.iter().map(one).collect()
}

/// The second half: the runtime's own work. `None` while it goes on.
fn go_on(world: &mut World, life: u32, alive: bool, job: &Job) -> Option<Outcome> {
    let (uid, now) = (job.pod.uid.as_str(), world.now);
    let outcome = match &job.step {
        Step::CreateSandbox { attempt } => return make::sandbox(world, life, alive, job, *attempt),
        Step::PullImage { container } => make::pull(world, job, container),
        Step::CreateContainer { .. } => make::create(world, job),
        Step::StartContainer { id, .. } => {
            if !alive && world.rng.percent(30) {
                world.runtime.abort_start(id, now);
                return Some(Outcome::Cancelled);
            }
            laws::starts(world, id);
            match world.runtime.start(id, now) {
                Ok(()) => {
                    world.tell_pleg(uid, id, HintKind::Begun);
                    Outcome::Done
                }
                Err(why) => {
                    Outcome::Failed(trouble(reason::RUN_CONTAINER_ERROR, &format!("{why:?}")))
                }
            }
        }
        Step::PostStart { id, .. } | Step::PreStop { id, .. } => {
            let runs = |c: &SimContainer| c.phase == ContainerPhase::Running;
            if !world.runtime.containers.get(id).is_some_and(runs) || flaky(world, 10) {
                world.memory.hooks_failed.insert(id.clone());
                return Some(Outcome::HookFailed("the hook failed".to_owned()));
            }
            if flaky(world, 50) {
                return None;
            }
            Outcome::Done
        }
        Step::StopContainer { id, .. } => {
            let known = world.runtime.containers.get(id);
            if known.is_some_and(|c| c.phase == ContainerPhase::Running) {
                // It may end by itself before its time is up; else the runtime kills it.
                if world.rng.percent(70) {
                    return None;
                }
                let code = if world.rng.percent(50) { 143 } else { 0 };
                world
                    .runtime
                    .exit(id, code, if code == 0 { "Completed" } else { "Error" }, now);
            }
            world.tell_pleg(uid, id, HintKind::Ended);
            Outcome::Done
        }
        Step::StopSandbox { id } => {
            laws::stops_sandbox(world, id);
            world.runtime.stop_sandbox(id, now);
            world.tell_pleg(uid, id, HintKind::Ended);
            Outcome::Done
        }
        Step::RemoveContainer { id, .. } => {
            laws::removes_container(world, id);
            world.runtime.remove_container(id);
            world.tell_pleg(uid, id, HintKind::Removed);
            Outcome::Done
        }
        Step::RemoveSandbox { id } => {
            laws::removes_sandbox(world, id);
            world.runtime.remove_sandbox(id);
            world.tell_pleg(uid, id, HintKind::Removed);
            Outcome::Done
        }
        _ => Outcome::Done,
    };
    // Done, and the answer is lost on its way.
    if flaky(world, 3) {
        unknown("deadline exceeded")
    } else {
        Some(outcome)
    }
}
