use std::time::Duration;

use polylet_harness::HarnessError;
use serde_json::Value;

use super::patches::ApiServerBaseline;
use super::{Bench, SETTLE, manifest};
use crate::baseline::BurstTimes;
use crate::calls::RuntimeCalls;
use crate::idle;
use crate::manifests::ManifestKind;
use crate::pod_hooks::NoHooks;

/// Number of repetitions, of which the best counts: on two processors, one delayed process can cost a
/// second.
const ROUNDS: usize = 2;
/// Concurrency of raw calls.
const AT_A_TIME: [usize; 3] = [5, 10, 20];

/// The best results.
#[derive(Default)]
struct BestTimes {
    /// Duration and concurrency.
    raw: Option<(Duration, usize)>,
    raw_gone: Option<Duration>,
    /// The same with the API's least share.
    shared: [Option<Duration>; 2],
    up: [Option<Duration>; 2],
    gone: [Option<Duration>; 2],
    /// Calls to the runtime for each start and each deletion, of the last repetition.
    calls: [[RuntimeCalls; 2]; 2],
}

impl Bench<'_> {
    /// Measures `count` pods on an empty node: at once, at rest and during a restart.
    pub(super) async fn at_once(&mut self, count: usize) -> Result<(), HarnessError> {
        let pod = manifest(ManifestKind::Bare)?;
        let mut best = BestTimes::default();
        for _ in 0..ROUNDS {
            self.raw_at_once(count, &mut best).await?;
            let at_a_time = best.raw.map_or(1, |(_, at_a_time)| at_a_time);
            let took = self.shared_at_once(count, at_a_time, &pod).await?;
            for (best, took) in best.shared.iter_mut().zip([took.up, took.gone]) {
                better(best, took);
            }
            for which in 0..self.sides.len() {
                self.side_at_once(count, which, &pod, &mut best).await?;
            }
        }
        self.add_rows(count, &best);
        for side in &mut self.sides {
            side.many_up(count, &pod).await?;
        }
        tokio::time::sleep(SETTLE).await;
        self.rest(count).await?;
        self.restarts(count).await?;
        for side in &mut self.sides {
            side.many_down(count).await?;
        }
        Ok(())
    }

    async fn raw_at_once(&self, count: usize, best: &mut BestTimes) -> Result<(), HarnessError> {
        for at_a_time in AT_A_TIME {
            eprintln!("{count} pods by raw CRI, {at_a_time} at a time");
            let used = self.used();
            let report = || print_cpu_time(&used, count);
            let took = self.floor.many(count, at_a_time, &NoHooks, report).await?;
            better(&mut best.raw, (took.up, at_a_time));
            better(&mut best.raw_gone, took.gone);
        }
        Ok(())
    }

    async fn shared_at_once(
        &self,
        count: usize,
        at_a_time: usize,
        pod: &Value,
    ) -> Result<BurstTimes, HarnessError> {
        eprintln!("{count} pods by raw CRI, each created at the API server and patched to Ready");
        let share = ApiServerBaseline::new(self.cluster, pod.clone());
        let used = self.used();
        let report = || print_cpu_time(&used, count);
        self.floor.many(count, at_a_time, &share, report).await
    }

    /// Starts and deletes the pods: running pods would slow down the next measurement.
    async fn side_at_once(
        &mut self,
        count: usize,
        which: usize,
        pod: &Value,
        best: &mut BestTimes,
    ) -> Result<(), HarnessError> {
        let used = self.used();
        let (_, mark) = self.cluster.requests(0)?;
        let before = self.runtime_calls(which).await?;
        let side = &mut self.sides[which];
        eprintln!("{count} pods by {}", side.program());
        better(&mut best.up[which], side.many_up(count, pod).await?);
        print_cpu_time(&used, count);
        let asked = side.for_pods(mark)?;
        eprintln!("  API requests meanwhile: {asked:?}");
        tokio::time::sleep(SETTLE).await;
        let started = self.runtime_calls(which).await?;
        let gone = self.sides[which].many_down(count).await?;
        better(&mut best.gone[which], gone);
        // Cleanup after the deletion must not affect the next measurement.
        tokio::time::sleep(SETTLE).await;
        let deleted = self.runtime_calls(which).await?;
        best.calls[0][which] = started.per_pod_since(&before, count);
        best.calls[1][which] = deleted.per_pod_since(&started, count);
        Ok(())
    }

    /// The calls to the runtime that an agent has made since its start.
    pub(super) async fn runtime_calls(&self, which: usize) -> Result<RuntimeCalls, HarnessError> {
        let url = format!(
            "/api/v1/nodes/{}/proxy/metrics",
            self.sides[which].node.name()
        );
        let metrics = self.cluster.client().text(&url).await?;
        Ok(RuntimeCalls::from_metrics(&metrics))
    }

    fn add_rows(&mut self, count: usize, best: &BestTimes) {
        let rate = |took: Option<Duration>| {
            let seconds = took.unwrap_or_default().as_secs_f64();
            format!("{seconds:.2} s ({:.1}/s)", count as f64 / seconds.max(1e-9))
        };
        let (raw, at_a_time) = best.raw.unzip();
        let floor = format!(
            "{}, {} at a time; with the API's least share {}",
            rate(raw),
            at_a_time.unwrap_or_default(),
            rate(best.shared[0])
        );
        let table = &mut self.table;
        let what = format!("{count} pods at once, best of {ROUNDS}");
        table.line(what, floor, best.up.map(rate));
        let what = format!("delete {count} pods → gone, best of {ROUNDS}");
        let floor = format!(
            "{}; with the API's least share {}",
            rate(best.raw_gone),
            rate(best.shared[1])
        );
        table.line(what, floor, best.gone.map(rate));
        for (what, calls) in ["start", "deletion"].into_iter().zip(&best.calls) {
            let what = format!("calls to the runtime, each of {count} {what}s at once");
            table.line(what, "", calls.each_ref().map(RuntimeCalls::summary));
        }
    }

    fn used(&self) -> idle::CpuUsage {
        idle::CpuUsage::since_now(&[self.sides[1].node.scratch(), self.cluster.scratch()])
    }
}

fn better<T: Ord>(best: &mut Option<T>, one: T) {
    if best.as_ref().is_none_or(|best| one < *best) {
        *best = Some(one);
    }
}

/// Prints the CPU time of a pod as progress output.
fn print_cpu_time(used: &idle::CpuUsage, count: usize) {
    let each = |seconds: f64| seconds * 1000.0 / count.max(1) as f64;
    let machine = used.of_machine().map_or(0.0, each);
    eprintln!("  {machine:.1} ms of CPU time per pod on the whole machine; by running program:");
    let programs = used.so_far();
    for (program, seconds) in programs.iter().filter(|(_, seconds)| **seconds > 0.0) {
        eprintln!("    {program}: {:.1}", each(*seconds));
    }
}
