//! The event loop: collects inputs, then reconciles the pods that they concern.

use std::time::{Duration, Instant};

use futures::StreamExt;
use futures::stream::{LocalBoxStream, SelectAll};
use jiff::Timestamp;
use polylet_kit::clock::{ClockSteps, sleep_until_opt};
use polylet_kit::{Ctx, follow, memory};
use tokio::sync::mpsc::UnboundedReceiver;

use crate::clock_monitor::ClockMonitor;
use crate::coordinator::Coordinator;
use crate::input::Input;
use crate::runtime::metrics;
use crate::runtime::metrics::limits::{LimitedCalls, set_limit};
use crate::state::POD_SOURCES;

/// How often to look for orphaned pods without another reason to.
const HOUSEKEEPING_PERIOD: Duration = Duration::from_secs(3600);

type InputStream = SelectAll<LocalBoxStream<'static, Input>>;

/// The task that owns the [`Coordinator`].
pub(crate) struct EventLoop {
    ctx: Ctx,
    coordinator: Coordinator,
    streams: InputStream,
    results: UnboundedReceiver<Input>,
}

impl EventLoop {
    /// Watches the peers; `results` brings the results of effects.
    pub(crate) fn new(
        ctx: Ctx,
        coordinator: Coordinator,
        results: UnboundedReceiver<Input>,
    ) -> Self {
        EventLoop {
            streams: watch_peers(&ctx),
            ctx,
            coordinator,
            results,
        }
    }

    /// Runs until the process has drained.
    pub(crate) async fn run(mut self) {
        let drain = self.ctx.drain();
        let mut housekeeping = tokio::time::interval(HOUSEKEEPING_PERIOD);
        let mut clock_steps = ClockSteps::subscribe();
        let mut clock = ClockMonitor::default();
        let coordinator = &mut self.coordinator;
        let mut start_limit = None;
        loop {
            let due = coordinator.next_due();
            let input = tokio::select! {
                Some(input) = self.results.recv() => input,
                Some(input) = self.streams.next() => input,
                () = sleep_until_opt(due) => Input::Timer,
                // The next reading of the clock measures the step.
                () = clock_steps.next() => Input::Timer,
                _ = housekeeping.tick() => Input::Housekeeping,
                () = memory::quiet() => {
                    coordinator.on_quiet();
                    continue;
                }
                () = drain.cancelled(), if !coordinator.is_draining() => {
                    coordinator.drain();
                    continue;
                }
            };
            let now = Timestamp::now();
            if let Some(step) = clock.step(now, Instant::now()) {
                coordinator.handle_input(Input::ClockStepped(step), now);
            }
            let is_pod_config = matches!(input, Input::PodConfig(..));
            coordinator.handle_input(input, now);
            if is_pod_config {
                let (of_api, others) = coordinator.desired_pods();
                metrics::pods::set_desired(of_api, others);
            }
            // Results that have arrived meanwhile belong into the same iteration.
            while let Ok(input) = self.results.try_recv() {
                coordinator.handle_input(input, Timestamp::now());
            }
            coordinator.reconcile(Timestamp::now());
            if let Some(totals) = coordinator.take_changed_totals() {
                metrics::pods::set_totals(totals);
            }
            let limit = coordinator.start_limit();
            if start_limit.replace(limit) != Some(limit) {
                set_limit(LimitedCalls::Start, limit);
            }
            if coordinator.is_draining() && coordinator.is_idle() {
                return;
            }
        }
    }
}

fn watch_peers(ctx: &Ctx) -> InputStream {
    let mut all = SelectAll::new();
    for source in POD_SOURCES {
        let pods = follow::podconfig::pods(ctx, source);
        let source = i32::from(source);
        all.push(
            pods.map(move |update| Input::PodConfig(source, update))
                .boxed_local(),
        );
    }
    let node = follow::podconfig::node(ctx);
    all.push(node.map(Input::NodeObject).boxed_local());
    let pods = follow::pleg::pod_states(ctx);
    all.push(pods.map(Input::PodState).boxed_local());
    let runtime = follow::pleg::runtime(ctx);
    all.push(runtime.map(Input::Runtime).boxed_local());
    let volumes = follow::volume::pod_volumes(ctx);
    all.push(volumes.map(Input::Volumes).boxed_local());
    let probes = follow::prober::probe_statuses(ctx);
    all.push(probes.map(Input::ProbeStatus).boxed_local());
    let pressure = follow::eviction::pressure(ctx);
    all.push(pressure.map(Input::Pressure).boxed_local());
    all
}
