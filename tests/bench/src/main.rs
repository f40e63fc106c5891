//! The node benchmark: `cargo node-bench`. Compares starts, exits and deletions of pods by Polylet with
//! raw CRI calls, interleaved in one run on one private containerd, then measures all processes at
//! rest. Prints one table.
//!
//! Absolute times depend on the machine; the result is the overhead over raw CRI calls.

mod baseline;
mod calls;
/// Comparison with the kubelet in a cluster.
mod cluster;
mod idle;
mod manifests;
mod measure;
mod memory;
mod overhead;
mod pod_hooks;
mod pods;
mod probes;
mod rates;
mod recording;
mod server;
mod table;
mod tracing_cost;

use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;
use polylet_harness::error::report;
use polylet_harness::{Flavour, HarnessError, Node, NodeOptions, build, guard, packages, scratch};

use crate::pod_hooks::NoHooks;
use baseline::Baseline;
use manifests::ManifestKind;
use measure::Samples;
use overhead::MeasuredPods;
use pods::PodDriver;
use recording::TraceRecording;
use server::Server;
use table::Table;

/// Measures Polylet against raw CRI.
#[derive(Parser)]
struct BenchArgs {
    /// Pods started one at a time, for each kind.
    #[arg(long, default_value_t = 20)]
    starts: usize,
    /// Pods started at once, and running during the measurement at rest.
    #[arg(long, default_value_t = 50)]
    burst: usize,
    /// Container exits and readiness changes to measure until the status reports them.
    #[arg(long, default_value_t = 10)]
    exits: usize,
    /// Duration of the measurement at rest in seconds.
    #[arg(long, default_value_t = 20)]
    rest: u64,
    /// Measures only the cost of this many network probes a second and a tenth as many exec probes.
    #[arg(long)]
    probes: Option<usize>,
    /// Compares with the kubelet on two nodes of a real cluster, through the API server.
    #[arg(long)]
    kubelet: bool,
    /// Measures only the processor time of a scrape of each path with metrics, beside the kubelet's,
    /// with `--burst` pods, a scrape a second for `--rest` seconds.
    #[arg(long)]
    scrapes: bool,
    /// Measures only commands, logs and forwarded ports through the node API, beside the kubelet's and the
    /// runtime's own streams: `--starts` of each.
    #[arg(long)]
    streams: bool,
    /// Measures only the memory of each process by kind, standalone and in a cluster, without pods and
    /// with `--burst` pods.
    #[arg(long)]
    memory: bool,
    /// Measures only the calls to the runtime and the processor time of `--burst` starts and deletions
    /// at once; with `--kubelet` in a cluster, with the writes to the API server.
    #[arg(long)]
    calls: bool,
    /// Measures only how many of `--burst` pods start and are deleted a second: by raw calls, at
    /// several concurrencies, and by Polylet.
    #[arg(long)]
    rates: bool,
    /// With `--rates`: the concurrencies of raw calls.
    #[arg(long, value_delimiter = ',', default_value = "1,2,3,5,10,20")]
    at_a_time: Vec<usize>,
    /// The network plugin masquerades, which takes several runs of iptables for each pod.
    #[arg(long)]
    masquerade: bool,
    /// Measures only Polylet with `--burst` pods in a cluster: memory, processor time at rest for `--rest`
    /// seconds, and requests after a restart.
    #[arg(long)]
    large: bool,
    /// With `--large`: pods that come and go before.
    #[arg(long, default_value_t = 0, requires = "large")]
    churn: usize,
    /// Measures only requests and bytes between each agent and the API server: of a pod's life, each of
    /// `--burst`, and of an hour at rest, from `--rest` seconds.
    #[arg(long)]
    api_server: bool,
    /// Measures only what tracing costs: `--starts` starts on a node that records spans and on one that does not, in
    /// turn. Two hundred tell a percent.
    #[arg(long, conflicts_with_all = ["kubelet", "scrapes", "streams", "api_server", "memory", "probes", "calls"])]
    tracing: bool,
    /// Limit of concurrent pod starts; the node's default if not set.
    #[arg(long)]
    parallel: Option<u32>,
    /// Keeps the traces of all starts and removals in a file, and prints where their time went.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["kubelet", "scrapes", "streams", "api_server", "memory", "probes", "tracing"])]
    record: Option<PathBuf>,
    /// Compares the traces with those that an earlier run has kept in a file.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["kubelet", "scrapes", "streams", "api_server", "memory", "probes", "tracing"])]
    against: Option<PathBuf>,
    /// Debian's own containerd (no events) instead of 2.x.
    #[arg(long)]
    debian: bool,
    /// Directory of the programs to measure; a release build of this tree if not set.
    #[arg(long)]
    bin_dir: Option<PathBuf>,
}

