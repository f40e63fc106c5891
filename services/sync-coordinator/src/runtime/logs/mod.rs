//! Rotation of the logs of running containers.
//!
//! One task for all logs, which sleeps while none is written: a one-shot inotify watch on each log
//! reports the next write; from then on the log is polled until it is unchanged
//! ([`crate::core::log_rotation`]). A rotation may be interrupted anywhere: the next check, in this
//! process instance or a later one, continues from what it finds (`rotate`).

mod compress;
mod rotate;
mod write_watcher;

use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use polylet_cri::{CallContext, CriError};
use polylet_kit::clock::{ClockSteps, sleep_until_opt};
use polylet_model::names;
use polylet_model::quantity::Amount;
use polylet_wire::common::v1::PodRef;
use tokio::sync::Semaphore;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tracing::Instrument;

use super::{RuntimeManager, files};
use crate::core::log_rotation::{
    LogLimits, RotationNeed, RotationSchedule, StatRequest, rotation_need,
};
use write_watcher::WriteWatcher;

/// The log of a running container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerLog {
    /// The container's pod.
    pub pod: Arc<PodRef>,
    /// The container's name.
    pub container: String,
    /// Its restart count, which names the log file.
    pub attempt: u32,
}

/// All running containers of a pod.
#[derive(Debug)]
pub struct RunningContainers {
    /// The pod's UID.
    pub uid: String,
    /// Logs by container ID.
    pub logs: Vec<(String, ContainerLog)>,
}

/// A log could not be rotated.
#[derive(Debug, thiserror::Error)]
enum LogError {
    #[error("listing the logs in {dir}")]
    List {
        dir: PathBuf,
        source: std::io::Error,
    },
    #[error("renaming log {path}")]
    Rename {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("reopening log {path} in the runtime")]
    Reopen { path: PathBuf, source: CriError },
    #[error("removing rotated log {path}")]
    Remove {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("compressing rotated log {path}")]
    Compress {
        path: PathBuf,
        source: std::io::Error,
    },
}

/// Everything that can happen to this task.
enum LogInput {
    Running(RunningContainers),
    /// A watched log was written.
    Written(String),
    /// Writes may have been missed.
    WatchLost,
    /// A rotation or cleanup has finished.
    Finished(String, Result<(), LogError>),
    Timer,
}

struct LogRotator {
    manager: Rc<RuntimeManager>,
    limits: LogLimits,
    schedule: RotationSchedule<ContainerLog>,
    watcher: WriteWatcher,
    /// Permits for concurrent rotations (`containerLogMaxWorkers`).
    permits: Rc<Semaphore>,
    finished: UnboundedSender<LogInput>,
}

/// Rotates logs until the process drains.
pub async fn run(manager: Rc<RuntimeManager>, mut running: UnboundedReceiver<RunningContainers>) {
    let drain = manager.ctx.drain();
    // As upstream, a negative size disables rotation.
    if manager
        .ctx
        .config()
        .kubelet
        .container_log_max_size
        .starts_with('-')
    {
        tracing::info!("containerLogMaxSize is negative; logs are not rotated");
        running.close();
        return drain.cancelled().await;
    }
    let (finished_tx, mut finished) = unbounded_channel();
    let mut rotator = LogRotator::new(manager, finished_tx);
    let mut clock_steps = ClockSteps::subscribe();
    loop {
        let due = rotator.schedule.due();
        let input = tokio::select! {
            Some(containers) = running.recv() => LogInput::Running(containers),
            Some(input) = finished.recv() => input,
            id = rotator.watcher.next_written() => id.map_or(LogInput::WatchLost, LogInput::Written),
            () = sleep_until_opt(due) => LogInput::Timer,
            () = clock_steps.next() => LogInput::Timer,
            () = drain.cancelled() => return,
        };
        rotator.handle_input(input, Timestamp::now());
    }
}

impl LogRotator {
    fn new(manager: Rc<RuntimeManager>, finished: UnboundedSender<LogInput>) -> Self {
        let kubelet = &manager.ctx.config().kubelet;
        // Validated with the configuration.
        let size = Amount::parse(&kubelet.container_log_max_size).map_or(10 << 20, Amount::bytes);
        let interval = SignedDuration::try_from(kubelet.container_log_monitor_interval);
        LogRotator {
            limits: LogLimits {
                max_size: size,
                max_files: usize::try_from(kubelet.container_log_max_files).unwrap_or(5),
            },
            schedule: RotationSchedule::new(interval.unwrap_or(SignedDuration::from_secs(10))),
            watcher: WriteWatcher::new(),
            permits: Rc::new(Semaphore::new(
                usize::try_from(kubelet.container_log_max_workers).unwrap_or(1),
            )),
            finished,
            manager,
        }
    }

