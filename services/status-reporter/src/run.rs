//! The one task.

use futures::stream::{LocalBoxStream, SelectAll};
use futures::{FutureExt, StreamExt};
use polylet_kit::{CancellationToken, Ctx, address, cause};
use polylet_watch::Update;
use tokio::sync::{oneshot, watch};

use crate::core::join::Outcome;
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
    keeper: Keeper,
    drain: CancellationToken,
}

impl Task {
    pub(crate) fn new(ctx: &Ctx, statuses: Statuses, missing: watch::Sender<Vec<String>>) -> Self {
        let (keeper, kept) = Keeper::open(ctx.run_dir().join("statuses.json"));
        let traces = Traces::new(kept.started);
        Self {
            inputs: sources::all(ctx),
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
        self.desk.take(input);
    }

    /// Joins every pod whose facts changed, and tells what is new.
    fn tell_all(&mut self) {
        let (ctx, traces) = (&self.ctx, &mut self.traces);
        let host_ips = || {
            let found = address::of_node(ctx.config());
            found.iter().map(ToString::to_string).collect()
        };
        let news = self.desk.tell_of(host_ips, |uid, outcome| {
            let cause = traces.take(uid);
            match outcome {
                Outcome::Told {
                    told,
                    changed: true,
                } => {
                    let span = traces.span(&told.manifest, &told.status, &cause);
                    span.map_or(cause, |span| cause::of_span(&span))
                }
                Outcome::Gone => {
                    traces.forget(uid);
                    cause
                }
                Outcome::Told { .. } | Outcome::Same => cause,
            }
        });
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

fn kept(desk: &Desk, traces: &Traces) -> Kept {
    Kept {
        statuses: desk.statuses(),
        started: traces.started(),
    }
}