impl BenchArgs {
    /// Pod counts for the comparison with the kubelet.
    fn counts(&self) -> [usize; 2] {
        [self.burst, self.burst * 2]
    }

    /// The file that traces are kept in, if they are wanted.
    fn traces(&self) -> Option<PathBuf> {
        let compared = self.against.as_ref();
        let beside = compared.map(|file| file.with_extension("now.jsonl"));
        self.record.clone().or(beside)
    }

    fn flavour(&self) -> Flavour {
        if self.debian {
            Flavour::Debian
        } else {
            Flavour::V2
        }
    }
}

fn main() -> std::process::ExitCode {
    let args = BenchArgs::parse();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let local = tokio::task::LocalSet::new();
    let done = match runtime {
        Ok(runtime) => local.block_on(&runtime, run(&args)).map_err(|e| report(&e)),
        Err(error) => Err(format!("failed to start the async runtime: {error}")),
    };
    match done {
        Ok(table) => {
            println!("\n{table}");
            std::process::ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("benchmark failed: {error}");
            std::process::ExitCode::FAILURE
        }
    }
}

async fn run(args: &BenchArgs) -> Result<String, HarnessError> {
    guard::on_signals();
    for line in scratch::remove_leftovers() {
        eprintln!("{line}");
    }
    packages::install(&packages::missing(), &|line| eprintln!("{line}"))?;
    let bin_dir = match &args.bin_dir {
        Some(bin_dir) => bin_dir.clone(),
        None => build::programs(build::Profile::Release, &|_| ()).await?,
    };
    if args.memory {
        memory::standalone(args, bin_dir.clone()).await?;
        cluster::memory(args, &bin_dir).await?;
        return Ok(String::new());
    }
    if args.large {
        cluster::large(args, &bin_dir).await?;
        return Ok(String::new());
    }
    if args.tracing {
        return tracing_cost::measure(args, bin_dir).await;
    }
    if args.kubelet || args.scrapes || args.streams || args.api_server {
        return Ok(cluster::run(args, bin_dir).await?.to_string());
    }
    let polylet = args
        .parallel
        .map(|parallel| serde_json::json!({ "parallelStarts": parallel }));
    let mut node = Node::start(NodeOptions {
        bin_dir: Some(bin_dir),
        flavour: args.flavour(),
        polylet: polylet.unwrap_or_default(),
        masquerade: args.masquerade,
        // The burst, and room for single pods.
        kubelet: serde_json::json!({ "maxPods": args.burst.max(100) + 10 }),
        ..NodeOptions::default()
    })
    .await?;
    node.wait_in_step().await?;
    let mut table = Table::new(&node.containerd.version().await?);
    let mut pods = PodDriver::follow(&node)?;
    let traces = args.traces();
    let recording = match &traces {
        Some(file) => Some(TraceRecording::start(&node, file).await?),
        None => None,
    };
    let measured = measure_all(&node, args, &mut pods, &mut table).await?;
    if let Some(recording) = recording {
        let file = recording.finish(&node, &mut pods).await?;
        recording::print_top(&node, &file).await?;
        overhead::print(&file, &measured)?;
        if let Some(before) = &args.against {
            recording::print_diff(&node, before, &file).await?;
        }
    }
    drop(pods);
    node.remove()?;
    Ok(table.to_string())
}

async fn measure_all(
    node: &Node,
    args: &BenchArgs,
    pods: &mut PodDriver<'_>,
    table: &mut Table,
) -> Result<Vec<MeasuredPods>, HarnessError> {
    let window = Duration::from_secs(args.rest);
    if let Some(count) = args.probes {
        probes::measure(node, count, window, pods, table).await?;
        return Ok(Vec::new());
    }
    if args.rates {
        return rates::measure(node, args, pods).await.map(|()| Vec::new());
    }
    if args.calls {
        calls::measure(node, args.burst, pods, table).await?;
        return Ok(Vec::new());
    }
    let floor = Baseline::new(node)?;
    let measured = one_at_a_time(node, args.starts, &floor, pods, table).await?;
    exits(node, args.exits, &floor, pods, table).await?;
    readiness(args.exits, pods, table).await?;
    eprintln!("rest without pods, {} s", args.rest);
    table.rest(0, &idle::measure(node, "polylet", window).await);

    eprintln!("{} pods by raw CRI, ten at a time", args.burst);
    let raw = floor.many(args.burst, 10, &NoHooks, || ()).await?;
    eprintln!("{} pods by Polylet, at once", args.burst);
    let names = pods.put_many(args.burst, |name| ManifestKind::Bare.manifest(name))?;
    let started = pods.all_ready(&names).await?;
    table.burst(args.burst, raw.up, started);
    eprintln!("rest with {} pods, {} s", args.burst, args.rest);
    table.rest(args.burst, &idle::measure(node, "polylet", window).await);
    let gone = pods.remove_many(&names).await?;
    table.burst_gone(args.burst, gone);
    calls::measure(node, args.burst, pods, table).await?;
    Ok(measured)
}

