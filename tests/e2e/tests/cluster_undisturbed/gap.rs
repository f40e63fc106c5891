//! How long new calls to a service wait while its process is replaced, beyond its start-up time.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use polylet_e2e::ok;
use polylet_harness::Node;
use polylet_harness::wait::{Poll, until};
use polylet_wire::lifecycle::v1::GetInfoRequest;
use polylet_wire::lifecycle::v1::lifecycle_service_client::LifecycleServiceClient;
use polylet_wire::supervisor::v1::ListServicesRequest;
use polylet_wire::supervisor::v1::supervisor_service_client::SupervisorServiceClient;

/// A client that calls a service over and over, each time by a new connection. It has a thread of its own:
/// what the test does meanwhile is not part of a call.
pub(crate) struct Gap {
    service: &'static str,
    stop: Arc<AtomicBool>,
    longest: JoinHandle<Duration>,
}

/// What was measured of one replacement.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Measured {
    service: &'static str,
    killed: bool,
    longest: Duration,
    start_up: Duration,
}

impl Gap {
    /// Calls from now on.
    pub(crate) fn watch(node: &Node, service: &'static str) -> Self {
        let socket = node.socket(service);
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let longest = std::thread::spawn(move || {
            let mut runtime = tokio::runtime::Builder::new_current_thread();
            let runtime = ok(runtime.enable_all().build());
            runtime.block_on(longest_call(&socket, &stopped))
        });
        Self {
            service,
            stop,
            longest,
        }
    }

    /// Ends the calls, once the service's new process serves.
    pub(crate) async fn end(self, node: &Node, killed: bool) -> Measured {
        self.stop.store(true, Ordering::Relaxed);
        let longest = ok(tokio::task::spawn_blocking(|| self.longest.join()).await);
        let longest = longest.expect("a client that does not panic");
        Measured {
            service: self.service,
            killed,
            longest,
            start_up: start_up(node, self.service).await,
        }
    }
}

async fn longest_call(socket: &Path, stopped: &AtomicBool) -> Duration {
    let mut longest = Duration::ZERO;
    while !stopped.load(Ordering::Relaxed) {
        let begun = Instant::now();
        // A connection that the old process had accepted breaks with it: the caller tries again.
        loop {
            let channel = ok(polylet_harness::cri::channel(socket));
            let mut client = LifecycleServiceClient::new(channel);
            if client.get_info(GetInfoRequest {}).await.is_ok() {
                break;
            }
        }
        longest = longest.max(begun.elapsed());
    }
    longest
}

/// The time from the start of the present process to its first log line `serving`.
async fn start_up(node: &Node, service: &str) -> Duration {
    let mut supervisor = SupervisorServiceClient::new(ok(node.channel("supervisor")));
    let answer = ok(supervisor.list_services(ListServicesRequest {}).await).into_inner();
    let mut services = answer.services.into_iter();
    let status = services.find(|one| one.service == service);
    let started = status
        .and_then(|status| status.started_at)
        .unwrap_or_else(|| panic!("{service} has no start"));
    let started = ok(Timestamp::new(started.seconds, started.nanos));
    let marker = format!(" {service}: serving");
    let log = node.log();
    let serving = ok(until(format!("{marker:?} in the log"), || async {
        let text = std::fs::read_to_string(&log).unwrap_or_default();
        let line = text.lines().rev().find(|line| line.contains(&marker));
        let time = line.and_then(|line| line.split_whitespace().next());
        let time = time.and_then(|time| time.parse::<Timestamp>().ok());
        // The log has milliseconds.
        match time.filter(|time| time.as_millisecond() >= started.as_millisecond()) {
            Some(time) => Poll::Ready(time),
            None => Poll::Pending(format!("{line:?}")),
        }
    })
    .await);
    Duration::try_from(serving.duration_since(started)).unwrap_or_default()
}

/// All that was measured.
#[derive(Debug, Default)]
pub(crate) struct Gaps {
    measured: Vec<Measured>,
}

impl Gaps {
    pub(crate) fn add(&mut self, measured: Measured) {
        self.measured.push(measured);
    }
}

impl fmt::Display for Gaps {
    /// The median over the rounds, a line per service and kind.
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            to,
            "{:<18} {:<9} {:>12} {:>13} {:>9}",
            "service", "", "start-up ms", "longest call", "beyond"
        )?;
        let mut kinds: Vec<(&str, bool)> = Vec::new();
        for one in &self.measured {
            if !kinds.contains(&(one.service, one.killed)) {
                kinds.push((one.service, one.killed));
            }
        }
        for (service, killed) in kinds {
            let of_kind = |one: &&Measured| (one.service, one.killed) == (service, killed);
            let all: Vec<Measured> = self.measured.iter().filter(of_kind).copied().collect();
            let median = |of: &dyn Fn(&Measured) -> f64| {
                let mut values: Vec<f64> = all.iter().map(of).collect();
                values.sort_by(f64::total_cmp);
                values.get(values.len() / 2).copied().unwrap_or_default()
            };
            let ms = |duration: Duration| duration.as_secs_f64() * 1e3;
            writeln!(
                to,
                "{service:<18} {:<9} {:>12.1} {:>13.1} {:>9.1}",
                if killed { "killed" } else { "restarted" },
                median(&|one| ms(one.start_up)),
                median(&|one| ms(one.longest)),
                median(&|one| ms(one.longest) - ms(one.start_up)),
            )?;
        }
        Ok(())
    }
}
