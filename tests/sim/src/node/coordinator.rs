//! sync-coordinator: the real coordinator with simulated effects.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use jiff::Timestamp;
use polylet_kit::CancellationToken;
use polylet_kit::state_file::StateFileError;
use polylet_model::PodUid;
use polylet_sync_coordinator::checkpoint::RestoredState;
use polylet_sync_coordinator::config::Config;
use polylet_sync_coordinator::coordinator::Coordinator;
use polylet_sync_coordinator::core::node_resources::NodeResources;
use polylet_sync_coordinator::core::step::Step;
use polylet_sync_coordinator::core::view::PodLifecycle;
use polylet_sync_coordinator::effects::Effects;
use polylet_sync_coordinator::input::Input;
use polylet_sync_coordinator::runtime::StepContext;
use polylet_watch::{Store, Value};
use polylet_wire::common::v1::PodRef;
use polylet_wire::eviction::v1::WatchPressureResponse;
use polylet_wire::pleg::v1::{
    RefreshPodRequest, RuntimeChange, WatchPodStatesResponse, WatchRuntimeResponse,
};
use polylet_wire::podconfig::v1::{PodSource, WatchPodsResponse};
use polylet_wire::prober::v1::WatchProbeStatusesResponse;
use polylet_wire::volume::v1::WatchPodVolumesResponse;
use tracing::Span;

use super::config::SOURCES;
use crate::calls::Work;
use crate::invariants;
use crate::link::Link;
use crate::mutations::Mutation;
use crate::steps;
use crate::world::{ServiceId, World};

enum Effect {
    Step(Box<StepContext>, Option<CancellationToken>),
    Refresh(RefreshPodRequest, u64),
    Complete(u32, u32),
    SaveLifecycle(String, PodLifecycle),
    ForgetPod(String),
    FindOrphans,
}

/// The requested effects in order.
#[derive(Clone, Default)]
struct Outbox(Rc<RefCell<Vec<Effect>>>);

impl Effects for Outbox {
    fn execute(&self, context: StepContext, _: Span) -> Option<CancellationToken> {
        let is_cancellable = matches!(
            context.step,
            Step::PullImage { .. } | Step::AllocateDevices | Step::PrepareDevices { .. }
        );
        let cancel = is_cancellable.then(CancellationToken::new);
        self.0
            .borrow_mut()
            .push(Effect::Step(Box::new(context), cancel.clone()));
        cancel
    }

    fn refresh_pod(&self, pod: &PodRef, acts: u64, changes: Vec<RuntimeChange>, _: Span) {
        let request = refresh_request(pod, changes);
        self.0.borrow_mut().push(Effect::Refresh(request, acts));
    }

    fn complete_desired(&self, client_epoch: u32, pod_count: u32) {
        let effect = Effect::Complete(client_epoch, pod_count);
        self.0.borrow_mut().push(effect);
    }

    fn save_lifecycle(&self, uid: &str, lifecycle: &PodLifecycle) -> Result<(), StateFileError> {
        self.0
            .borrow_mut()
            .push(Effect::SaveLifecycle(uid.to_owned(), lifecycle.clone()));
        Ok(())
    }

    fn forget_pod(&self, uid: &str) {
        self.0.borrow_mut().push(Effect::ForgetPod(uid.to_owned()));
    }

    fn find_orphans(&self) {
        self.0.borrow_mut().push(Effect::FindOrphans);
    }
}

/// A request for the state of a pod after these changes, or of everything without any.
pub fn refresh_request(pod: &PodRef, changes: Vec<RuntimeChange>) -> RefreshPodRequest {
    RefreshPodRequest {
        uid: pod.uid.clone(),
        force: false,
        changes,
        pod: Some(pod.clone()),
    }
}

/// A process instance of the coordinator.
pub struct CoordinatorInstance {
    /// The number of the instance.
    pub incarnation: u32,
    core: Coordinator,
    effects: Outbox,
    /// The received pods by source.
    pub pods: BTreeMap<PodSource, Link<WatchPodsResponse>>,
    /// The received state of the runtime.
    pub states: Link<WatchPodStatesResponse>,
    volumes: Link<WatchPodVolumesResponse>,
    probe_results: Link<WatchProbeStatusesResponse>,
    pressure: Link<WatchPressureResponse>,
    runtime: Option<WatchRuntimeResponse>,
}

