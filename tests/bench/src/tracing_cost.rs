//! What tracing costs: `cargo node-bench -- --tracing` starts pods in turn on two nodes, of which one records no spans.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::PathBuf;
use std::time::Duration;

use jiff::Timestamp;
use polylet_harness::{HarnessError, Node, NodeOptions};
use polylet_trace::TraceSummary;
use polylet_trace::diff::{Comparison, DiffOptions, compare, table};
use prost::Message;

use crate::BenchArgs;
use crate::idle::{self, CpuUsage};
use crate::manifests::ManifestKind;
use crate::pods::PodDriver;

/// What becomes of the spans after a pod is Ready counts, too.
const SETTLE: Duration = Duration::from_secs(3);
const OFF: &str = "tracing off";
const ON: &str = "tracing on";

/// One of the two nodes.
struct MeasuredNode<'a> {
    node: &'a Node,
    pods: PodDriver<'a>,
    starts: Vec<TraceSummary>,
    used: CpuUsage,
}

/// Of one of the nodes.
struct TracingCost {
    /// Processor time of the agent for a start and a removal, in milliseconds.
    cpu_ms: f64,
    pss_mib: f64,
}

/// Measures; the result as text.
pub(crate) async fn measure(args: &BenchArgs, bin_dir: PathBuf) -> Result<String, HarnessError> {
    let options = |env: &[(&str, &str)]| NodeOptions {
        bin_dir: Some(bin_dir.clone()),
        flavour: args.flavour(),
        env: env
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect(),
        ..NodeOptions::default()
    };
    let mut off = Node::start(options(&[("OTEL_SDK_DISABLED", "true")])).await?;
    let mut on = Node::start(options(&[])).await?;
    off.wait_in_step().await?;
    on.wait_in_step().await?;
    let text = compare_nodes(args, &off, &on).await?;
    off.remove()?;
    on.remove()?;
    Ok(text)
}

async fn compare_nodes(args: &BenchArgs, off: &Node, on: &Node) -> Result<String, HarnessError> {
    let mut nodes = [MeasuredNode::new(off)?, MeasuredNode::new(on)?];
    // The first iterations are warm-up.
    let warm_up = 3;
    for n in 0..args.starts + warm_up {
        eprint!("\rtracing off and on: {n}/{} ", args.starts);
        if n == warm_up {
            nodes.iter_mut().for_each(MeasuredNode::begin);
        }
        // Each is the first one as often.
        if n % 2 == 1 {
            nodes.reverse();
        }
        for node in &mut nodes {
            node.start(n).await?;
        }
        if n % 2 == 1 {
            nodes.reverse();
        }
    }
    eprintln!();
    tokio::time::sleep(SETTLE).await;
    let mut costs = Vec::new();
    for node in &nodes {
        costs.push(node.cost(Duration::from_secs(args.rest)).await);
    }
    let last = format!("bare-{}-{}", args.starts + warm_up - 1, on.name());
    let trace = on.trace(&last).await?;
    let [off, on] = nodes.map(|node| node.starts);
    let mut text = table(&comparison(&off, &on));
    let spans = trace.spans.len();
    let kib = trace.encoded_len() as f64 / 1024.0;
    let _ = writeln!(
        text,
        "\n{spans} spans and {kib:.1} KiB for the start of a bare pod"
    );
    if let [off, on] = &costs[..] {
        text.push_str(&cost_lines(off, on));
    }
    Ok(text)
}

/// The starts of both nodes, as `polylet trace diff` judges them.
fn comparison(off: &[TraceSummary], on: &[TraceSummary]) -> Comparison {
    let options = DiffOptions {
        names: [OFF, ON].map(str::to_owned),
        ..DiffOptions::default()
    };
    compare(off, on, &options)
}

