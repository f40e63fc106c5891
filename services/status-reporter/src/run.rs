//! The one task.

use futures::stream::{LocalBoxStream, SelectAll};
use futures::{FutureExt, StreamExt};
use polylet_kit::{CancellationToken, Ctx, address, cause};
use polylet_watch::{Update, Value};
use polylet_wire::common::v1::Cause;
use polylet_wire::pleg::v1::{PodState, WatchRuntimeResponse};
use polylet_wire::podconfig::v1::Pod;
use polylet_wire::prober::v1::Verdict;
use polylet_wire::sync::v1::PodSync;
use tokio::sync::{oneshot, watch};

use crate::core::facts::{Source, Stream};
use crate::core::join::{Join, Outcome, Told};
use crate::keep::{Keeper, Kept};
use crate::server::Statuses;
use crate::trace::Traces;
use crate::{convert, sources};

/// Everything that can happen to this service.
pub(crate) enum Input {
    Pod(Source, Update<String, Pod>),
    Sync(Update<String, PodSync>),
    State(Update<String, PodState>),
    Verdict(Update<(String, String, i32), Verdict>),
    Runtime(Value<WatchRuntimeResponse>),
}

/// As many inputs are folded into one join; more only wait for the next.
const FOLD: usize = 4096;

/// Owns all facts and all that is told.
pub(crate) struct Task {
    ctx: Ctx,
    inputs: SelectAll<LocalBoxStream<'static, Input>>,
    join: Join,
    traces: Traces,
    statuses: Statuses,
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
            join: Join::new(kept.statuses),
            traces,
            statuses,
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
            self.keeper.write_if_due(|| kept(&self.join, &self.traces));
        }
        // Nobody listens only when the process is ending without a drain.
        let _ = finished.send(self.keeper.finish(kept(&self.join, &self.traces)).await);
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
        match input {
            Input::Pod(source, update) => self.take_pod(source, update),
            Input::Sync(update) => self.take_sync(update),
            Input::State(update) => self.take_state(update),
            Input::Verdict(update) => self.take_verdict(update),
            Input::Runtime(Value::Current(runtime)) => {
                let handlers = runtime.handlers.into_iter();
                let recursive = handlers.filter(|h| h.recursive_read_only_mounts);
                let recursive = recursive.map(|h| h.name).collect();
                self.join.runtime(&runtime.runtime_name, recursive);
                self.join.synced(Stream::Runtime);
            }
            Input::Runtime(Value::Stale(_)) => self.join.stale(Stream::Runtime),
        }
    }

    fn take_pod(&mut self, source: Source, update: Update<String, Pod>) {
        match update {
            Update::Upsert(uid, pod) => {
                self.traces.heard(&uid, pod.cause.as_ref());
                self.join.pod(source, uid, convert::wanted(&pod));
            }
            Update::Remove(uid) => self.join.pod(source, uid, None),
            Update::Synced => self.join.synced(Stream::Pods(source)),
            Update::Stale(_) => self.join.stale(Stream::Pods(source)),
        }
    }

    fn take_sync(&mut self, update: Update<String, PodSync>) {
        match update {
            Update::Upsert(uid, sync) => {
                self.traces.heard(&uid, sync.cause.as_ref());
                self.join.progress(uid, Some(convert::progress(&sync)));
            }
            Update::Remove(uid) => self.join.progress(uid, None),
            Update::Synced => self.join.synced(Stream::Sync),
            Update::Stale(_) => self.join.stale(Stream::Sync),
        }
    }

    fn take_state(&mut self, update: Update<String, PodState>) {
        match update {
            Update::Upsert(uid, state) => {
                self.traces.heard(&uid, state.cause.as_ref());
                self.join.held(uid, Some(convert::held(&state)));
            }
            Update::Remove(uid) => self.join.held(uid, None),
            Update::Synced => self.join.synced(Stream::States),
            Update::Stale(_) => self.join.stale(Stream::States),
        }
    }

    fn take_verdict(&mut self, update: Update<(String, String, i32), Verdict>) {
        match update {
            Update::Upsert((uid, container, kind), verdict) => {
                let Some(kind) = convert::probe_kind(kind) else {
                    return;
                };
                self.traces.heard(&uid, verdict.cause.as_ref());
                let verdict = convert::verdict(&container, kind, &verdict);
                self.join.verdict(uid, container, kind, Some(verdict));
            }
            Update::Remove((uid, container, kind)) => {
                let Some(kind) = convert::probe_kind(kind) else {
                    return;
                };
                self.join.verdict(uid, container, kind, None);
            }
            Update::Synced => self.join.synced(Stream::Verdicts),
            Update::Stale(_) => self.join.stale(Stream::Verdicts),
        }
    }

    /// Joins every pod whose facts changed, and tells what is new.
    fn tell_all(&mut self) {
        let dirty = self.join.take_dirty();
        if !dirty.is_empty() && !self.join.knows_host_ips() {
            let found = address::of_node(self.ctx.config());
            self.join
                .host_ips(found.iter().map(ToString::to_string).collect());
        }
        for uid in dirty {
            let cause = self.traces.take(&uid);
            match self.join.join(&uid) {
                Outcome::Same => {}
                Outcome::Told { told, changed } => self.tell(uid, &told, changed, cause),
                Outcome::Gone => {
                    self.statuses.remove(&uid);
                    self.traces.forget(&uid);
                    self.keeper.changed();
                }
            }
        }
        if self.join.is_whole() && !self.statuses.is_whole() {
            self.statuses.mark_whole();
            if self.join.forget_kept() {
                self.keeper.changed();
            }
        }
        let missing = self.join.missing();
        self.missing.send_if_modified(|known| {
            let changed = *known != missing;
            *known = missing;
            changed
        });
    }

    fn tell(&mut self, uid: String, told: &Told, changed: bool, cause: Cause) {
        let span = changed.then(|| self.traces.span(&told.manifest, &told.status, &cause));
        match span.flatten() {
            Some(span) => {
                let own = cause::of_span(&span);
                span.in_scope(|| self.statuses.upsert(uid, convert::told(told, own)));
            }
            None => {
                self.statuses.upsert(uid, convert::told(told, cause));
            }
        }
        if changed {
            self.keeper.changed();
        }
    }
}

fn kept(join: &Join, traces: &Traces) -> Kept {
    Kept {
        statuses: join.statuses(),
        started: traces.started(),
    }
}
