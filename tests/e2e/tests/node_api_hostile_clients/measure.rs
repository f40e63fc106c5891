//! How a neighbour fares meanwhile, and how much memory the services need.

use std::time::{Duration, Instant};

use polylet_harness::Node;
use polylet_harness::wait::{Poll, until};
use tokio::sync::oneshot;
use tokio::sync::oneshot::error::TryRecvError;

use crate::requests;

/// How much memory each service may need for what hostile clients do, and how much it may keep, in KiB.
const MAX_GROWTH: u64 = 96 << 10;
const MAX_KEPT: u64 = 40 << 10;
/// The neighbour's slowest request: the machine is shared, and its programs may not be optimized.
const MAX_LATENCY: Duration = Duration::from_secs(10);
/// What serves or prepares responses.
const SERVICES: [&str; 3] = ["node-api", "pleg", "status-reporter"];
/// What the neighbour asks.
const PATHS: [&str; 3] = [
    "/healthz",
    "/pods",
    "/containerLogs/default/web-node/server?tailLines=5",
];

/// A client that is served as before.
pub(crate) struct Neighbour<'a> {
    node: &'a Node,
    processes: Vec<(&'static str, u32)>,
    /// Memory of its own in KiB, by service.
    at_first: Vec<u64>,
}

impl<'a> Neighbour<'a> {
    pub(crate) async fn new(node: &'a Node, services: &[(String, u32)]) -> Self {
        let pid = |name: &str| {
            let found = services.iter().find(|(service, _)| service == name);
            found.map_or(0, |(_, pid)| *pid)
        };
        let mut neighbour = Self {
            node,
            processes: SERVICES.map(|name| (name, pid(name))).into(),
            at_first: Vec::new(),
        };
        let alone = neighbour.ask_until(None).await;
        neighbour.at_first = neighbour.memory();
        print_latencies("alone", &alone);
        neighbour
    }

    /// Runs an attack, and asks until it is over.
    pub(crate) async fn during(&self, name: &str, attack: impl Future<Output = ()>) {
        let (done, over) = oneshot::channel();
        let attack = async {
            attack.await;
            let _ = done.send(());
        };
        let mut peak = self.memory();
        let watch = async {
            let latencies = self.ask_until(Some((over, &mut peak))).await;
            print_latencies(name, &latencies);
            latencies
        };
        let ((), latencies) = tokio::join!(attack, watch);
        for ((service, _), (peak, first)) in
            self.processes.iter().zip(peak.iter().zip(&self.at_first))
        {
            let growth = peak.saturating_sub(*first);
            println!("  {service}: {first} KiB, and {growth} KiB more at most");
            assert!(
                growth < MAX_GROWTH,
                "{name}: {service} needs {growth} KiB more"
            );
        }
        let slowest = latencies.iter().max().copied().unwrap_or_default();
        assert!(
            slowest < MAX_LATENCY,
            "{name}: the neighbour waited {slowest:?}"
        );
    }

    /// Durations of requests: a few, or as long as something else lasts, with the most memory meanwhile.
    async fn ask_until(
        &self,
        mut over: Option<(oneshot::Receiver<()>, &mut Vec<u64>)>,
    ) -> Vec<Duration> {
        let mut latencies = Vec::new();
        for path in PATHS.iter().cycle() {
            let begun = Instant::now();
            let response = requests::exchange(self.node, requests::head(path).as_bytes()).await;
            latencies.push(begun.elapsed());
            let code = response.as_deref().map(requests::code);
            assert_eq!(code, Some(200), "{path}: {response:.200?}");
            let is_over = match &mut over {
                None => true,
                Some((over, peak)) => {
                    for (peak, now) in peak.iter_mut().zip(self.memory()) {
                        *peak = (*peak).max(now);
                    }
                    over.try_recv() != Err(TryRecvError::Empty)
                }
            };
            if is_over && latencies.len() >= 30 {
                break;
            }
        }
        latencies
    }

    /// The memory of the processes, in KiB.
    fn memory(&self) -> Vec<u64> {
        let of = |(_, pid): &(&str, u32)| {
            let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup"));
            let text = text.unwrap_or_default();
            let line = text.lines().find(|line| line.starts_with("Pss_Anon:"));
            let number = line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok());
            number.unwrap_or_default()
        };
        self.processes.iter().map(of).collect()
    }

    /// What the attacks needed is given back, but for what an allocator keeps.
    pub(crate) async fn settles(&self) {
        let settled = until("less memory", || async {
            let now = self.memory();
            let kept = now.iter().zip(&self.at_first);
            let kept: Vec<u64> = kept
                .map(|(now, first)| now.saturating_sub(*first))
                .collect();
            if kept.iter().all(|kept| *kept < MAX_KEPT) {
                Poll::Ready(kept)
            } else {
                Poll::Pending(format!("{kept:?} KiB more"))
            }
        })
        .await;
        println!("  kept of it: {:?} KiB", polylet_e2e::ok(settled));
    }
}

fn print_latencies(name: &str, latencies: &[Duration]) {
    let mut sorted = latencies.to_vec();
    sorted.sort();
    let at = |part: usize| {
        sorted
            .get(sorted.len() * part / 100)
            .copied()
            .unwrap_or_default()
    };
    println!(
        "  {name}: the neighbour's {} requests took {:.1?}, 95th percentile {:.1?}, slowest {:.1?}",
        sorted.len(),
        at(50),
        at(95),
        sorted.last().copied().unwrap_or_default()
    );
}