    fn handle_input(&mut self, input: LogInput, now: Timestamp) {
        match input {
            LogInput::Running(RunningContainers { uid, logs }) => {
                for exited in self.schedule.set_running(&uid, logs, now) {
                    self.watcher.unwatch(&exited);
                }
            }
            LogInput::Written(id) => self.schedule.on_written(&id, now),
            LogInput::WatchLost => self.schedule.poll_all(now),
            LogInput::Finished(id, result) => {
                let changed = self.schedule.on_done(&id, result.is_err(), now);
                if let Err(error) = result
                    && changed
                {
                    let error = polylet_kit::report(&error);
                    tracing::warn!(container_id = id, error, "failed to rotate log; retrying");
                }
            }
            LogInput::Timer => {
                for request in self.schedule.poll(now) {
                    self.check(request, now);
                }
            }
        }
    }

    /// Checks the size of a log, and starts what it needs.
    fn check(&mut self, request: StatRequest<ContainerLog>, now: Timestamp) {
        let path = log_path(&self.manager, &request.log);
        let stat = |path| std::fs::metadata(path).ok().map(|meta| meta.len());
        let size = stat(&path);
        let need = rotation_need(self.limits, size, request.is_first);
        if need != RotationNeed::None {
            self.start(need, request, path);
            return;
        }
        let (id, size) = (request.id, size.unwrap_or_default());
        if self.schedule.on_unchanged(&id, size) {
            // The watch does not report writes between the check and its start.
            let watched = self.watcher.watch(&id, &path);
            if !watched || stat(&path) != Some(size) {
                self.watcher.unwatch(&id);
                self.schedule.on_written(&id, now);
            }
        }
    }

    fn start(&mut self, need: RotationNeed, request: StatRequest<ContainerLog>, path: PathBuf) {
        let StatRequest { id, log, .. } = request;
        self.schedule.set_busy(&id);
        let span = rotation_span(need, &log);
        let (manager, permits) = (Rc::clone(&self.manager), Rc::clone(&self.permits));
        let (finished, limits) = (self.finished.clone(), self.limits);
        let work = async move {
            let Ok(_permit) = permits.acquire().await else {
                return;
            };
            // A drain lets a rotation finish, but none starts.
            if manager.ctx.drain().is_cancelled() {
                return;
            }
            let runtime = manager.runtime.with_context(CallContext {
                pod_uid: Some(log.pod.uid.clone()),
                pod_name: Some(log.pod.name.clone()),
                namespace: Some(log.pod.namespace.clone()),
                container: Some(log.container.clone()),
                attempt: Some(log.attempt),
            });
            let result = match need {
                RotationNeed::Reopen => rotate::reopen(&runtime, &id, &path).await,
                RotationNeed::Rotate => rotate::rotate(&runtime, &id, &path, limits).await,
                RotationNeed::CleanUp | RotationNeed::None => rotate::clean_up(&path, limits).await,
            };
            // The receiver is gone only when the process exits.
            let _ = finished.send(LogInput::Finished(id, result));
        };
        self.manager.ctx.background("log", work.instrument(span));
    }
}

fn log_path(manager: &RuntimeManager, log: &ContainerLog) -> PathBuf {
    files::log_dir(manager, &log.pod).join(names::container_log_path(&log.container, log.attempt))
}

/// The span of a rotation; a cleanup that usually changes nothing has none.
fn rotation_span(need: RotationNeed, log: &ContainerLog) -> tracing::Span {
    if matches!(need, RotationNeed::CleanUp | RotationNeed::None) {
        return tracing::Span::none();
    }
    let span = tracing::info_span!(
        parent: None,
        "sync.rotate_log",
        k8s.pod.uid = log.pod.uid,
        k8s.pod.name = log.pod.name,
        k8s.namespace.name = log.pod.namespace,
        k8s.container.name = log.container,
        polylet.attempt = log.attempt,
    );
    polylet_kit::cause::detach(&span);
    span
}
