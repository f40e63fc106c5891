//! sync-coordinator: plans for pods whose manifests, states and step results are arbitrary.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use polylet_kit::CancellationToken;
use polylet_kit::state_file::StateFileError;
use polylet_sync_coordinator::checkpoint::RestoredState;
use polylet_sync_coordinator::config::Config;
use polylet_sync_coordinator::coordinator::Coordinator;
use polylet_sync_coordinator::core::devices::{DeviceAdmission, PreparedDevices};
use polylet_sync_coordinator::core::node_resources::NodeResources;
use polylet_sync_coordinator::core::runtime_state::{
    ContainerRecord, ContainerState, SandboxRecord,
};
use polylet_sync_coordinator::core::step::{Step, StepFailure, StepOutcome};
use polylet_sync_coordinator::core::view::PodLifecycle;
use polylet_sync_coordinator::effects::Effects;
use polylet_sync_coordinator::input::Input;
use polylet_sync_coordinator::runtime::StepContext;
use polylet_watch::{Store, Update, Value};
use polylet_wire::common::v1::PodRef;
use polylet_wire::pleg::v1::RuntimeChange;
use tracing::Span;

use super::{SOURCES, pod_update, stream_update, uid};
use crate::input::{Frame, frames, text};
use crate::targets::manifests::now;

/// Steps in flight, oldest first.
#[derive(Clone, Default)]
struct StepQueue(Rc<RefCell<Vec<StepContext>>>);

impl Effects for StepQueue {
    fn execute(&self, context: StepContext, _: Span) -> Option<CancellationToken> {
        // What a pod waits for, as it is shown.
        context.step.to_string();
        self.0.borrow_mut().push(context);
        None
    }
    fn refresh_pod(&self, _: &PodRef, _: u64, _: Vec<RuntimeChange>, _: Span) {}
    fn complete_desired(&self, _: u32, _: u32) {}
    fn save_lifecycle(&self, _: &str, _: &PodLifecycle) -> Result<(), StateFileError> {
        Ok(())
    }
    fn forget_pod(&self, _: &str) {}
    fn find_orphans(&self) {}
}

/// Runs a coordinator with the inputs of the frames.
pub(in crate::targets) fn run(data: &[u8]) {
    let steps = StepQueue::default();
    let config = Config {
        parallel_starts: None,
        max_crash_loop_backoff: Duration::from_secs(300),
        allowed_unsafe_sysctls: vec!["net.*".to_owned()],
        node_resources: NodeResources::default(),
    };
    let mut now = now();
    let mut coordinator = Coordinator::new(
        Rc::new(steps.clone()),
        Store::new("fuzz"),
        config,
        RestoredState::default(),
        now,
    );
    for source in SOURCES {
        coordinator.handle_input(Input::PodConfig(source.into(), Update::Synced), now);
    }
    for frame in frames(data).iter().take(64) {
        if let Some(input) = input(frame, &steps, &mut now) {
            coordinator.handle_input(input, now);
            coordinator.reconcile(now);
        }
    }
}

