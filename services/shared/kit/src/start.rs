use std::fs::DirBuilder;
use std::future::Future;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use jiff::Timestamp;
use polylet_wire::lifecycle::v1::lifecycle_service_server::LifecycleServiceServer;
use polylet_wire::notice::v1::notice_service_server::NoticeServiceServer;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::args::{self, Invocation};
use crate::config::{self, Config};
use crate::ctx::{Ctx, Inner};
use crate::drain::Drain;
use crate::health::Health;
use crate::lifecycle::{DRAIN_TIMEOUT, Lifecycle};
use crate::peers::{Peers, socket_path};
use crate::sampling::TraceSampler;
use crate::start_gate::StartGate;
use crate::telemetry::{self, Telemetry};
use crate::{
    BoxError, Exit, Notices, Service, ServiceDescriptor, listener, lock, notify, peer_checks,
    profile, report, serve, stale_files, state_file, status_line, subprocess,
};

/// How long to wait for responses after the drain.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(50);
/// How long connections have to write the last responses, and to read a request that has just arrived.
const WRITE_TIME: Duration = Duration::from_millis(3);
/// How long to wait for state that is being written.
const STATE_TIMEOUT: Duration = Duration::from_millis(100);
/// How long to wait for the last spans.
const FLUSH_TIMEOUT: Duration = Duration::from_millis(500);

/// How long a drained process may take to exit.
const EXIT_TIMEOUT: Duration = Duration::from_secs(5);

