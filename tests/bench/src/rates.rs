//! Starts and deletions a second at several concurrencies: `cargo node-bench -- --rates`.

use std::time::Duration;

use polylet_harness::{HarnessError, Node};

use crate::baseline::{Baseline, BurstTimes};
use crate::manifests::ManifestKind;
use crate::pods::PodDriver;

/// Repetitions, of which the best counts.
const ROUNDS: usize = 3;
/// Concurrency of raw calls.
const AT_A_TIME: [usize; 9] = [1, 2, 3, 5, 8, 12, 16, 24, 32];

/// Measures `count` pods by raw calls and by Polylet in turn, and prints a table.
pub(crate) async fn measure(
    node: &Node,
    count: usize,
    pods: &mut PodDriver<'_>,
) -> Result<(), HarnessError> {
    let floor = Baseline::new(node)?;
    floor.one(0, false).await?;
    let mut raw: [Option<BurstTimes>; AT_A_TIME.len()] = [None; AT_A_TIME.len()];
    let mut ours = None;
    for round in 1..=ROUNDS {
        for (best, at_a_time) in raw.iter_mut().zip(AT_A_TIME) {
            eprint!("\rround {round} of {ROUNDS}, raw CRI, {at_a_time} at a time   ");
            better(best, floor.many(count, at_a_time, || ()).await?);
        }
        eprint!("\rround {round} of {ROUNDS}, Polylet                    ");
        let names = pods.put_many(count, |name| ManifestKind::Bare.manifest(name))?;
        let up = pods.all_ready(&names).await?;
        let gone = pods.remove_many(&names).await?;
        better(&mut ours, BurstTimes { up, gone });
    }
    eprintln!();
    let rate = |took: Duration| count as f64 / took.as_secs_f64().max(1e-9);
    println!("| {count} pods, best of {ROUNDS} | starts/s | deletions/s |\n| --- | --- | --- |");
    let line = |what: String, times: Option<BurstTimes>| {
        let (up, gone) = times.map_or((0.0, 0.0), |times| (rate(times.up), rate(times.gone)));
        println!("| {what} | {up:.1} | {gone:.1} |");
    };
    for (times, at_a_time) in raw.into_iter().zip(AT_A_TIME) {
        line(format!("raw CRI, {at_a_time} at a time"), times);
    }
    line("Polylet".to_owned(), ours);
    Ok(())
}

fn better(best: &mut Option<BurstTimes>, times: BurstTimes) {
    let before = best.unwrap_or(times);
    *best = Some(BurstTimes {
        up: before.up.min(times.up),
        gone: before.gone.min(times.gone),
    });
}
