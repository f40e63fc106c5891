//! sync-coordinator: the real one, its acts going into the simulated world.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use jiff::Timestamp;
use polylet_kit::CancellationToken;
use polylet_sync_coordinator::act::Job;
use polylet_sync_coordinator::coordinator::Coordinator;
use polylet_sync_coordinator::core::hooks::Lifecycle;
use polylet_sync_coordinator::core::room::Room;
use polylet_sync_coordinator::core::step::Step;
use polylet_sync_coordinator::outside::Outside;
use polylet_sync_coordinator::run::Input;
use polylet_sync_coordinator::settings::{Kept, Settings};
use polylet_watch::{Store, Value};
use polylet_wire::common::v1::PodRef;
use polylet_wire::eviction::v1::WatchPressureResponse;
use polylet_wire::pleg::v1::{WatchPodStatesResponse, WatchRuntimeResponse};
use polylet_wire::podconfig::v1::{PodSource, WatchPodsResponse};
use polylet_wire::prober::v1::WatchVerdictsResponse;
use polylet_wire::volume::v1::WatchPodVolumesResponse;
use tracing::Span;

use super::config::SOURCES;
use crate::calls::Work;
use crate::laws;
use crate::link::Link;
use crate::sabotage::Sabotage;
use crate::world::{Who, World};

enum Ask {
    Step(Box<Job>, Option<CancellationToken>),
    Refresh(String, u64),
    Complete(u32, u32),
    Keep(String, Lifecycle),
    Forget(String),
    Leftovers,
}

/// What the coordinator asks for, in order.
#[derive(Clone, Default)]
struct Outbox(Rc<RefCell<Vec<Ask>>>);

impl Outside for Outbox {
    fn carry_out(&self, job: Job, _: Span) -> Option<CancellationToken> {
        let pull = matches!(job.step, Step::PullImage { .. });
        let cancel = pull.then(CancellationToken::new);
        self.0
            .borrow_mut()
            .push(Ask::Step(Box::new(job), cancel.clone()));
        cancel
    }

    fn refresh(&self, pod: &PodRef, acts: u64, _: Span) {
        self.0
            .borrow_mut()
            .push(Ask::Refresh(pod.uid.clone(), acts));
    }

    fn complete(&self, declarer: u32, pod_count: u32) {
        let ask = Ask::Complete(declarer, pod_count);
        self.0.borrow_mut().push(ask);
    }

    fn keep(&self, uid: &str, lifecycle: &Lifecycle) {
        self.0
            .borrow_mut()
            .push(Ask::Keep(uid.to_owned(), lifecycle.clone()));
    }

    fn forget(&self, uid: &str) {
        self.0.borrow_mut().push(Ask::Forget(uid.to_owned()));
    }

    fn leftovers(&self) {
        self.0.borrow_mut().push(Ask::Leftovers);
    }
}

/// A life of it.
pub struct Node {
    /// Which.
    pub life: u32,
    core: Coordinator,
    asks: Outbox,
    /// What the sources want, as heard.
    pub pods: BTreeMap<PodSource, Link<WatchPodsResponse>>,
    /// What the runtime holds, as heard.
    pub states: Link<WatchPodStatesResponse>,
    volumes: Link<WatchPodVolumesResponse>,
    verdicts: Link<WatchVerdictsResponse>,
    pressure: Link<WatchPressureResponse>,
    runtime: Option<WatchRuntimeResponse>,
}

impl Node {
    /// When it wants to look though nothing happens.
    pub fn due(&self) -> Option<Timestamp> {
        self.core.next_due()
    }

    /// Whether any source serves a pod, as heard.
    pub fn hears_of(&self, uid: &str) -> bool {
        let uid = uid.to_owned();
        self.pods.values().any(|link| link.knows(&uid))
    }

    /// Whether all sources and the runtime have been heard in this life.
    pub fn has_heard_all(&self) -> bool {
        self.states.heard && self.pods.values().all(|link| link.heard)
    }
}

/// A name that a life of it declares under.
pub fn declarer(life: u32, name: u32) -> String {
    format!("sync-{life}-{name}")
}

/// Reads what is kept, and has heard nothing yet.
pub fn start(world: &mut World, life: u32) {
    let mut kept = Kept {
        entries: world.disk.journal.clone(),
        intents: world.disk.intents.clone(),
        lifecycles: world.disk.lifecycles.clone(),
        taken_over: BTreeMap::new(),
    };
    match world.sabotage {
        Some(Sabotage::JournalForgotten) => kept.entries.clear(),
        Some(Sabotage::IntentsForgotten) => kept.intents.clear(),
        _ => {}
    }
    let store = Store::new(&format!("sync-{life}"));
    let asks = Outbox::default();
    let settings = Settings {
        parallel_starts: 2,
        crash_cap: Duration::from_secs(20),
        allowed_unsafe_sysctls: Vec::new(),
        room: Room::default(),
    };
    let outside = Rc::new(asks.clone());
    let core = Coordinator::new(outside, store.clone(), settings, kept, world.now);
    let too_soon = world.sabotage == Some(Sabotage::SyncedTooSoon);
    let link = |_| {
        let mut link = Link::default();
        link.synced_too_soon = too_soon;
        link
    };
    world.stores.sync = Some((life, store));
    world.coordinator = Some(Node {
        life,
        core,
        asks,
        pods: SOURCES
            .into_iter()
            .map(|source| (source, link(source)))
            .collect(),
        states: Link::default(),
        volumes: Link::default(),
        verdicts: Link::default(),
        pressure: Link::default(),
        runtime: None,
    });
}

