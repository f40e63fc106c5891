use std::collections::HashMap;
use std::time::{Duration, Instant};

use polylet_harness::{Node, procs};
use procfs::process::Process;

/// What all processes of the node use while nothing happens.
pub(crate) struct Rest {
    pub(crate) cores: f64,
    pub(crate) pss_mib: f64,
    pub(crate) processes: usize,
}

/// Watches for so long.
pub(crate) async fn measure(node: &Node, window: Duration) -> Rest {
    let before = ticks(node);
    let began = Instant::now();
    tokio::time::sleep(window).await;
    let elapsed = began.elapsed().as_secs_f64();
    let after = ticks(node);
    let used: u64 = after
        .iter()
        .map(|(pid, now)| now.saturating_sub(before.get(pid).copied().unwrap_or(0)))
        .sum();
    let seconds = used as f64 / procfs::ticks_per_second() as f64;
    Rest {
        cores: seconds / elapsed,
        pss_mib: after.keys().map(|pid| pss(*pid)).sum::<u64>() as f64 / f64::from(1 << 20),
        processes: after.len(),
    }
}

/// Processor time by process id, of the supervisor and the services.
fn ticks(node: &Node) -> HashMap<u32, u64> {
    procs::of_run(node.scratch())
        .iter()
        .filter(|process| process.name().starts_with("polylet"))
        .filter_map(|process| {
            let stat = Process::new(i32::try_from(process.pid).ok()?)
                .ok()?
                .stat()
                .ok()?;
            Some((process.pid, stat.utime + stat.stime))
        })
        .collect()
}

fn pss(pid: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:"));
    let kib: Option<u64> = line.and_then(|rest| rest.split_whitespace().next()?.parse().ok());
    kib.unwrap_or(0) * 1024
}
