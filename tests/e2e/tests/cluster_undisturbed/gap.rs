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
    calls: JoinHandle<Calls>,
}

/// How long the calls of a client took.
#[derive(Debug, Clone, Copy)]
struct Calls {
    longest: Duration,
    /// The median: nearly all of them wait for nothing.
    usual: Duration,
}

/// What was measured of one replacement.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Measured {
    service: &'static str,
    killed: bool,
    calls: Calls,
    start_up: Duration,
}

impl Measured {
    /// How much longer than the start-up of the new process, and than any call takes, the longest call took.
    fn beyond_start_up(&self) -> f64 {
        ms(self.calls.longest) - ms(self.calls.usual) - ms(self.start_up)
    }
}

impl Gap {
    /// Calls from now on.
    pub(crate) fn watch(node: &Node, service: &'static str) -> Self {
        let socket = node.socket(service);
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let calls = std::thread::spawn(move || {
            let mut runtime = tokio::runtime::Builder::new_current_thread();
            let runtime = ok(runtime.enable_all().build());
            runtime.block_on(call_until(&socket, &stopped))
        });
        Self {
            service,
            stop,
            calls,
        }
    }

    /// Ends the calls, once the service's new process serves.
    pub(crate) async fn end(self, node: &Node, killed: bool) -> Measured {
        self.stop.store(true, Ordering::Relaxed);
        let calls = ok(tokio::task::spawn_blocking(|| self.calls.join()).await);
        let calls = calls.expect("a client that does not panic");
        Measured {
            service: self.service,
            killed,
            calls,
            start_up: start_up(node, self.service).await,
        }
    }
}

async fn call_until(socket: &Path, stopped: &AtomicBool) -> Calls {
    let mut calls = Vec::new();
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
        calls.push(begun.elapsed());
    }
    calls.sort_unstable();
    let at = |index: usize| calls.get(index).copied().unwrap_or_default();
    Calls {
        longest: at(calls.len().saturating_sub(1)),
        usual: at(calls.len() / 2),
    }
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
            "{:<18} {:<9} {:>11} {:>12} {:>15} {:>9} {:>7}",
            "service", "", "start-up ms", "usual call", "longest call", "beyond", "samples"
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
            writeln!(
                to,
                "{service:<18} {:<9} {:>11.1} {:>12.1} {:>15.1} {:>9.1} {:>7}",
                if killed { "killed" } else { "restarted" },
                median(&|one| ms(one.start_up)),
                median(&|one| ms(one.calls.usual)),
                median(&|one| ms(one.calls.longest)),
                median(&Measured::beyond_start_up),
                all.len(),
            )?;
        }
        Ok(())
    }
}

fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}
