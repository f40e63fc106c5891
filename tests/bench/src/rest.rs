use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use polylet_harness::{Node, procs};
use procfs::process::Process;

/// What all processes of the node use while nothing happens to its pods.
pub(crate) struct Rest {
    /// Ours, of all processes together.
    pub(crate) cores: f64,
    pub(crate) pss_mib: f64,
    pub(crate) processes: usize,
    /// By program: ours, and the runtime with its shims.
    pub(crate) programs: BTreeMap<String, f64>,
}

/// Watches for so long. Ours are the programs whose names begin with `agent`.
pub(crate) async fn measure(node: &Node, agent: &str, window: Duration) -> Rest {
    let is_ours = |program: &str| program.starts_with(agent);
    let before = ticks(node);
    let began = Instant::now();
    tokio::time::sleep(window).await;
    let elapsed = began.elapsed().as_secs_f64();
    let after = ticks(node);
    let mut programs: BTreeMap<String, f64> = BTreeMap::new();
    for (pid, (name, now)) in &after {
        let before = before.get(pid).map_or(0, |(_, ticks)| *ticks);
        let used = now.saturating_sub(before) as f64 / procfs::ticks_per_second() as f64;
        *programs.entry(name.clone()).or_default() += used / elapsed;
    }
    let ours: Vec<u32> = after
        .iter()
        .filter(|(_, (name, _))| is_ours(name))
        .map(|(pid, _)| *pid)
        .collect();
    Rest {
        cores: programs
            .iter()
            .filter(|(name, _)| is_ours(name))
            .map(|(_, cores)| cores)
            .sum(),
        pss_mib: ours.iter().map(|pid| pss(*pid)).sum::<u64>() as f64 / f64::from(1 << 20),
        processes: ours.len(),
        programs,
    }
}

/// Program and processor time by process id, children that have ended included.
fn ticks(node: &Node) -> HashMap<u32, (String, u64)> {
    procs::of_run(node.scratch())
        .iter()
        .filter_map(|process| {
            let stat = Process::new(i32::try_from(process.pid).ok()?)
                .ok()?
                .stat()
                .ok()?;
            let children = u64::try_from(stat.cutime + stat.cstime).unwrap_or_default();
            let ticks = stat.utime + stat.stime + children;
            Some((process.pid, (process.name().to_owned(), ticks)))
        })
        .collect()
}

fn pss(pid: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:"));
    let kib: Option<u64> = line.and_then(|rest| rest.split_whitespace().next()?.parse().ok());
    kib.unwrap_or(0) * 1024
}