fn cost_lines(off: &TracingCost, on: &TracingCost) -> String {
    let more = on.cpu_ms - off.cpu_ms;
    format!(
        "processor time of the agent for a start and a removal: {:.2} ms off, {:.2} ms on ({more:+.2} ms, {:+.1} %)\n\
         memory of the agent at rest: {:.1} MiB off, {:.1} MiB on ({:+.1} MiB)\n",
        off.cpu_ms,
        on.cpu_ms,
        100.0 * more / off.cpu_ms.max(1e-9),
        off.pss_mib,
        on.pss_mib,
        on.pss_mib - off.pss_mib,
    )
}

impl<'a> MeasuredNode<'a> {
    fn new(node: &'a Node) -> Result<Self, HarnessError> {
        Ok(MeasuredNode {
            node,
            pods: PodDriver::follow(node)?,
            starts: Vec::new(),
            used: CpuUsage::since_now(&[node.scratch()]),
        })
    }

    /// Forgets what was measured before.
    fn begin(&mut self) {
        self.starts.clear();
        self.used = CpuUsage::since_now(&[self.node.scratch()]);
    }

    /// Starts and removes a pod.
    async fn start(&mut self, n: usize) -> Result<(), HarnessError> {
        let name = format!("bare-{n}");
        let began_at = Timestamp::now();
        let manifest = ManifestKind::Bare.manifest(&name);
        let took = self.pods.start(&name, &manifest).await?;
        self.pods.remove(&name).await?;
        self.starts.push(start(n, began_at, took));
        Ok(())
    }

    async fn cost(&self, window: Duration) -> TracingCost {
        let used = self.used.so_far();
        let ours = used.iter().filter(|(name, _)| name.starts_with("polylet"));
        let cpu: f64 = ours.map(|(_, seconds)| seconds).sum();
        TracingCost {
            cpu_ms: cpu * 1e3 / self.starts.len().max(1) as f64,
            pss_mib: idle::measure(self.node, "polylet", window).await.pss_mib,
        }
    }
}

/// A start as seen from outside, as that of a node that records no spans is seen no other way.
fn start(n: usize, start: Timestamp, duration: Duration) -> TraceSummary {
    TraceSummary {
        // Of no meaning but that they differ.
        id: (start.as_nanosecond() as u128 ^ n as u128).to_be_bytes(),
        root: "pod.start".to_owned(),
        uid: String::new(),
        namespace: "default".to_owned(),
        name: format!("bare-{n}"),
        shape: "bare pods".to_owned(),
        outcome: "ready".to_owned(),
        start,
        duration,
        steps: BTreeMap::new(),
        versions: BTreeMap::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starts_are_judged_and_costs_are_lines() {
        let starts = |offset: u64, shift: u64| -> Vec<_> {
            let start_of = |n: u64| {
                let at = Timestamp::from_millisecond((n * 1_000 + offset) as i64);
                let time = Duration::from_micros(138_000 + n * 7 % 900 + shift);
                start(n as usize, at.unwrap(), time)
            };
            (0..60).map(start_of).collect()
        };
        let text = table(&comparison(&starts(0, 0), &starts(500, 300)));
        assert!(
            text.starts_with("A  tracing off, 60 traces\nB  tracing on, 60 traces\n"),
            "{text}"
        );
        let total = text.lines().find(|line| line.starts_with("total"));
        assert!(total.is_some_and(|line| line.ends_with("same")), "{text}");
        assert!(
            !text.contains("warning"),
            "they are measured in turn:\n{text}"
        );
        let cost = |cpu_ms, pss_mib| TracingCost { cpu_ms, pss_mib };
        assert_eq!(
            cost_lines(&cost(20.0, 30.0), &cost(20.5, 31.5)),
            "processor time of the agent for a start and a removal: 20.00 ms off, 20.50 ms on (+0.50 ms, +2.5 %)\n\
             memory of the agent at rest: 30.0 MiB off, 31.5 MiB on (+1.5 MiB)\n"
        );
    }
}
