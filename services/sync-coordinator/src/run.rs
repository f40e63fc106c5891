//! The one task: inputs in, plans out.

use std::time::Duration;

use futures::StreamExt;
use futures::stream::{LocalBoxStream, SelectAll};
use jiff::Timestamp;
use polylet_kit::Ctx;
use polylet_watch::{PressureKeyOwned, Update, Value, follow, follow_named, follow_value};
use polylet_wire::common::v1::{PodRef, Position};
use polylet_wire::eviction::v1::eviction_service_client::EvictionServiceClient;
use polylet_wire::eviction::v1::{Pressure, WatchPressureRequest};
use polylet_wire::pleg::v1::pleg_service_client::PlegServiceClient;
use polylet_wire::pleg::v1::{
    PodState, WatchPodStatesRequest, WatchRuntimeRequest, WatchRuntimeResponse,
};
use polylet_wire::podconfig::v1::pod_config_service_client::PodConfigServiceClient;
use polylet_wire::podconfig::v1::{Pod, PodSource, WatchPodsRequest};
use polylet_wire::prober::v1::prober_service_client::ProberServiceClient;
use polylet_wire::prober::v1::{Verdict, WatchVerdictsRequest};
use polylet_wire::volume::v1::volume_service_client::VolumeServiceClient;
use polylet_wire::volume::v1::{PodVolumes, WatchPodVolumesRequest};
use tokio::sync::mpsc::UnboundedReceiver;

use crate::coordinator::Coordinator;
use crate::core::learn::Outcome;
use crate::core::plan::StepKey;

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
    /// Volume-manager has heard all that is wanted, or not.
    Completed(Result<(), String>),
    /// Pods of which something is on the node.
    Leftovers(Vec<PodRef>),
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
        all.push(config(ctx, source));
    }
    let peer = ctx.peer("pleg");
    let client = PlegServiceClient::new(peer.channel());
    let pods = follow(peer.clone(), move |resume_after: Option<Position>| {
        let mut client = client.clone();
        async move {
            client
                .watch_pod_states(WatchPodStatesRequest { resume_after })
                .await
        }
    });
    all.push(pods.map(Input::Pods).boxed_local());
    let client = PlegServiceClient::new(peer.channel());
    let runtime = follow_value(peer, move || {
        let mut client = client.clone();
        async move { client.watch_runtime(WatchRuntimeRequest {}).await }
    });
    all.push(runtime.map(Input::Runtime).boxed_local());
    let peer = ctx.peer("volume-manager");
    let client = VolumeServiceClient::new(peer.channel());
    let volumes = follow(peer, move |resume_after| {
        let mut client = client.clone();
        async move {
            client
                .watch_pod_volumes(WatchPodVolumesRequest { resume_after })
                .await
        }
    });
    all.push(volumes.map(Input::Volumes).boxed_local());
    let peer = ctx.peer("prober");
    let client = ProberServiceClient::new(peer.channel());
    let verdicts = follow(peer, move |resume_after| {
        let mut client = client.clone();
        async move {
            client
                .watch_verdicts(WatchVerdictsRequest { resume_after })
                .await
        }
    });
    all.push(verdicts.map(Input::Verdict).boxed_local());
    let peer = ctx.peer("eviction");
    let client = EvictionServiceClient::new(peer.channel());
    let pressure = follow(peer, move |resume_after| {
        let mut client = client.clone();
        async move {
            client
                .watch_pressure(WatchPressureRequest { resume_after })
                .await
        }
    });
    all.push(pressure.map(Input::Pressure).boxed_local());
    all
}

fn config(ctx: &Ctx, source: PodSource) -> LocalBoxStream<'static, Input> {
    let peer = ctx.peer("pod-config");
    let client = PodConfigServiceClient::new(peer.channel());
    let name = match source {
        PodSource::File => "WatchPods(file)",
        PodSource::Http => "WatchPods(http)",
        _ => "WatchPods(api)",
    };
    let source = i32::from(source);
    let pods = follow_named(peer, name, move |resume_after| {
        let mut client = client.clone();
        async move {
            client
                .watch_pods(WatchPodsRequest {
                    resume_after,
                    source,
                })
                .await
        }
    });
    pods.map(move |update| Input::Config(source, update))
        .boxed_local()
}