/// Its streams.
pub const LINKS: usize = 8;

/// Something happens on one of its streams.
pub fn listen(world: &mut World, which: usize) -> bool {
    let World {
        coordinator: Some(node),
        stores,
        rng,
        calm,
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
            let told = link.hear(&served, rng, *calm);
            told.into_iter()
                .map(|update| Input::Config(source.into(), update))
                .collect()
        }
        3 => node
            .states
            .hear(&stores.states, rng, *calm)
            .into_iter()
            .map(Input::Pods)
            .collect(),
        4 => node
            .volumes
            .hear(&stores.volumes, rng, *calm)
            .into_iter()
            .map(Input::Volumes)
            .collect(),
        5 => node
            .verdicts
            .hear(&stores.verdicts, rng, *calm)
            .into_iter()
            .map(Input::Verdict)
            .collect(),
        6 => node
            .pressure
            .hear(&stores.pressure, rng, *calm)
            .into_iter()
            .map(Input::Pressure)
            .collect(),
        _ => {
            let now = stores
                .runtime
                .as_ref()
                .map(|(_, told)| told.borrow().clone());
            let news = now != node.runtime;
            node.runtime.clone_from(&now);
            let value = match now {
                Some(now) => Value::Current(now),
                None => Value::Stale("pleg is away".to_owned()),
            };
            if news {
                vec![Input::Runtime(value)]
            } else {
                Vec::new()
            }
        }
    };
    let any = !inputs.is_empty();
    take(world, inputs);
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
            let mut told = Vec::new();
            $link.cut(&mut told);
            inputs.extend(told.into_iter().map($input));
        }};
    }
    match which {
        0..=2 => {
            let source = SOURCES[which];
            if let Some(link) = node.pods.get_mut(&source) {
                cut!(link, |update| Input::Config(source.into(), update));
            }
        }
        3 => cut!(node.states, Input::Pods),
        4 => cut!(node.volumes, Input::Volumes),
        5 => cut!(node.verdicts, Input::Verdict),
        _ => cut!(node.pressure, Input::Pressure),
    }
    take(world, inputs);
}

/// It looks because a moment has come.
pub fn tick(world: &mut World) {
    take(world, vec![Input::Timer]);
}

/// Takes inputs in, and does what it decides.
pub fn take(world: &mut World, inputs: Vec<Input>) {
    let now = world.now;
    let Some(node) = &mut world.coordinator else {
        return;
    };
    if inputs.is_empty() {
        return;
    }
    for input in inputs {
        if let Input::Pods(update) = &input
            && let Some(log) = &mut world.log
        {
            log.push(format!("           coordinator hears {}", told(update)));
        }
        node.core.take(input, now);
    }
    node.core.work(now);
    let life = node.life;
    let asks = std::mem::take(&mut *node.asks.0.borrow_mut());
    for ask in asks {
        match ask {
            Ask::Step(job, cancel) => {
                laws::issues(world, &job);
                world.say(|| format!("coordinator: {} {:?}", job.pod.uid, job.step));
                world.call(Who::Coordinator, life, Work::step(*job, cancel));
            }
            Ask::Refresh(uid, acts) => world.call(Who::Coordinator, life, Work::refresh(uid, acts)),
            Ask::Complete(declarer, pods) => {
                world.call(Who::Coordinator, life, Work::Complete { declarer, pods });
            }
            Ask::Keep(uid, lifecycle) if lifecycle.is_empty() => {
                world.disk.lifecycles.remove(&uid);
            }
            Ask::Keep(uid, lifecycle) => {
                world.disk.lifecycles.insert(uid, lifecycle);
            }
            Ask::Leftovers => world.call(Who::Coordinator, life, Work::Leftovers),
            Ask::Forget(uid) => {
                world.say(|| format!("coordinator: forgets {uid}"));
                world.disk.journal.remove(&uid);
                world.disk.intents.remove(&uid);
                world.disk.lifecycles.remove(&uid);
                laws::forgotten(world, &uid);
            }
        }
    }
}

/// What pleg told, in short.
fn told(update: &polylet_watch::Update<String, polylet_wire::pleg::v1::PodState>) -> String {
    match update {
        polylet_watch::Update::Upsert(uid, state) => {
            let sandboxes = state.sandboxes.iter();
            let sandboxes: Vec<_> = sandboxes.map(|s| (&s.id, s.ready)).collect();
            let containers = state.containers.iter();
            let containers: Vec<_> = containers.map(|c| (&c.id, c.phase())).collect();
            let doubt = &state.inspect_error;
            format!("{uid}: {sandboxes:?} {containers:?} {doubt}")
        }
        other => format!("{other:?}"),
    }
}