impl CoordinatorInstance {
    /// The next due time.
    pub fn due(&self) -> Option<Timestamp> {
        self.core.next_due()
    }

    /// Whether any source has sent the pod.
    pub fn has_pod(&self, uid: &str) -> bool {
        let uid = uid.to_owned();
        self.pods
            .values()
            .any(|link| link.knows(&uid.as_str().into()))
    }

    /// Whether all sources and the runtime have synced in this incarnation.
    pub fn has_synced(&self) -> bool {
        self.states.has_synced && self.pods.values().all(|link| link.has_synced)
    }
}

/// A client id of an incarnation for declarations.
pub fn client_id(incarnation: u32, name: u32) -> String {
    format!("sync-{incarnation}-{name}")
}

/// Starts an instance with the persisted state.
pub fn start(world: &mut World, incarnation: u32) {
    let mut restored = RestoredState {
        checkpoints: world.disk.checkpoints.clone(),
        pending_sandboxes: world.disk.sandbox_intents.clone(),
        lifecycles: world.disk.lifecycles.clone(),
        kubelet_allocations: BTreeMap::new(),
    };
    match world.mutation {
        Some(Mutation::CheckpointsLost) => restored.checkpoints.clear(),
        Some(Mutation::SandboxIntentsLost) => restored.pending_sandboxes.clear(),
        _ => {}
    }
    let store = Store::new(&format!("sync-{incarnation}"));
    let effects = Outbox::default();
    let settings = Config {
        parallel_starts: Some(2),
        max_crash_loop_backoff: Duration::from_secs(20),
        allowed_unsafe_sysctls: Vec::new(),
        node_resources: NodeResources::default(),
    };
    let effects_sink = Rc::new(effects.clone());
    let core = Coordinator::new(effects_sink, store.clone(), settings, restored, world.now);
    let premature_sync = world.mutation == Some(Mutation::PrematureSync);
    let link = |_| {
        let mut link = Link::default();
        link.premature_sync = premature_sync;
        link
    };
    world.stores.sync = Some((incarnation, store));
    world.coordinator = Some(CoordinatorInstance {
        incarnation,
        core,
        effects,
        pods: SOURCES
            .into_iter()
            .map(|source| (source, link(source)))
            .collect(),
        states: Link::default(),
        volumes: Link::default(),
        probe_results: Link::default(),
        pressure: Link::default(),
        runtime: None,
    });
}

/// The number of its streams.
pub const LINKS: usize = 8;

/// Receives from one of its streams.
pub fn listen(world: &mut World, which: usize) -> bool {
    let World {
        coordinator: Some(node),
        stores,
        rng,
        quiescing,
        ..
    } = world
    else {
        return false;
    };
    let inputs: Vec<Input> = match which {
        0..=2 => {
            let source = SOURCES[which];
            let served = stores.pods.get(&source).cloned().flatten();
            let Some(link) = node.pods.get_mut(&source) else {
                return false;
            };
            let updates = link.receive(&served, rng, *quiescing);
            updates
                .into_iter()
                .map(|update| Input::PodConfig(source.into(), update))
                .collect()
        }
        3 => node
            .states
            .receive(&stores.states, rng, *quiescing)
            .into_iter()
            .map(Input::PodState)
            .collect(),
        4 => node
            .volumes
            .receive(&stores.volumes, rng, *quiescing)
            .into_iter()
            .map(Input::Volumes)
            .collect(),
        5 => node
            .probe_results
            .receive(&stores.probe_results, rng, *quiescing)
            .into_iter()
            .map(Input::ProbeStatus)
            .collect(),
        6 => node
            .pressure
            .receive(&stores.pressure, rng, *quiescing)
            .into_iter()
            .map(Input::Pressure)
            .collect(),
        _ => {
            let now = stores
                .runtime
                .as_ref()
                .map(|(_, updates)| updates.borrow().clone());
            let changed = now != node.runtime;
            node.runtime.clone_from(&now);
            let value = match now {
                Some(now) => Value::Current(now),
                None => Value::Stale("pleg is unavailable".to_owned()),
            };
            if changed {
                vec![Input::Runtime(value)]
            } else {
                Vec::new()
            }
        }
    };
    let any = !inputs.is_empty();
    handle_inputs(world, inputs);
    any
}

