//! The one task.

use futures::stream::{LocalBoxStream, SelectAll};
use futures::{FutureExt, StreamExt};
use polylet_api::Access;
use polylet_kit::{CancellationToken, Ctx, address, cause};
use polylet_watch::{Update, Value};
use polylet_wire::podconfig::v1::PodSource;
use tokio::sync::{oneshot, watch};

use crate::cluster::Cluster;
use crate::convert;
use crate::core::join::Outcome;
use crate::core::report::want::Holds;
use crate::desk::{Desk, Input};
use crate::keep::{Keeper, Kept};
use crate::server::Statuses;
use crate::sources;
use crate::trace::Traces;

/// As many inputs are folded into one join; more only wait for the next.
const FOLD: usize = 4096;

/// Hears and tells, and keeps what has to outlive it.
pub(crate) struct Task {
    ctx: Ctx,
    inputs: SelectAll<LocalBoxStream<'static, Input>>,
    desk: Desk,
    traces: Traces,
    missing: watch::Sender<Vec<String>>,
    keeper: Keeper<Kept>,
    /// None of a node that stands alone.
    cluster: Option<Cluster>,
    drain: CancellationToken,
}

impl Task {
    /// `busy` is told whether statuses are on their way to the cluster.
    pub(crate) fn new(
        ctx: &Ctx,
        statuses: Statuses,
        missing: watch::Sender<Vec<String>>,
        busy: watch::Sender<bool>,
    ) -> Self {
        let (keeper, kept) = Keeper::<Kept>::open(ctx.run_dir().join("statuses.json"));
        let traces = Traces::new(kept.started);
        let access = Access::of(ctx.config(), crate::MANIFEST.service);
        Self {
            inputs: sources::all(ctx, access.is_some()),
            cluster: access.map(|access| Cluster::new(ctx, access, busy)),
            desk: Desk::new(kept.statuses, statuses),
            traces,
            missing,
            keeper,
            drain: ctx.drain(),
            ctx: ctx.clone(),
        }
    }

    pub(crate) async fn run(mut self, finished: oneshot::Sender<Vec<String>>) {
        loop {
            tokio::select! {
                biased;
                () = self.drain.cancelled() => break,
                Some(input) = self.inputs.next() => {
                    self.take(input);
                    self.fold();
                    self.tell_all();
                }
                () = self.keeper.wait() => {}
                () = wait(&mut self.cluster) => {}
            }
            if let Some(cluster) = &mut self.cluster {
                cluster.act();
            }
            self.keeper.write_if_due(|| kept(&self.desk, &self.traces));
        }
        // Nobody listens only when the process is ending without a drain.
        let _ = finished.send(self.keeper.finish(kept(&self.desk, &self.traces)).await);
    }

    /// Takes what else is there already, without waiting.
    fn fold(&mut self) {
        for _ in 0..FOLD {
            match self.inputs.next().now_or_never() {
                Some(Some(input)) => self.take(input),
                _ => return,
            }
        }
    }

    fn take(&mut self, input: Input) {
        let traces = &mut self.traces;
        match &input {
            Input::Pod(_, Update::Upsert(uid, pod)) => traces.heard(uid, pod.cause.as_ref()),
            Input::Sync(update) => {
                if let Update::Upsert(uid, sync) = &**update {
                    traces.heard(uid, sync.cause.as_ref());
                }
            }
            Input::State(Update::Upsert(uid, state)) => traces.heard(uid, state.cause.as_ref()),
            Input::Verdict(Update::Upsert((uid, ..), verdict)) => {
                traces.heard(uid, verdict.cause.as_ref());
            }
            _ => {}
        }
        // Read by the desk, and held for the cluster after that.
        let mut held = None;
        if let Some(cluster) = &mut self.cluster {
            match &input {
                Input::Pod(PodSource::Api, Update::Upsert(uid, pod)) => {
                    let there = pod.r#ref.as_ref().map(|r| r.uid.clone());
                    held = Some((uid.clone(), there));
                }
                Input::Pod(PodSource::Api, Update::Remove(uid)) => held = Some((uid.clone(), None)),
                Input::Mirror(update) => cluster.mirror(update),
                Input::Node(node) => cluster.node(node),
                _ => {}
            }
        }
        if let Input::Node(Value::Current(told)) = &input {
            self.desk.host_ips(convert::host_ips(told));
        }
        self.desk.take(input);
        if let (Some(cluster), Some((pod, there))) = (&mut self.cluster, held) {
            let status = self.desk.reported(&pod).cloned();
            let holds = there.zip(status).map(|(uid, status)| Holds { uid, status });
            cluster.pod(&pod, holds);
        }
    }

    /// Joins every pod whose facts changed, and tells what is new.
    fn tell_all(&mut self) {
        let (ctx, traces, cluster) = (&self.ctx, &mut self.traces, &mut self.cluster);
        let host_ips = || {
            let found = address::of_node(ctx.config());
            found.iter().map(ToString::to_string).collect()
        };
        let news = self.desk.tell_of(host_ips, |uid, outcome| {
            let cause = traces.take(uid);
            match outcome {
                Outcome::Told { told, changed } => {
                    let span = if *changed {
                        traces.span(&told.manifest, &told.status, &cause)
                    } else {
                        None
                    };
                    let step = span.map(|span| cause::of_span(&span));
                    if let Some(cluster) = cluster {
                        cluster.told(uid, told, step.clone());
                    }
                    step.unwrap_or(cause)
                }
                Outcome::Gone => {
                    traces.forget(uid);
                    if let Some(cluster) = cluster {
                        cluster.gone(uid);
                    }
                    cause
                }
                Outcome::Same => cause,
            }
        });
        if let Some(cluster) = cluster {
            cluster.whole(self.desk.is_whole());
        }
        if news {
            self.keeper.changed();
        }
        let missing = self.desk.missing();
        self.missing.send_if_modified(|known| {
            let changed = *known != missing;
            *known = missing;
            changed
        });
    }
}

async fn wait(cluster: &mut Option<Cluster>) {
    match cluster {
        Some(cluster) => cluster.wait().await,
        None => std::future::pending().await,
    }
}

fn kept(desk: &Desk, traces: &Traces) -> Kept {
    Kept {
        statuses: desk.statuses(),
        started: traces.started(),
    }
}
