//! Starts and deletions a second at several concurrencies: `cargo node-bench -- --rates`.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use polylet_harness::{HarnessError, Node};

use crate::BenchArgs;
use crate::baseline::{Baseline, BaselineShape};
use crate::idle::CpuUsage;
use crate::manifests::ManifestKind;
use crate::pod_hooks::NoHooks;
use crate::pods::PodDriver;

/// How often all is measured.
const ROUNDS: usize = 3;

/// The times of many pods in all repetitions, and the processor time of all programs meanwhile.
struct BurstRates {
    what: String,
    starts: PhaseTimes,
    deletions: PhaseTimes,
}

/// Sums of all repetitions.
#[derive(Default)]
struct PhaseTimes {
    took: Duration,
    /// Seconds of all processors of the machine.
    processors: f64,
    /// Those of the node's programs.
    programs: BTreeMap<String, f64>,
}

impl PhaseTimes {
    fn add(&mut self, took: Duration, used: &CpuUsage) {
        self.took += took;
        self.processors += used.of_machine().unwrap_or_default();
        for (program, seconds) in used.so_far() {
            *self.programs.entry(program).or_default() += seconds;
        }
    }

    /// Milliseconds of each pod by program.
    fn by_program(&self, count: usize) -> String {
        let pods = (count * ROUNDS).max(1) as f64;
        let each = self
            .programs
            .iter()
            .map(|(name, used)| (name, used * 1e3 / pods));
        let listed: Vec<_> = each
            .filter(|(_, each)| *each >= 0.1)
            .map(|(name, each)| format!("{name} {each:.1}"))
            .collect();
        listed.join(", ")
    }

    /// Pods a second, processor time of each, and how many processors were busy.
    fn cells(&self, count: usize) -> String {
        let seconds = self.took.as_secs_f64().max(1e-9);
        let pods = (count * ROUNDS).max(1) as f64;
        let each = self.processors * 1e3 / pods;
        let busy = self.processors / seconds;
        format!("{:.1} | {each:.0} ms, {busy:.2} busy", pods / seconds)
    }
}

impl BurstRates {
    fn new(what: String) -> Self {
        Self {
            what,
            starts: PhaseTimes::default(),
            deletions: PhaseTimes::default(),
        }
    }

    fn row(&self, count: usize) -> String {
        let (starts, deletions) = (self.starts.cells(count), self.deletions.cells(count));
        format!("| {} | {starts} | {deletions} |", self.what)
    }
}

/// Measures `--burst` pods by raw calls and by Polylet in turn, and prints a table.
pub(crate) async fn measure(
    node: &Node,
    args: &BenchArgs,
    pods: &mut PodDriver<'_>,
) -> Result<(), HarnessError> {
    let count = args.burst;
    let floor = Baseline::new(node)?;
    floor.one(0, BaselineShape::default(), &NoHooks).await?;
    let at_a_time = args.at_a_time.iter();
    let raw = at_a_time.map(|n| (*n, BurstRates::new(format!("raw CRI, {n} at a time"))));
    let mut raw: Vec<_> = raw.collect();
    let mut ours = BurstRates::new("Polylet".to_owned());
    let used = || CpuUsage::since_now(&[node.scratch()]);
    for round in 1..=ROUNDS {
        for (at_a_time, rates) in &mut raw {
            eprint!("\rround {round} of {ROUNDS}, raw CRI, {at_a_time} at a time   ");
            let BurstRates {
                starts, deletions, ..
            } = rates;
            let (start, began, mut deletion) = (used(), Instant::now(), None);
            let on_up = || {
                starts.add(began.elapsed(), &start);
                deletion = Some(used());
            };
            let times = floor
                .many(count, (*at_a_time).max(1), &NoHooks, on_up)
                .await?;
            if let Some(deletion) = deletion {
                deletions.add(times.gone, &deletion);
            }
        }
        eprint!("\rround {round} of {ROUNDS}, Polylet                    ");
        let start = used();
        let names = pods.put_many(count, |name| ManifestKind::Bare.manifest(name))?;
        ours.starts.add(pods.all_ready(&names).await?, &start);
        let deletion = used();
        ours.deletions
            .add(pods.remove_many(&names).await?, &deletion);
    }
    eprintln!();
    println!(
        "| {count} pods, mean of {ROUNDS} | starts/s | processors | deletions/s | processors |"
    );
    println!("| --- | --- | --- | --- | --- |");
    for rates in raw.iter().map(|(_, rates)| rates).chain([&ours]) {
        println!("{}", rates.row(count));
        eprintln!("start: {}", rates.starts.by_program(count));
        eprintln!("deletion: {}", rates.deletions.by_program(count));
    }
    Ok(())
}