/// Breaks one of its streams.
pub fn cut(world: &mut World, which: usize) {
    let Some(node) = &mut world.coordinator else {
        return;
    };
    let mut inputs = Vec::new();
    macro_rules! cut {
        ($link:expr, $input:expr) => {{
            let mut updates = Vec::new();
            $link.cut(&mut updates);
            inputs.extend(updates.into_iter().map($input));
        }};
    }
    match which {
        0..=2 => {
            let source = SOURCES[which];
            if let Some(link) = node.pods.get_mut(&source) {
                cut!(link, |update| Input::PodConfig(source.into(), update));
            }
        }
        3 => cut!(node.states, Input::PodState),
        4 => cut!(node.volumes, Input::Volumes),
        5 => cut!(node.probe_results, Input::ProbeStatus),
        _ => cut!(node.pressure, Input::Pressure),
    }
    handle_inputs(world, inputs);
}

/// Runs a due timer.
pub fn tick(world: &mut World) {
    handle_inputs(world, vec![Input::Timer]);
}

/// Handles inputs and executes the effects.
pub fn handle_inputs(world: &mut World, inputs: Vec<Input>) {
    let now = world.now;
    let Some(node) = &mut world.coordinator else {
        return;
    };
    if inputs.is_empty() {
        return;
    }
    for input in inputs {
        if let Input::PodState(update) = &input
            && let Some(log) = &mut world.log
        {
            log.push(format!(
                "           coordinator receives {}",
                describe(update)
            ));
        }
        node.core.handle_input(input, now);
    }
    node.core.reconcile(now);
    let incarnation = node.incarnation;
    let effects = std::mem::take(&mut *node.effects.0.borrow_mut());
    for effect in effects {
        match effect {
            Effect::Step(context, cancel) => {
                invariants::check_step(world, &context);
                world.record(|| format!("coordinator: {} {:?}", context.pod.uid, context.step));
                let work = steps::begin(world, *context, cancel);
                world.call(ServiceId::Coordinator, incarnation, work);
            }
            Effect::Refresh(request, acts) => world.call(
                ServiceId::Coordinator,
                incarnation,
                Work::refresh(request, acts),
            ),
            Effect::Complete(client_id, pods) => {
                world.call(
                    ServiceId::Coordinator,
                    incarnation,
                    Work::Complete { client_id, pods },
                );
            }
            Effect::SaveLifecycle(uid, lifecycle) if lifecycle.is_empty() => {
                world.disk.lifecycles.remove(&uid);
            }
            Effect::SaveLifecycle(uid, lifecycle) => {
                world.disk.lifecycles.insert(uid, lifecycle);
            }
            Effect::FindOrphans => {
                world.call(ServiceId::Coordinator, incarnation, Work::FindOrphans)
            }
            Effect::ForgetPod(uid) => {
                world.record(|| format!("coordinator: forgets {uid}"));
                world.disk.checkpoints.remove(&uid);
                world.disk.sandbox_intents.remove(&uid);
                world.disk.lifecycles.remove(&uid);
                invariants::forget_pod(world, &uid);
            }
        }
    }
}

/// A short description of a state for the log.
fn describe(update: &polylet_watch::Update<PodUid, polylet_wire::pleg::v1::PodState>) -> String {
    match update {
        polylet_watch::Update::Upsert(uid, state) => {
            let sandboxes = state.sandboxes.iter();
            let sandboxes: Vec<_> = sandboxes.map(|s| (&s.id, s.ready)).collect();
            let containers = state.containers.iter();
            let containers: Vec<_> = containers.map(|c| (&c.id, c.phase())).collect();
            let error = &state.inspect_error;
            format!("{uid}: {sandboxes:?} {containers:?} {error}")
        }
        other => format!("{other:?}"),
    }
}
