use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use polylet_harness::{Node, procs};
use procfs::CurrentSI;
use procfs::process::Process;

/// Resource use of all processes of the node while its pods do not change.
pub(crate) struct IdleCost {
    /// Sum over all processes of the agent.
    pub(crate) cores: f64,
    pub(crate) pss_mib: f64,
    pub(crate) processes: usize,
    /// By program: the agent's processes, the runtime and its shims.
    pub(crate) programs: BTreeMap<String, f64>,
}

/// Measures for the length of `window`. The agent's programs have names that begin with `agent`.
pub(crate) async fn measure(node: &Node, agent: &str, window: Duration) -> IdleCost {
    let is_ours = |program: &str| program.starts_with(agent);
    let used = CpuUsage::since_now(&[node.scratch()]);
    let began = Instant::now();
    tokio::time::sleep(window).await;
    let elapsed = began.elapsed().as_secs_f64();
    let mut programs = used.so_far();
    programs
        .values_mut()
        .for_each(|seconds| *seconds /= elapsed);
    let ours: Vec<u32> = procs::list(node.scratch())
        .iter()
        .filter(|process| is_ours(process.name()))
        .map(|process| process.pid)
        .collect();
    IdleCost {
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

/// CPU time used since construction by each program below some directories. Programs that exit in the
/// meantime count if their parent is still running.
pub(crate) struct CpuUsage {
    dirs: Vec<PathBuf>,
    machine: Option<f64>,
    before: HashMap<u32, (String, u64)>,
}

impl CpuUsage {
    pub(crate) fn since_now(dirs: &[&Path]) -> Self {
        Self {
            dirs: dirs.iter().map(|dir| dir.to_path_buf()).collect(),
            machine: busy(),
            before: dirs.iter().flat_map(|dir| ticks(dir)).collect(),
        }
    }

    /// CPU seconds of the whole machine, including processes that have exited.
    pub(crate) fn of_machine(&self) -> Option<f64> {
        Some(busy()? - self.machine?)
    }

    /// CPU seconds by program.
    pub(crate) fn so_far(&self) -> BTreeMap<String, f64> {
        let mut programs: BTreeMap<String, f64> = BTreeMap::new();
        // A command line may contain several of the directories.
        let now: HashMap<_, _> = self.dirs.iter().flat_map(|dir| ticks(dir)).collect();
        for (pid, (name, now)) in now {
            let before = self.before.get(&pid).map_or(0, |(_, ticks)| *ticks);
            let used = now.saturating_sub(before) as f64 / procfs::ticks_per_second() as f64;
            *programs.entry(name).or_default() += used;
        }
        programs
    }
}

/// Non-idle CPU seconds of the machine since boot.
fn busy() -> Option<f64> {
    let total = procfs::KernelStats::current().ok()?.total;
    let kernel = total.system + total.irq.unwrap_or(0) + total.softirq.unwrap_or(0);
    let ticks = total.user + total.nice + kernel;
    Some(ticks as f64 / procfs::ticks_per_second() as f64)
}

/// Program and CPU time by process id, including children that have exited.
fn ticks(dir: &Path) -> HashMap<u32, (String, u64)> {
    procs::list(dir)
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
