//! The allocatable resources of this node: capacity less reservations and eviction thresholds.

use std::collections::BTreeMap;
use std::path::Path;

use polylet_kit::config::Config;
use polylet_machine::meminfo;
use polylet_model::quantity::Amount;

use crate::core::spec::Allocatable;

/// The allocatable resources. What cannot be read counts as zero.
pub fn allocatable(config: &Config) -> Allocatable {
    let kubelet = &config.kubelet;
    let reserved = |resource: &str| -> Amount {
        let maps = [&kubelet.kube_reserved, &kubelet.system_reserved];
        maps.iter()
            .filter_map(|map| Amount::parse(map.get(resource)?).ok())
            .sum()
    };
    let memory = meminfo::read().map_or(0, |memory| memory.total);
    let disk = disk(&config.polylet.root_directory);
    let threshold = |signal, capacity| threshold(&kubelet.eviction_hard, signal, capacity);
    let cpu = std::thread::available_parallelism().map_or(0, |cores| cores.get() as u64 * 1000);
    let reserved_cpu = u64::try_from(reserved("cpu").millis()).unwrap_or(0);
    Allocatable {
        cpu_milli: cpu.saturating_sub(reserved_cpu),
        memory: memory
            .saturating_sub(reserved("memory").bytes())
            .saturating_sub(threshold("memory.available", memory)),
        ephemeral_storage: disk
            .saturating_sub(reserved("ephemeral-storage").bytes())
            .saturating_sub(threshold("nodefs.available", disk)),
    }
}

/// The hard eviction threshold of a signal, in bytes.
fn threshold(thresholds: &BTreeMap<String, String>, signal: &str, capacity: u64) -> u64 {
    let Some(threshold) = thresholds.get(signal) else {
        return 0;
    };
    match threshold.strip_suffix('%').map(str::parse::<f64>) {
        Some(Ok(percent)) => (capacity as f64 * (percent / 100.0)) as u64,
        Some(Err(_)) => 0,
        None => Amount::parse(threshold).map_or(0, Amount::bytes),
    }
}

fn disk(root: &Path) -> u64 {
    let stat = rustix::fs::statvfs(root);
    stat.map_or(0, |stat| stat.f_blocks.saturating_mul(stat.f_frsize))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thresholds_are_quantities_or_percentages() {
        let map = |text: &str| BTreeMap::from([("memory.available".to_owned(), text.to_owned())]);
        assert_eq!(threshold(&map("10%"), "memory.available", 1000), 100);
        assert_eq!(threshold(&map("1Ki"), "memory.available", 5000), 1024);
        assert_eq!(threshold(&map("x%"), "memory.available", 5000), 0);
        assert_eq!(threshold(&map("1Ki"), "nodefs.available", 5000), 0);
        assert!(disk(Path::new("/")) > 0);
    }
}
