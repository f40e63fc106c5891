//! The one task: inputs in, plans out.

use std::time::Duration;

use futures::StreamExt;
use futures::stream::{LocalBoxStream, SelectAll};
use jiff::Timestamp;
use polylet_kit::{Ctx, follow};
use polylet_watch::{PressureKeyOwned, Update, Value};
use polylet_wire::common::v1::PodRef;
use polylet_wire::eviction::v1::Pressure;
use polylet_wire::pleg::v1::{PodState, WatchRuntimeResponse};
use polylet_wire::podconfig::v1::{Pod, PodSource, WatchNodeResponse};
use polylet_wire::prober::v1::Verdict;
use polylet_wire::volume::v1::PodVolumes;
use tokio::sync::mpsc::UnboundedReceiver;

use crate::coordinator::Coordinator;
use crate::core::learn::{Outcome, Trouble};
use crate::core::step::StepKey;

/// Everything that can happen to this service.
pub enum Input {
    /// A source says what should run.
    Config(i32, Update<String, Pod>),
    /// The runtime's state of a pod.
    Pods(Update<String, PodState>),
    /// The runtime itself.
    Runtime(Value<WatchRuntimeResponse>),
    /// Where a pod's volumes stand.
    Volumes(Update<String, PodVolumes>),
    /// Whether a container is well.
    Verdict(Update<(String, String, i32), Verdict>),
    /// Whether the node is well, and which pods must go.
    Pressure(Update<PressureKeyOwned, Pressure>),
    /// A step has come to its end.
    StepDone {
        /// The pod.
        uid: String,
        /// The step.
        key: StepKey,
        /// What became of it.
        outcome: Box<Outcome>,
        /// What the runtime holds after it, where that was asked.
        state: Option<PodState>,
    },
    /// The runtime's state of a pod, asked for after so many acts.
    Refreshed {
        /// The pod.
        uid: String,
        /// Our acts at the time.
        acts: u64,
        /// The answer.
        state: Option<PodState>,
    },
    /// Volume-manager has heard all that is wanted, declared under this name, or not.
    Completed(u32, Result<(), Trouble>),
    /// Pods of which something is on the node.
    Leftovers(Vec<PodRef>),
    /// This node's object in the cluster.
    Node(Value<WatchNodeResponse>),
    /// What a step failed for is there now.
    Appeared {
        /// The pod.
        uid: String,
        /// The step.
        key: StepKey,
    },
    /// A moment that some pod waits for has come.
    Timer,
}

/// So often it is looked for what pods left on the node though nothing happened to any.
const LOOK_AGAIN: Duration = Duration::from_secs(3600);

/// Sources of pods.
pub(crate) const SOURCES: [PodSource; 3] = [PodSource::File, PodSource::Http, PodSource::Api];

/// Runs until the process ends.
pub(crate) async fn run(
    ctx: Ctx,
    mut coordinator: Coordinator,
    mut done: UnboundedReceiver<Input>,
) {
    let mut streams = streams(&ctx);
    let drain = ctx.drain();
    let mut slow = tokio::time::interval(LOOK_AGAIN);
    loop {
        let due = coordinator.next_due();
        let input = tokio::select! {
            Some(input) = done.recv() => input,
            Some(input) = streams.next() => input,
            () = until(due) => Input::Timer,
            _ = slow.tick() => {
                coordinator.sweep.again(Timestamp::now());
                Input::Timer
            }
            () = drain.cancelled(), if !coordinator.is_draining() => {
                coordinator.drain();
                continue;
            }
        };
        coordinator.take(input, Timestamp::now());
        // What has come in meanwhile counts before anything is planned.
        while let Ok(input) = done.try_recv() {
            coordinator.take(input, Timestamp::now());
        }
        coordinator.work(Timestamp::now());
        if coordinator.is_draining() && coordinator.is_idle() {
            return;
        }
    }
}

async fn until(due: Option<Timestamp>) {
    let Some(due) = due else {
        return std::future::pending().await;
    };
    let left = due.duration_since(Timestamp::now());
    // A wall clock that was set must not put a wake-up off for long.
    let left = Duration::try_from(left)
        .unwrap_or(Duration::ZERO)
        .min(Duration::from_secs(60));
    tokio::time::sleep(left).await;
}

type Inputs = SelectAll<LocalBoxStream<'static, Input>>;

fn streams(ctx: &Ctx) -> Inputs {
    let mut all = SelectAll::new();
    for source in SOURCES {
        let pods = follow::podconfig::pods(ctx, source);
        let source = i32::from(source);
        all.push(
            pods.map(move |update| Input::Config(source, update))
                .boxed_local(),
        );
    }
    all.push(follow::podconfig::node(ctx).map(Input::Node).boxed_local());
    all.push(follow::pleg::pod_states(ctx).map(Input::Pods).boxed_local());
    all.push(follow::pleg::runtime(ctx).map(Input::Runtime).boxed_local());
    all.push(
        follow::volume::pod_volumes(ctx)
            .map(Input::Volumes)
            .boxed_local(),
    );
    all.push(
        follow::prober::verdicts(ctx)
            .map(Input::Verdict)
            .boxed_local(),
    );
    all.push(
        follow::eviction::pressure(ctx)
            .map(Input::Pressure)
            .boxed_local(),
    );
    all
}
