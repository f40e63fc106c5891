//! Tests of the coordinator with effects that are only recorded.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::time::Duration;

use polylet_kit::CancellationToken;
use polylet_kit::state_file::StateFileError;
use polylet_watch::Update;
use polylet_wire::common::v1::PodRef;
use polylet_wire::pleg::v1::{PodState, RuntimeChange, Sandbox, WatchRuntimeResponse};
use polylet_wire::podconfig::v1::{Pod, PodSource};
use polylet_wire::time::to_wire;
use serde_json::json;
use tracing::Span;

use super::*;
use crate::core::checkpoint::PodCheckpoint;
use crate::core::node_resources::NodeResources;
use crate::core::step::{MissingObject, Step, StepFailure, StepKey, StepOutcome};
use crate::core::view::PodLifecycle;
use crate::runtime::StepContext;
use crate::state::{POD_SOURCES, name_conflicts};

mod at_rest;
mod clock_steps;
mod devices;
mod forgetting;
mod image_arrival;
mod intents;
mod late_names;
mod missing_objects;
mod resources;
mod served_again;
mod sources;
mod volumes;

#[derive(Default)]
struct RecordedEffects {
    steps: RefCell<Vec<(String, Step)>>,
    /// Client epochs of volume declarations, by pod.
    declared: RefCell<Vec<(u32, String)>>,
    /// Client epochs of completions, and the number of pods.
    completed: RefCell<Vec<(u32, u32)>>,
    refreshed: RefCell<Vec<String>>,
    /// Of all watches so far.
    watch_tokens: RefCell<Vec<CancellationToken>>,
    disk_full: Cell<bool>,
}

impl Effects for RecordedEffects {
    fn execute(&self, context: StepContext, _: Span) -> Option<CancellationToken> {
        if context.step == Step::ApplyVolumes {
            let declared = (context.client_epoch, context.pod.uid.clone());
            self.declared.borrow_mut().push(declared);
        }
        let step = (context.pod.uid, context.step);
        self.steps.borrow_mut().push(step);
        None
    }

    fn refresh_pod(&self, pod: &PodRef, _: u64, _: Vec<RuntimeChange>, _: Span) {
        self.refreshed.borrow_mut().push(pod.uid.clone());
    }

    fn complete_desired(&self, client_epoch: u32, pods: u32) {
        self.completed.borrow_mut().push((client_epoch, pods));
    }

    fn save_lifecycle(&self, _: &str, _: &PodLifecycle) -> Result<(), StateFileError> {
        let full = || StateFileError::Write {
            path: "lifecycles/u1.json".into(),
            source: std::io::ErrorKind::StorageFull.into(),
        };
        if self.disk_full.get() {
            Err(full())
        } else {
            Ok(())
        }
    }

    fn forget_pod(&self, _: &str) {}

    fn find_orphans(&self) {}

    fn watch_object(&self, _: &str, _: &StepKey, _: MissingObject) -> CancellationToken {
        let token = CancellationToken::new();
        self.watch_tokens.borrow_mut().push(token.clone());
        token
    }
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + seconds).unwrap()
}

/// A coordinator with a ready runtime and the initial, empty list of pod states.
fn synced(restored: RestoredState) -> (Coordinator, Rc<RecordedEffects>) {
    let recorded = Rc::new(RecordedEffects::default());
    let config = Config {
        parallel_starts: Some(10),
        max_crash_loop_backoff: Duration::from_secs(300),
        allowed_unsafe_sysctls: Vec::new(),
        node_resources: NodeResources::default(),
    };
    let effects = Rc::clone(&recorded) as Rc<dyn Effects>;
    let store = PodSyncStore::new("instance");
    let mut coordinator = Coordinator::new(effects, store, config, restored, at(0));
    let runtime = WatchRuntimeResponse {
        ready: true,
        network_ready: true,
        ..Default::default()
    };
    let runtime = polylet_watch::Value::Current(runtime);
    coordinator.handle_input(Input::Runtime(runtime), at(0));
    coordinator.handle_input(Input::PodState(Update::Synced), at(0));
    (coordinator, recorded)
}

fn sync_sources(coordinator: &mut Coordinator) {
    for source in POD_SOURCES {
        coordinator.handle_input(Input::PodConfig(source.into(), Update::Synced), at(0));
    }
}

fn set_desired(
    coordinator: &mut Coordinator,
    source: PodSource,
    pod: Update<PodUid, Pod>,
    seconds: i64,
) {
    coordinator.handle_input(Input::PodConfig(source.into(), pod), at(seconds));
}

fn state(uid: &str, observed_at: i64) -> Update<PodUid, PodState> {
    let pod = PodRef {
        uid: uid.to_owned(),
        namespace: "default".to_owned(),
        name: "web".to_owned(),
    };
    let state = PodState {
        r#ref: Some(pod),
        observed_at: Some(to_wire(at(observed_at))),
        sandboxes: vec![Sandbox {
            id: "s1".to_owned(),
            ready: true,
            ..Default::default()
        }],
        ..Default::default()
    };
    Update::Upsert(uid.into(), state)
}