/// Measures raw calls and each kind of pod in turn, so that disturbances affect all alike.
async fn one_at_a_time(
    node: &Node,
    starts: usize,
    floor: &Baseline,
    pods: &mut PodDriver<'_>,
    table: &mut Table,
) -> Result<Vec<MeasuredPods>, HarnessError> {
    manifests::put_objects(node)?;
    let mut raw = ManifestKind::ALL.map(|kind| (kind.baseline(), Pair::default()));
    let mut kinds = ManifestKind::ALL.map(|kind| (kind, Pair::default()));
    let mut ready = Samples::default();
    // The first iteration is warm-up: caches, connections, the network bridge.
    for n in 0..=starts {
        eprint!("\rone at a time: {n}/{starts} ");
        for (shape, pair) in &mut raw {
            let took = floor.one(n, *shape, &NoHooks).await?;
            pair.add(n, took);
        }
        for (kind, pair) in &mut kinds {
            let name = format!("{}-{n}", kind.name());
            let (began, up) = pods.start_between(&name, &kind.manifest(&name)).await?;
            if n > 0 && matches!(kind, ManifestKind::Bare) {
                ready.add(pods.since_container_start(&name, up).await?);
            }
            let down = pods.remove(&name).await?;
            pair.add(n, (up - began, down));
        }
    }
    eprintln!();
    table.alone("container started → Ready, bare", &ready);
    let mut measured = Vec::new();
    type Times = fn(&Pair) -> &Samples;
    let up: Times = |pair| &pair.up;
    let down: Times = |pair| &pair.down;
    for (root, what, of) in [
        ("pod.start", "start", up),
        ("pod.delete", "delete → all gone", down),
    ] {
        for ((kind, pair), (_, raw)) in kinds.iter().zip(&raw) {
            let raw = of(raw);
            let what = format!("{what}, {}", kind.words());
            table.beside(&what, raw, of(pair));
            measured.push(MeasuredPods {
                what,
                root,
                prefix: format!("{}-", kind.name()),
                raw: raw.clone(),
                measured: of(pair).clone(),
            });
        }
    }
    Ok(measured)
}

/// Start and deletion times of one kind of pod.
#[derive(Default)]
struct Pair {
    up: Samples,
    down: Samples,
}

impl Pair {
    fn add(&mut self, n: usize, (up, down): (Duration, Duration)) {
        if n > 0 {
            self.up.add(up);
            self.down.add(down);
        }
    }
}

/// Measures the time from a container's exit to its status; by raw calls, until the runtime tells it.
async fn exits(
    node: &Node,
    exits: usize,
    floor: &Baseline,
    pods: &mut PodDriver<'_>,
    table: &mut Table,
) -> Result<(), HarnessError> {
    let mut raw = Samples::default();
    let mut samples = Samples::default();
    for n in 0..exits {
        eprint!("\rexits: {}/{exits} ", n + 1);
        raw.add(floor.exit(2000 + n, node).await?);
        let name = format!("exit-{n}");
        pods.start(&name, &manifests::once(&name)).await?;
        samples.add(pods.kill_main(node, &name).await?);
        pods.remove(&name).await?;
    }
    eprintln!();
    table.beside("exit → status", &raw, &samples);
    Ok(())
}

/// Measures the time from a successful readiness probe to the status.
async fn readiness(
    turns: usize,
    pods: &mut PodDriver<'_>,
    table: &mut Table,
) -> Result<(), HarnessError> {
    let server = Server::start().await?;
    let mut samples = Samples::default();
    for n in 0..turns {
        eprint!("\rreadiness: {}/{turns} ", n + 1);
        let name = format!("asked-{n}");
        server.set_healthy(false);
        let well_at = pods.start_asked(&name, &server).await?;
        samples.add(well_at);
        pods.remove(&name).await?;
    }
    eprintln!();
    table.alone("readiness success → status", &samples);
    Ok(())
}
