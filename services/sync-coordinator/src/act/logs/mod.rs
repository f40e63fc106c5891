//! Keeps the logs of running containers small.
//!
//! One task for all of them, which sleeps while nobody writes: a one-shot watch of the kernel on
//! each log tells of the first write, and from then on the log is looked at in rounds until it is
//! still again ([`crate::core::logs`]). A rotation may be cut short anywhere; the next look, in this
//! life or another, finds what is missing and goes on from there ([`rotate`]).

mod pack;
mod rotate;
mod watches;

use std::future::pending;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use polylet_cri::{About, CriError};
use polylet_model::names;
use polylet_model::quantity::Amount;
use polylet_wire::common::v1::PodRef;
use tokio::sync::Semaphore;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tracing::Instrument;

use super::{Hands, files};
use crate::core::logs::{Limits, Look, Need, Rounds, need};
use watches::Watches;

/// The log of a container that runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Log {
    /// The pod.
    pub pod: Arc<PodRef>,
    /// The container's name in it.
    pub container: String,
    /// Its restart count, which is the log's name.
    pub attempt: u32,
}

/// The containers of a pod that run now, by id; none others of it do.
#[derive(Debug)]
pub struct Running {
    /// The pod's uid.
    pub uid: String,
    /// Their logs.
    pub logs: Vec<(String, Log)>,
}

/// Why a log could not be kept small.
#[derive(Debug, thiserror::Error)]
enum LogError {
    #[error("list the logs in {folder}")]
    List {
        folder: PathBuf,
        source: std::io::Error,
    },
    #[error("move log {path} away")]
    Move {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("have the runtime open log {path} anew")]
    Reopen { path: PathBuf, source: CriError },
    #[error("remove old log {path}")]
    Remove {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("pack old log {path}")]
    Pack {
        path: PathBuf,
        source: std::io::Error,
    },
}

/// Everything that can happen to this task.
enum Input {
    Running(Running),
    /// A log that slept is being written to.
    Written(String),
    /// Nothing tells of writes any more.
    Blind,
    /// A log was brought in order, or not.
    Done(String, Result<(), LogError>),
    Round,
}

struct Keeper {
    hands: Rc<Hands>,
    limits: Limits,
    rounds: Rounds<Log>,
    watches: Watches,
    /// Places for those that are rotated at once.
    places: Rc<Semaphore>,
    done: UnboundedSender<Input>,
}

/// Keeps logs until the process ends.
pub async fn keep(hands: Rc<Hands>, mut running: UnboundedReceiver<Running>) {
    let drain = hands.ctx.drain();
    let (done, mut ended) = unbounded_channel();
    let mut keeper = Keeper::new(hands, done);
    loop {
        let due = keeper.rounds.due();
        let input = tokio::select! {
            Some(now) = running.recv() => Input::Running(now),
            Some(done) = ended.recv() => done,
            id = keeper.watches.written() => id.map_or(Input::Blind, Input::Written),
            () = until(due) => Input::Round,
            () = drain.cancelled() => return,
        };
        keeper.take(input, Timestamp::now());
    }
}

async fn until(due: Option<Timestamp>) {
    let Some(due) = due else {
        return pending().await;
    };
    let left = Duration::try_from(due.duration_since(Timestamp::now())).unwrap_or(Duration::ZERO);
    // A wall clock that was set must not put a round off for long.
    tokio::time::sleep(left.min(Duration::from_secs(60))).await;
}

impl Keeper {
    fn new(hands: Rc<Hands>, done: UnboundedSender<Input>) -> Self {
        let kubelet = &hands.ctx.config().kubelet;
        // Checked when the configuration was read.
        let size = Amount::parse(&kubelet.container_log_max_size).map_or(10 << 20, Amount::bytes);
        let interval = SignedDuration::try_from(kubelet.container_log_monitor_interval);
        Keeper {
            limits: Limits {
                size,
                files: usize::try_from(kubelet.container_log_max_files).unwrap_or(5),
            },
            rounds: Rounds::new(interval.unwrap_or(SignedDuration::from_secs(10))),
            watches: Watches::new(),
            places: Rc::new(Semaphore::new(
                usize::try_from(kubelet.container_log_max_workers).unwrap_or(1),
            )),
            done,
            hands,
        }
    }