fn desired(uid: &str) -> Update<PodUid, Pod> {
    desired_with(uid, "web", json!([]))
}

fn desired_with(uid: &str, name: &str, volumes: serde_json::Value) -> Update<PodUid, Pod> {
    let manifest = json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "uid": uid},
        "spec": {"containers": [{"name": "a", "image": "a:1"}], "volumes": volumes}});
    let pod = Pod {
        r#ref: Some(PodRef {
            uid: uid.to_owned(),
            namespace: "default".to_owned(),
            name: name.to_owned(),
        }),
        manifest: serde_json::to_vec(&manifest).unwrap().into(),
        ..Default::default()
    };
    Update::Upsert(uid.into(), pod)
}

fn worker<'a>(coordinator: &'a Coordinator, uid: &str) -> &'a crate::state::pod_worker::PodWorker {
    coordinator.state.workers.get(uid).expect("it has a worker")
}

#[test]
fn orphan_reported_after_the_initial_sync_is_stopped() {
    let (mut coordinator, effects) = synced(RestoredState::default());
    sync_sources(&mut coordinator);
    // Observed a moment before it arrives, like every state.
    coordinator.handle_input(Input::PodState(state("u1", 4)), at(5));
    coordinator.reconcile(at(5));
    let stop = Step::StopSandbox { id: "s1".into() };
    assert_eq!(*effects.steps.borrow(), [("u1".to_owned(), stop)]);
}

#[test]
fn removed_pod_state_is_refreshed() {
    let (mut coordinator, effects) = synced(RestoredState::default());
    coordinator.handle_input(Input::PodState(state("u1", 4)), at(5));
    coordinator.handle_input(Input::PodState(Update::Remove("u1".into())), at(6));
    assert_eq!(*effects.refreshed.borrow(), ["u1"]);
    let observed = worker(&coordinator, "u1").pod.observed.clone();
    assert!(!observed.expect("it was reported").is_empty());
}

#[test]
fn second_static_pod_of_a_name_waits_even_if_it_was_admitted_before() {
    let checkpoint = PodCheckpoint {
        acknowledged_at: Some(at(-9)),
        ..Default::default()
    };
    let (mut coordinator, effects) = synced(RestoredState {
        checkpoints: BTreeMap::from([("u2".to_owned(), checkpoint)]),
        ..Default::default()
    });
    let [one, two, _] = POD_SOURCES;
    set_desired(&mut coordinator, one, desired("u1"), 1);
    coordinator.reconcile(at(1));
    set_desired(&mut coordinator, two, desired("u2"), 2);
    coordinator.reconcile(at(2));
    assert!(effects.steps.borrow().iter().all(|(uid, _)| uid == "u1"));
}

#[test]
fn pods_are_reconciled_in_the_order_of_their_arrival() {
    let (mut coordinator, _) = synced(RestoredState::default());
    for (uid, name) in [("u3", "a"), ("u1", "b"), ("u2", "c")] {
        let pod = desired_with(uid, name, json!([]));
        set_desired(&mut coordinator, PodSource::File, pod, 1);
    }
    let workers = &mut coordinator.state.workers;
    workers.queue.set_waiting_for_capacity(&"u3".into(), true);
    let order: Vec<PodUid> = std::iter::from_fn(|| workers.next_to_reconcile()).collect();
    let expected = ["u1", "u2", "u3"];
    assert_eq!(order, expected, "pods that wait for capacity are last");
    workers.queue.set_waiting_for_capacity(&"u3".into(), false);
    workers.requeue_all();
    let order: Vec<PodUid> = std::iter::from_fn(|| workers.next_to_reconcile()).collect();
    assert_eq!(order, ["u3", "u1", "u2"]);
}

#[test]
fn reports_about_unknown_pods_are_cached() {
    use polylet_wire::prober::v1::{Outcome, ProbeKind, ProbeStatus};
    use polylet_wire::volume::v1::PodVolumes;
    let (mut coordinator, _) = synced(RestoredState::default());
    let mut status = ProbeStatus::default();
    status.set_outcome(Outcome::Success);
    let key = ("u1".into(), "c1".to_owned(), ProbeKind::Startup.into());
    let probe = Input::ProbeStatus(Update::Upsert(key, status));
    coordinator.handle_input(probe, at(1));
    let volumes = PodVolumes {
        sequence: 7,
        ..Default::default()
    };
    let volumes = Input::Volumes(Update::Upsert("u1".into(), volumes));
    coordinator.handle_input(volumes, at(1));
    set_desired(&mut coordinator, POD_SOURCES[0], desired("u1"), 2);
    let pod = &worker(&coordinator, "u1").pod;
    assert!(pod.startup_succeeded.contains("c1"));
    let reported = pod.volumes.reported.as_ref();
    assert_eq!(reported.map(|(sequence, _)| *sequence), Some(7));
}

