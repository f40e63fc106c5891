//! Uses memory until little more is available than a threshold, whatever other programs do meanwhile.

use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use polylet_e2e::ok;

/// What is allocated and freed at once.
const CHUNK_MIB: u64 = 128;
/// How far below the threshold the available memory is kept.
const BELOW_MIB: u64 = 256;
/// Less than this below the threshold is given back: other programs need it.
const FAR_BELOW_MIB: u64 = 1024;
/// How often that is checked.
const PERIOD: Duration = Duration::from_millis(200);

/// A thread that uses memory; it frees all on drop.
pub(crate) struct MemoryHog(Option<(Sender<()>, JoinHandle<()>)>);

impl MemoryHog {
    /// Returns as soon as less than `threshold_mib` is available.
    pub(crate) async fn below(threshold_mib: u64) -> Self {
        let (stop, stopped) = channel::<()>();
        let (reached, is_reached) = tokio::sync::oneshot::channel();
        let mut reached = Some(reached);
        let thread = std::thread::spawn(move || {
            let mut chunks = Vec::new();
            loop {
                adjust(&mut chunks, threshold_mib);
                if let Some(reached) = reached.take() {
                    // The test may have ended.
                    let _ = reached.send(());
                }
                let wait = stopped.recv_timeout(PERIOD);
                if !matches!(wait, Err(std::sync::mpsc::RecvTimeoutError::Timeout)) {
                    return;
                }
            }
        });
        ok(is_reached.await);
        MemoryHog(Some((stop, thread)))
    }
}

impl Drop for MemoryHog {
    fn drop(&mut self) {
        if let Some((stop, thread)) = self.0.take() {
            drop(stop);
            let _ = thread.join();
        }
    }
}

fn adjust(chunks: &mut Vec<Vec<u8>>, threshold_mib: u64) {
    while available_mib() > threshold_mib.saturating_sub(BELOW_MIB) {
        let mut chunk = vec![0_u8; (CHUNK_MIB as usize) << 20];
        chunk.iter_mut().step_by(4096).for_each(|byte| *byte = 1);
        chunks.push(chunk);
    }
    while available_mib() < threshold_mib.saturating_sub(FAR_BELOW_MIB) && chunks.pop().is_some() {}
}

/// `memory.available` as the eviction manager observes it: capacity less the working set, which is all
/// that is neither free nor an inactive page of a file.
pub(crate) fn available_mib() -> u64 {
    let meminfo = ok(std::fs::read_to_string("/proc/meminfo"));
    let kib = |name: &str| {
        let line = meminfo.lines().find_map(|line| line.strip_prefix(name));
        let number = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
        number.unwrap_or_default()
    };
    (kib("MemFree:") + kib("Inactive(file):")) >> 10
}
