//! Polylet alone on a node with many pods: `cargo node-bench -- --large --burst 500`.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use polylet_harness::{Cluster, ClusterOptions, HarnessError};

use super::agent::Agent;
use super::{SETTLE, manifest, side};
use crate::manifests::ManifestKind;
use crate::{BenchArgs, idle, memory};

/// How many of the pods that come and go are there at the same time.
const CHURN_AT_ONCE: usize = 100;
/// Nothing is written any more when nothing was in this time.
const INTERVAL: Duration = Duration::from_secs(10);
const MAX_INTERVALS: u32 = 12;
/// What a restarted agent does within this time counts.
const RESTARTED: Duration = Duration::from_secs(15);

/// Prints what `--burst` pods cost at rest and at a restart, after `--churn` others came and went.
pub(crate) async fn large(args: &BenchArgs, bin_dir: &Path) -> Result<(), HarnessError> {
    let cluster = Cluster::start(&ClusterOptions::default(), &|line| eprintln!("{line}")).await?;
    let mut polylet = side(&cluster, args, bin_dir, false).await?;
    let pod = manifest(ManifestKind::Bare)?;
    let (mut up, mut down) = (Duration::ZERO, Duration::ZERO);
    for gone in (0..args.churn).step_by(CHURN_AT_ONCE) {
        eprint!("\r{gone} of {} pods came and went ", args.churn);
        up += polylet.many_up(CHURN_AT_ONCE, &pod).await?;
        down += polylet.many_down(CHURN_AT_ONCE).await?;
    }
    if args.churn > 0 {
        let (up, down) = (up.as_secs_f64(), down.as_secs_f64());
        println!(
            "{} pods, {CHURN_AT_ONCE} at once, Ready in {up:.1} s and gone in {down:.1} s",
            args.churn
        );
    }
    memory::at_rest(&polylet.node, &format!("0 pods after {}", args.churn)).await;
    let took = polylet.many_up(args.burst, &pod).await?;
    println!("{} pods Ready in {:.1} s", args.burst, took.as_secs_f64());
    writes_ceased(&cluster, &polylet).await?;
    memory::at_rest(&polylet.node, &format!("{} pods", args.burst)).await;
    let rest = idle::measure(&polylet.node, "polylet", Duration::from_secs(args.rest)).await;
    println!("at rest for {} s: {:.5} core", args.rest, rest.cores);
    for (program, cores) in rest.programs.iter().filter(|(_, cores)| **cores > 0.0) {
        println!("    {program}: {cores:.5}");
    }
    restart(&cluster, &mut polylet).await?;
    memory::at_rest(&polylet.node, &format!("{} pods, restarted", args.burst)).await;
    polylet.remove()?;
    cluster.remove()
}

/// Waits until the agent writes no more statuses and events, which wait while many pods start.
async fn writes_ceased(cluster: &Cluster, polylet: &Agent<'_>) -> Result<(), HarnessError> {
    for _ in 0..MAX_INTERVALS {
        let (_, mark) = cluster.requests(0)?;
        tokio::time::sleep(INTERVAL).await;
        let counts = polylet.for_pods(mark)?;
        if counts.writes + counts.events == 0 {
            break;
        }
    }
    Ok(())
}

/// Restarts the agent; prints its requests to the API server, and the time of the first of each kind.
async fn restart(cluster: &Cluster, polylet: &mut Agent<'_>) -> Result<(), HarnessError> {
    polylet.stop();
    tokio::time::sleep(SETTLE).await;
    let (_, mark) = cluster.requests(0)?;
    let started = Timestamp::now();
    polylet.start_again().await?;
    tokio::time::sleep(RESTARTED).await;
    let mut kinds: BTreeMap<(String, String), (usize, i128)> = BTreeMap::new();
    for request in polylet.requests(mark)? {
        let at: Timestamp = request.at.parse().unwrap_or_default();
        let after = at.duration_since(started).as_millis();
        let kind = kinds.entry((request.verb, request.resource));
        let (count, first) = kind.or_insert((0, after));
        *count += 1;
        *first = (*first).min(after);
    }
    println!("| restart: requests | number | first, ms after the start |\n| --- | --- | --- |");
    for ((verb, resource), (count, first)) in kinds {
        println!("| {verb} {resource} | {count} | {first} |");
    }
    Ok(())
}