#[test]
fn orphans_are_kept_until_all_sources_have_synced() {
    let (mut coordinator, effects) = synced(RestoredState::default());
    coordinator.handle_input(Input::PodState(state("u1", 0)), at(1));
    for source in POD_SOURCES {
        coordinator.reconcile(at(1));
        assert!(effects.steps.borrow().is_empty(), "{source:?}");
        coordinator.handle_input(Input::PodConfig(source.into(), Update::Synced), at(1));
    }
    coordinator.reconcile(at(1));
    assert_eq!(effects.steps.borrow().len(), 1);
}

#[test]
fn clock_set_back_requeues_all_pods() {
    let (mut coordinator, _) = synced(RestoredState::default());
    set_desired(&mut coordinator, POD_SOURCES[0], desired("u1"), 10);
    coordinator.reconcile(at(10));
    assert!(coordinator.state.workers.queue.is_empty());
    let step = jiff::SignedDuration::from_secs(-3600);
    coordinator.handle_input(Input::ClockStepped(step), at(-3590));
    let queue = &coordinator.state.workers.queue;
    assert!(queue.contains("u1"));
    assert_eq!(queue.next_due(), None, "due times are derived again");
}

#[test]
fn lifecycle_in_progress_is_restored() {
    let mut lifecycle = PodLifecycle::default();
    let due = crate::core::view::PostStartState::Due;
    lifecycle.post_starts.insert("c1".into(), due);
    let (mut coordinator, _) = synced(RestoredState {
        lifecycles: BTreeMap::from([("u1".to_owned(), lifecycle.clone())]),
        ..Default::default()
    });
    set_desired(&mut coordinator, POD_SOURCES[0], desired("u1"), 1);
    assert_eq!(worker(&coordinator, "u1").saved_lifecycle, lifecycle);
}

#[test]
fn pod_that_the_cluster_holds_as_ended_never_starts() {
    use polylet_wire::podconfig::v1::TerminalPhase;
    let (mut coordinator, effects) = synced(RestoredState::default());
    let Update::Upsert(uid, mut pod) = desired("u1") else {
        return;
    };
    pod.set_terminal_phase(TerminalPhase::Succeeded);
    let pod = Update::Upsert(uid, pod);
    set_desired(&mut coordinator, POD_SOURCES[2], pod, 1);
    sync_sources(&mut coordinator);
    coordinator.reconcile(at(1));
    let steps = effects.steps.take().into_iter().map(|(_, step)| step);
    assert_eq!(
        steps.collect::<Vec<_>>(),
        [Step::Checkpoint, Step::RemoveCgroup]
    );
    let status = worker(&coordinator, "u1").pod_sync().expect("it has one");
    assert_eq!(status.terminal.expect("it has ended").phase, "Succeeded");
}

#[test]
fn pod_that_was_accepted_before_keeps_its_start_time() {
    for (start_time, expected) in [(None, at(1)), (Some(at(-500)), at(-500))] {
        let (mut coordinator, _) = synced(RestoredState::default());
        let Update::Upsert(uid, mut pod) = desired("u1") else {
            return;
        };
        pod.start_time = start_time.map(to_wire);
        set_desired(
            &mut coordinator,
            POD_SOURCES[2],
            Update::Upsert(uid, pod),
            1,
        );
        let acknowledged = worker(&coordinator, "u1").pod.checkpoint.acknowledged_at;
        assert_eq!(acknowledged, Some(expected));
    }
}

#[test]
fn orphans_are_kept_while_a_source_serves_cached_pods() {
    let (mut coordinator, effects) = synced(RestoredState::default());
    let Update::Upsert(uid, mut pod) = desired_with("u1", "other", json!([])) else {
        return;
    };
    pod.stale_since = Some(to_wire(at(-5)));
    let cached = Update::Upsert(uid, pod);
    set_desired(&mut coordinator, POD_SOURCES[2], cached, 1);
    sync_sources(&mut coordinator);
    coordinator.handle_input(Input::PodState(state("u2", 4)), at(5));
    coordinator.reconcile(at(5));
    let stops_orphan =
        |effects: &RecordedEffects| effects.steps.borrow().iter().any(|(uid, _)| uid == "u2");
    assert!(!stops_orphan(&effects));
    assert!(!effects.steps.borrow().is_empty(), "cached pods run");
    let current = desired_with("u1", "other", json!([]));
    set_desired(&mut coordinator, POD_SOURCES[2], current, 6);
    coordinator.reconcile(at(6));
    assert!(stops_orphan(&effects));
}

#[test]
fn unchanged_manifest_is_not_parsed_again() {
    let (mut coordinator, _) = synced(RestoredState::default());
    set_desired(&mut coordinator, POD_SOURCES[0], desired("u1"), 1);
    let spec = |coordinator: &Coordinator| worker(coordinator, "u1").pod.spec.clone().unwrap();
    let before = spec(&coordinator);
    set_desired(&mut coordinator, POD_SOURCES[0], desired("u1"), 2);
    assert!(std::sync::Arc::ptr_eq(&before, &spec(&coordinator)));
}
