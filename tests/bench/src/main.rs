//! The node benchmark: `cargo node-bench`. Starts, exits and deletions of pods by Polylet beside the
//! same by raw CRI calls, in one run, interleaved, on one private containerd; then what all the
//! processes use at rest. Prints one table.
//!
//! Absolute times are the machine's; what counts is what Polylet adds to the floor.

/// Beside the real kubelet, in a cluster.
mod cluster;
mod floor;
mod manifests;
mod measure;
mod memory;
mod pods;
mod probes;
mod rest;
mod server;
mod table;

use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;
use polylet_harness::error::report;
use polylet_harness::{Flavour, HarnessError, Node, NodeOptions, build, guard, packages, scratch};

use floor::Floor;
use manifests::Kind;
use measure::Samples;
use pods::Pods;
use server::Server;
use table::Table;

/// Measures Polylet against raw CRI.
#[derive(Parser)]
struct Args {
    /// Pods started one at a time, for each kind.
    #[arg(long, default_value_t = 20)]
    starts: usize,
    /// Pods started at once, and standing while rest is measured.
    #[arg(long, default_value_t = 50)]
    burst: usize,
    /// Containers killed, and servers that turn well, to see how soon the status says so.
    #[arg(long, default_value_t = 10)]
    exits: usize,
    /// Seconds over which rest is measured.
    #[arg(long, default_value_t = 20)]
    rest: u64,
    /// Measures nothing but what so many probes a second cost, and a tenth as many exec probes.
    #[arg(long)]
    probes: Option<usize>,
    /// Measures beside the real kubelet, on two nodes of a real cluster, through the API server.
    #[arg(long)]
    kubelet: bool,
    /// Measures nothing but what the memory of each process consists of, by itself and in a cluster,
    /// without pods and with `--burst` of them.
    #[arg(long)]
    memory: bool,
    /// How many pod starts the node runs at once; its default when not given.
    #[arg(long)]
    parallel: Option<u32>,
    /// Debian's own containerd (no events) instead of 2.x.
    #[arg(long)]
    debian: bool,
    /// Where programs to measure are; a release build of this tree when not given.
    #[arg(long)]
    bin_dir: Option<PathBuf>,
}