/// Why a service did not start, or failed.
#[derive(Debug, thiserror::Error)]
enum StartError {
    #[error("creating the directory {path}")]
    Directory {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("starting the runtime")]
    Runtime(#[source] std::io::Error),
    #[error("listening for signals")]
    Signals(#[source] std::io::Error),
    #[error(transparent)]
    Lock(lock::LockError),
    #[error(transparent)]
    Listen(listener::ListenError),
    #[error("building the service")]
    Build(#[source] BoxError),
    #[error(transparent)]
    Serve(serve::ServeError),
    #[error("{0}")]
    Task(String),
}

impl StartError {
    fn exit(&self) -> Exit {
        match self {
            StartError::Lock(lock::LockError::Locked { .. }) => Exit::Locked,
            _ => Exit::Failed,
        }
    }
}

/// The `main` of a service: arguments, configuration, telemetry, lock, socket, `build`, serving,
/// health, info, the service manager, and draining on SIGTERM.
pub fn main<B, F>(descriptor: &'static ServiceDescriptor, build: B) -> ExitCode
where
    B: FnOnce(Ctx) -> F,
    F: Future<Output = Result<Service, BoxError>>,
{
    let arguments = std::env::args_os().skip(1);
    if let Some(code) = subprocess::run_from_args(descriptor.subprocesses, arguments) {
        return code;
    }
    crate::memory::single_arena();
    let config = match args::parse(std::env::args().skip(1)) {
        Ok(Invocation::Run { config }) => config,
        Ok(Invocation::Version) => {
            println!("polylet-{} {}", descriptor.service, descriptor.version);
            return Exit::Ok.into();
        }
        Ok(Invocation::Descriptor) => {
            println!("{}", descriptor.to_json());
            return Exit::Ok.into();
        }
        Ok(Invocation::Help) => {
            println!("polylet-{}: {}", descriptor.service, descriptor.about);
            println!("usage: polylet-{} [--config FILE]", descriptor.service);
            println!(
                "       polylet-{} --version | --descriptor",
                descriptor.service
            );
            return Exit::Ok.into();
        }
        Err(error) => {
            eprintln!("polylet-{}: {error}", descriptor.service);
            return Exit::Usage.into();
        }
    };
    let config = match config::load(&config) {
        Ok(config) => config,
        Err(error) => {
            let error = report(&error);
            notify::failed(&error);
            eprintln!("polylet-{}: {error}", descriptor.service);
            return Exit::Config.into();
        }
    };
    match start(descriptor, config, build) {
        Ok(()) => Exit::Ok.into(),
        Err(error) => {
            let text = report(&error);
            notify::failed(&text);
            tracing::error!(error = text, "service failed");
            error.exit().into()
        }
    }
}

fn start<B, F>(
    descriptor: &'static ServiceDescriptor,
    config: Config,
    build: B,
) -> Result<(), StartError>
where
    B: FnOnce(Ctx) -> F,
    F: Future<Output = Result<Service, BoxError>>,
{
    let incarnation = incarnation();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        // Blocking file operations are rare; a few threads suffice.
        .max_blocking_threads(16)
        .thread_keep_alive(Duration::from_secs(2))
        .build_local(Default::default())
        .map_err(StartError::Runtime)?;
    let environment = |name: &str| std::env::var(name).ok();
    // The supervisor, which exports, logs what is wrong with the environment.
    let (sampler, _) = TraceSampler::from_settings(&config.kubelet, environment);
    crate::trace_context::set_up(&config.polylet.tracing);
    let span_socket = socket_path(&config.polylet.run_directory, "supervisor");
    let is_recording = telemetry::is_recording(environment);
    let telemetry = telemetry::init(&telemetry::Setup {
        identity: telemetry::ProcessIdentity {
            service: descriptor.service,
            version: descriptor.version,
            incarnation: &incarnation,
            node: &config.polylet.node_name,
        },
        log_level: &config.polylet.log_level,
        sampler,
        span_socket: is_recording.then_some(&*span_socket),
    });
    let polylet = &config.polylet;
    let (run_directory, service) = (polylet.run_directory.clone(), descriptor.service);
    let run_dir = run_directory.join(service);
    let state_dir = polylet.state_directory.join(service);
    directory(&run_directory, 0o755)?;
    directory(&polylet.state_directory, 0o755)?;
    own_directory(&run_dir)?;
    own_directory(&state_dir)?;
    let lock = lock::path(&run_directory, service);
    let mut lock = Some(lock::Lock::acquire(&lock, lock::TIMEOUT).map_err(StartError::Lock)?);
    let mut inherited = listener::InheritedSockets::from_env().map_err(StartError::Listen)?;
    let listener = inherited
        .own_or_bind(&socket_path(&run_directory, service))
        .map_err(StartError::Listen)?;

    tracing::info!(
        version = descriptor.version,
        incarnation,
        pid = std::process::id(),
        "starting"
    );
    for warning in &config.warnings {
        tracing::warn!(warning, "configuration warning");
    }
    crate::process_limits::apply(&config.kubelet);
    let (failed, failures) = mpsc::unbounded_channel();
    let ctx = Ctx::new(Inner {
        descriptor,
        peers: Peers::new(descriptor, &run_directory),
        ports: inherited.ports,
        notices: Notices::new(descriptor.service, &incarnation),
        config,
        incarnation,
        started_at: Timestamp::now(),
        run_dir,
        state_dir,
        drain: CancellationToken::new(),
        background: TaskTracker::new(),
        start_gate: StartGate::closed(),
        failed,
    });
    let ended = runtime.block_on(run(ctx, build, listener, &mut lock, failures, &telemetry));
    // What the tasks hold takes the kernel long to close: inotify instances about 10 ms each.
    if let Ok(DrainedProcess::Finished) = ended
        && state_file::close(STATE_TIMEOUT)
    {
        drop(lock.take());
    }
    // Blocking operations may hang on a dead mount; the process must end anyway.
    runtime.shutdown_timeout(Duration::from_millis(100));
    ended.map(drop)
}

/// How a service that did not fail has ended.
enum DrainedProcess {
    /// Nothing is in progress.
    Finished,
    /// Some work was not finished in time, or never began.
    Unfinished,
}

async fn run<B, F>(
    ctx: Ctx,
    build: B,
    listener: std::os::unix::net::UnixListener,
    lock: &mut Option<lock::Lock>,
    mut failures: mpsc::UnboundedReceiver<String>,
    telemetry: &Telemetry,
) -> Result<DrainedProcess, StartError>
where
    B: FnOnce(Ctx) -> F,
    F: Future<Output = Result<Service, BoxError>>,
{
    let mut terminate = signal(SignalKind::terminate()).map_err(StartError::Signals)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(StartError::Signals)?;
    telemetry.start();
    let directories = vec![ctx.run_dir().to_owned(), ctx.state_dir().to_owned()];
    stale_files::remove_temporary(&directories);
    tokio::task::spawn_local(stale_files::remove_broken(directories));
    let service = tokio::select! {
        built = build(ctx.clone()) => built.map_err(StartError::Build)?,
        Some(failure) = failures.recv() => return Err(StartError::Task(failure)),
        _ = terminate.recv() => return Ok(DrainedProcess::Unfinished),
        _ = interrupt.recv() => return Ok(DrainedProcess::Unfinished),
    };
    let mut routes = service.routes;
    let health = Health::new(routes.names());
    let drain = Drain::start(&ctx, health.clone(), service.on_drain);
    routes.add(health.server());
    routes.add(NoticeServiceServer::new(ctx.notices().clone()));
    routes.add(LifecycleServiceServer::new(Lifecycle {
        ctx: ctx.clone(),
        drain: drain.clone(),
    }));
    routes.add(profile::server());
    health.serving().await;
    notify::ready();
    tracing::info!("serving");

    let counts = routes.counts();
    let closing = CancellationToken::new();
    let serving = serve::serve(listener, routes, closing.clone().cancelled_owned());
    let mut serving = Box::pin(serving);
    tokio::task::spawn_local(ctx.inner().start_gate.clone().open());
    let watchdog = tokio::task::spawn_local(notify::watchdog());
    let checks = tokio::task::spawn_local(peer_checks::run(ctx.clone()));
    let status = tokio::task::spawn_local(status_line::publish(ctx, service.activity));
    let mut ended = tokio::select! {
        _ = terminate.recv() => Ok(DrainedProcess::Finished),
        _ = interrupt.recv() => Ok(DrainedProcess::Finished),
        served = &mut serving => Err(match served {
            Err(error) => StartError::Serve(error),
            Ok(()) => StartError::Task("the server ended".to_owned()),
        }),
        Some(failure) = failures.recv() => Err(StartError::Task(failure)),
    };
    checks.abort();
    status.abort();
    notify::stopping();
    let mut lingering = None;
    if ended.is_ok() {
        // Calls are served while draining: callers may still need responses.
        let unfinished = tokio::select! {
            unfinished = drain.run(DRAIN_TIMEOUT) => unfinished,
            _ = &mut serving => Vec::new(),
        };
        for unfinished in unfinished {
            ended = Ok(DrainedProcess::Unfinished);
            tracing::warn!(unfinished, "stopping with unfinished work");
        }
        lingering = match service.lingering {
            Some(work) => work.if_unfinished().await,
            None => None,
        };
        let limit = lingering.as_ref().map_or(Duration::ZERO, |work| work.limit);
        notify::drained(EXIT_TIMEOUT.saturating_add(limit));
        // Before the socket is left to the next process, for which calls wait from then on.
        tokio::select! {
            () = telemetry.flush(FLUSH_TIMEOUT) => {}
            _ = &mut serving => {}
        }
        closing.cancel();
        let answered = async {
            counts.answered().await;
            tokio::time::sleep(WRITE_TIME).await;
        };
        tokio::select! {
            _ = tokio::time::timeout(CLOSE_TIMEOUT, answered) => {}
            _ = &mut serving => {}
        }
    } else {
        telemetry.flush(FLUSH_TIMEOUT).await;
    }
    watchdog.abort();
    drop(serving);
    if let Some(work) = lingering {
        // The next process may serve from here on.
        if state_file::close(STATE_TIMEOUT) {
            drop(lock.take());
        }
        tokio::select! {
            () = work.finish() => {}
            // The service manager does not wait any longer.
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    }
    let count = |n: &std::sync::atomic::AtomicU64| n.load(std::sync::atomic::Ordering::Relaxed);
    tracing::info!(
        calls = count(&counts.calls),
        failed = count(&counts.failed),
        "stopped"
    );
    ended
}

fn directory(path: &Path, mode: u32) -> Result<(), StartError> {
    DirBuilder::new()
        .recursive(true)
        .mode(mode)
        .create(path)
        .map_err(|source| StartError::Directory {
            path: path.to_owned(),
            source,
        })
}

/// A directory of this service alone. Root takes over one of another user, as of a service that a unit
/// started: systemd gives all of it back when the directory itself is not that user's.
fn own_directory(path: &Path) -> Result<(), StartError> {
    use std::os::unix::fs::MetadataExt;
    directory(path, 0o700)?;
    let own = rustix::process::geteuid();
    let taken_over = || {
        if own.is_root() && std::fs::metadata(path)?.uid() != own.as_raw() {
            std::os::unix::fs::chown(path, Some(own.as_raw()), None)?;
        }
        Ok(())
    };
    taken_over().map_err(|source| StartError::Directory {
        path: path.to_owned(),
        source,
    })
}

/// Unique on one machine: the clock and the process id together.
fn incarnation() -> String {
    let nanos = Timestamp::now().as_nanosecond();
    format!("{nanos:x}-{:x}", std::process::id())
}