    fn take(&mut self, input: Input, now: Timestamp) {
        match input {
            Input::Running(Running { uid, logs }) => {
                for gone in self.rounds.runs(&uid, logs, now) {
                    self.watches.forget(&gone);
                }
            }
            Input::Written(id) => self.rounds.written(&id, now),
            Input::Blind => self.rounds.all_written(now),
            Input::Done(id, result) => {
                let news = self.rounds.done(&id, result.is_err(), now);
                if let Err(error) = result
                    && news
                {
                    let error = polylet_kit::report(&error);
                    tracing::warn!(container.id = id, error, "a log is not rotated");
                }
            }
            Input::Round => {
                for look in self.rounds.round(now) {
                    self.look(look, now);
                }
            }
        }
    }

    fn look(&mut self, look: Look<Log>, now: Timestamp) {
        let path = path(&self.hands, &look.log);
        let size = |path| std::fs::metadata(path).ok().map(|meta| meta.len());
        let seen = size(&path);
        let need = need(self.limits, seen, look.first);
        if need != Need::Nothing {
            self.start(need, look, path);
            return;
        }
        let (id, seen) = (look.id, seen.unwrap_or_default());
        if self.rounds.unchanged(&id, seen) {
            // What comes between the look and the watch is told by nobody.
            let watched = self.watches.watch(&id, &path);
            if !watched || size(&path) != Some(seen) {
                self.watches.forget(&id);
                self.rounds.written(&id, now);
            }
        }
    }

    fn start(&mut self, need: Need, look: Look<Log>, path: PathBuf) {
        let Look { id, log, .. } = look;
        self.rounds.busy(&id);
        let span = span(need, &log);
        let (hands, places, done) = (
            Rc::clone(&self.hands),
            Rc::clone(&self.places),
            self.done.clone(),
        );
        let limits = self.limits;
        let work = async move {
            let Ok(_place) = places.acquire().await else {
                return;
            };
            // A rotation that has begun is brought to its end; no other one begins.
            if hands.ctx.drain().is_cancelled() {
                return;
            }
            let runtime = hands.runtime.about(About {
                pod_uid: Some(log.pod.uid.clone()),
                pod_name: Some(log.pod.name.clone()),
                namespace: Some(log.pod.namespace.clone()),
                container: Some(log.container.clone()),
                attempt: Some(log.attempt),
            });
            let result = match need {
                Need::Reopen => rotate::reopen(&runtime, &id, &path).await,
                Need::Rotate => rotate::rotate(&runtime, &id, &path, limits).await,
                Need::Tidy | Need::Nothing => rotate::tidy(&path, limits).await,
            };
            // Nobody listens only when the process is ending.
            let _ = done.send(Input::Done(id, result));
        };
        self.hands.ctx.background("log", work.instrument(span));
    }
}

fn path(hands: &Hands, log: &Log) -> PathBuf {
    files::log_dir(hands, &log.pod).join(names::container_log_path(&log.container, log.attempt))
}

/// Only what changes something is worth a trace.
fn span(need: Need, log: &Log) -> tracing::Span {
    if matches!(need, Need::Tidy | Need::Nothing) {
        return tracing::Span::none();
    }
    let span = tracing::info_span!(
        parent: None,
        "sync.rotate_log",
        k8s.pod.uid = log.pod.uid,
        k8s.pod.name = log.pod.name,
        k8s.namespace.name = log.pod.namespace,
        k8s.container.name = log.container,
        attempt = log.attempt,
    );
    polylet_kit::cause::new_trace(&span);
    span
}