impl Args {
    /// How many pods stand while rest is measured: beside the kubelet twice as many too.
    fn counts(&self) -> [usize; 2] {
        [self.burst, self.burst * 2]
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
    let args = Args::parse();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let local = tokio::task::LocalSet::new();
    let done = match runtime {
        Ok(runtime) => local.block_on(&runtime, run(&args)).map_err(|e| report(&e)),
        Err(error) => Err(format!("no runtime: {error}")),
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

async fn run(args: &Args) -> Result<String, HarnessError> {
    guard::on_signals();
    for line in scratch::remove_leftovers() {
        eprintln!("{line}");
    }
    packages::install(&packages::missing(), &|line| eprintln!("{line}"))?;
    let bin_dir = match &args.bin_dir {
        Some(bin_dir) => bin_dir.clone(),
        None => build::release().await?,
    };
    if args.memory {
        memory::run(args, bin_dir).await?;
        return Ok(String::new());
    }
    if args.kubelet {
        return Ok(cluster::run(args, bin_dir).await?.to_string());
    }
    let polylet = args
        .parallel
        .map(|parallel| serde_json::json!({ "parallelStarts": parallel }));
    let mut node = Node::start(NodeOptions {
        bin_dir: Some(bin_dir),
        flavour: args.flavour(),
        polylet: polylet.unwrap_or_default(),
        // Those that stand at once, and the one that is measured beside them.
        kubelet: serde_json::json!({ "maxPods": args.burst.max(100) + 10 }),
        ..NodeOptions::default()
    })
    .await?;
    node.wait_in_step().await?;
    let mut table = Table::new(&node.containerd.version().await?);
    measure_all(&node, args, &mut table).await?;
    node.remove()?;
    Ok(table.to_string())
}

async fn measure_all(node: &Node, args: &Args, table: &mut Table) -> Result<(), HarnessError> {
    let window = Duration::from_secs(args.rest);
    let mut pods = Pods::follow(node)?;
    if let Some(count) = args.probes {
        return probes::measure(node, count, window, &mut pods, table).await;
    }
    let floor = Floor::new(node)?;
    one_at_a_time(node, args.starts, &floor, &mut pods, table).await?;
    exits(node, args.exits, &mut pods, table).await?;
    readiness(args.exits, &mut pods, table).await?;
    eprintln!("rest without pods, {} s", args.rest);
    table.rest(0, &rest::measure(node, "polylet", window).await);

    eprintln!("{} pods by raw CRI, ten at a time", args.burst);
    let raw = floor.many(args.burst, 10, || ()).await?;
    eprintln!("{} pods by Polylet, at once", args.burst);
    let names = pods.put_many(args.burst, |name| Kind::Bare.manifest(name))?;
    let started = pods.all_ready(&names).await?;
    table.burst(args.burst, raw, started);
    eprintln!("rest with {} pods, {} s", args.burst, args.rest);
    table.rest(args.burst, &rest::measure(node, "polylet", window).await);
    let gone = pods.remove_many(&names).await?;
    table.burst_gone(args.burst, gone);
    Ok(())
}

/// The floor and each kind of pod, in turn: what disturbs one disturbs all.
async fn one_at_a_time(
    node: &Node,
    starts: usize,
    floor: &Floor,
    pods: &mut Pods<'_>,
    table: &mut Table,
) -> Result<(), HarnessError> {
    manifests::put_objects(node)?;
    let mut bare = Pair::default();
    let mut with_init = Pair::default();
    let mut kinds = Kind::ALL.map(|kind| (kind, Pair::default()));
    // The first of each is warm-up: caches, connections, the first bridge.
    for n in 0..=starts {
        eprint!("\rone at a time: {n}/{starts} ");
        for (init, pair) in [(false, &mut bare), (true, &mut with_init)] {
            let took = floor.one(n, init).await?;
            pair.add(n, took);
        }
        for (kind, pair) in &mut kinds {
            let name = format!("{}-{n}", kind.name());
            let up = pods.start(&name, &kind.manifest(&name)).await?;
            let down = pods.remove(&name).await?;
            pair.add(n, (up, down));
        }
    }
    eprintln!();
    let floor_of = |kind: &Kind| if kind.has_init() { &with_init } else { &bare };
    for (kind, pair) in &kinds {
        let what = format!("start, {}", kind.words());
        table.beside(&what, &floor_of(kind).up, &pair.up);
    }
    for (kind, pair) in &kinds {
        let what = format!("delete → all gone, {}", kind.words());
        table.beside(&what, &floor_of(kind).down, &pair.down);
    }
    Ok(())
}

/// Starts and deletions of one kind.
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

/// Kills containers and sees how soon the status says so.
async fn exits(
    node: &Node,
    exits: usize,
    pods: &mut Pods<'_>,
    table: &mut Table,
) -> Result<(), HarnessError> {
    let mut samples = Samples::default();
    for n in 0..exits {
        eprint!("\rexits: {}/{exits} ", n + 1);
        let name = format!("exit-{n}");
        pods.start(&name, &manifests::once(&name)).await?;
        samples.add(pods.kill_main(node, &name).await?);
        pods.remove(&name).await?;
    }
    eprintln!();
    table.alone("exit → status", &samples);
    Ok(())
}

/// A server that turns well, and a status that says so.
async fn readiness(
    turns: usize,
    pods: &mut Pods<'_>,
    table: &mut Table,
) -> Result<(), HarnessError> {
    let server = Server::start().await?;
    let mut samples = Samples::default();
    for n in 0..turns {
        eprint!("\rreadiness: {}/{turns} ", n + 1);
        let name = format!("asked-{n}");
        server.turn(false);
        let well_at = pods.start_asked(&name, &server).await?;
        samples.add(well_at);
        pods.remove(&name).await?;
    }
    eprintln!();
    table.alone("readiness success → status", &samples);
    Ok(())
}