fn input(frame: &Frame<'_>, steps: &StepQueue, now: &mut Timestamp) -> Option<Input> {
    let uid = uid(frame);
    Some(match frame.select(16) {
        0 | 1 => {
            let source = SOURCES.get(usize::from(frame.select(2))).copied()?;
            Input::PodConfig(source.into(), pod_update(frame, source))
        }
        2 => Input::PodConfig(1, Update::Upsert(uid, frame.message()?)),
        3 => Input::PodConfig(1, stream_update(frame, uid)),
        4 => Input::PodState(Update::Upsert(uid, frame.message()?)),
        5 => Input::PodState(stream_update(frame, uid)),
        6 => Input::Runtime(Value::Current(frame.message()?)),
        7 => Input::Volumes(Update::Upsert(uid, frame.message()?)),
        8 => {
            let key = (uid, "c1".to_owned(), i32::from(frame.kind % 4));
            Input::ProbeStatus(Update::Upsert(key, frame.message()?))
        }
        9 => {
            let key = polylet_watch::PressureItemKey::Pod(uid);
            Input::Pressure(Update::Upsert(key, frame.message()?))
        }
        10 => Input::NodeObject(Value::Current(frame.message()?)),
        11 => {
            let seconds = frame.content.iter().map(|byte| i64::from(*byte) * 4).sum();
            *now = now.checked_add(SignedDuration::from_secs(seconds)).ok()?;
            Input::Timer
        }
        12 => Input::Housekeeping,
        13 => Input::OrphansFound(vec![frame.message()?]),
        _ => {
            let context = {
                let mut steps = steps.0.borrow_mut();
                let at = usize::from(frame.content.first().copied()?) % steps.len().max(1);
                (at < steps.len()).then(|| steps.remove(at))?
            };
            Input::StepFinished {
                uid: context.pod.uid.as_str().into(),
                key: context.step.key(),
                outcome: Box::new(outcome(frame, &context, *now)),
                state: None,
            }
        }
    })
}

/// The result of a step: success, with what the step was to make, or a failure.
fn outcome(frame: &Frame<'_>, context: &StepContext, now: Timestamp) -> StepOutcome {
    let kind = frame.content.get(1).copied().unwrap_or_default();
    let rest = frame.content.get(2..).unwrap_or_default();
    if kind % 4 == 1 {
        return StepOutcome::Failed(StepFailure {
            reason: "Error".to_owned(),
            message: text(rest).to_owned(),
            outcome_unknown: kind & 4 != 0,
            name_reserved: kind & 8 != 0,
            image_missing: kind & 16 != 0,
            permanent: kind & 32 != 0,
            ..StepFailure::default()
        });
    }
    if kind % 4 == 2 {
        return StepOutcome::Cancelled;
    }
    match &context.step {
        Step::CreateSandbox { attempt } => StepOutcome::SandboxCreated(SandboxRecord {
            id: "s1".to_owned(),
            attempt: *attempt,
            ready: true,
            ips: vec!["10.0.0.2".to_owned()],
            host_network: false,
            created_at: Some(now),
        }),
        Step::AllocateDevices if kind & 4 != 0 => {
            StepOutcome::DevicesAllocated(DeviceAdmission::Refused(text(rest).to_owned()))
        }
        Step::AllocateDevices => {
            let counts = [(text(rest).to_owned(), i64::from(kind))].into();
            StepOutcome::DevicesAllocated(DeviceAdmission::Allocated(counts))
        }
        Step::PrepareDevices { .. } => StepOutcome::DevicesPrepared(PreparedDevices::default()),
        Step::PullImage { .. } => StepOutcome::ImagePulled {
            image: "nginx".to_owned(),
            image_ref: "sha256:1".to_owned(),
        },
        Step::CreateContainer {
            container,
            attempt,
            backoff_step,
            sandbox_id,
            ..
        } => StepOutcome::ContainerCreated(ContainerRecord {
            id: format!("{container}-{attempt}"),
            sandbox_id: sandbox_id.clone(),
            name: container.clone(),
            attempt: *attempt,
            state: ContainerState::Created,
            exit_code: 0,
            reason: String::new(),
            aborted: false,
            hash: String::new(),
            backoff_step: *backoff_step,
            created_resources: None,
            grace_period: None,
            pre_stop: None,
            created_at: Some(now),
            started_at: None,
            finished_at: None,
        }),
        Step::ApplyVolumes => StepOutcome::VolumesDeclared {
            digest: context
                .manifest
                .as_ref()
                .map(|manifest| manifest.digest().to_owned())
                .unwrap_or_default(),
            sequence: context.sequence,
            volumes: Vec::new(),
        },
        Step::ReleaseVolumes => StepOutcome::VolumesReleased { gone: true },
        _ => StepOutcome::Done,
    }
}
