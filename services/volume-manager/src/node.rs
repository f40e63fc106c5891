//! What the node can give: its capacity less what is reserved.

use std::collections::BTreeMap;
use std::path::Path;

use polylet_kit::config::Config;
use polylet_model::quantity::Amount;

use crate::core::spec::Allocatable;

/// What pods may use of this node. What cannot be found out counts as nothing.
pub fn allocatable(config: &Config) -> Allocatable {
    let kubelet = &config.kubelet;
    let reserved = |resource: &str| -> Amount {
        let maps = [&kubelet.kube_reserved, &kubelet.system_reserved];
        maps.iter()
            .filter_map(|map| Amount::parse(map.get(resource)?).ok())
            .sum()
    };
    let memory = memory();
    let disk = disk(&config.polylet.root_directory);
    let kept_free = |signal, whole| kept_free(&kubelet.eviction_hard, signal, whole);
    let cpu = std::thread::available_parallelism().map_or(0, |cores| cores.get() as u64 * 1000);
    let reserved_cpu = u64::try_from(reserved("cpu").millis()).unwrap_or(0);
    Allocatable {
        cpu_milli: cpu.saturating_sub(reserved_cpu),
        memory: memory
            .saturating_sub(reserved("memory").bytes())
            .saturating_sub(kept_free("memory.available", memory)),
        ephemeral_storage: disk
            .saturating_sub(reserved("ephemeral-storage").bytes())
            .saturating_sub(kept_free("nodefs.available", disk)),
    }
}

/// What the hard eviction threshold keeps free.
fn kept_free(thresholds: &BTreeMap<String, String>, signal: &str, whole: u64) -> u64 {
    let Some(threshold) = thresholds.get(signal) else {
        return 0;
    };
    match threshold.strip_suffix('%').map(str::parse::<f64>) {
        Some(Ok(percent)) => (whole as f64 * (percent / 100.0)) as u64,
        Some(Err(_)) => 0,
        None => Amount::parse(threshold).map_or(0, Amount::bytes),
    }
}

fn memory() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kibibytes =
        line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    kibibytes.unwrap_or(0) * 1024
}

fn disk(root: &Path) -> u64 {
    let found = rustix::fs::statvfs(root);
    found.map_or(0, |found| found.f_blocks.saturating_mul(found.f_frsize))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thresholds_are_amounts_or_parts() {
        let map = |text: &str| BTreeMap::from([("memory.available".to_owned(), text.to_owned())]);
        assert_eq!(kept_free(&map("10%"), "memory.available", 1000), 100);
        assert_eq!(kept_free(&map("1Ki"), "memory.available", 5000), 1024);
        assert_eq!(kept_free(&map("x%"), "memory.available", 5000), 0);
        assert_eq!(kept_free(&map("1Ki"), "nodefs.available", 5000), 0);
        assert!(memory() > 0 && disk(Path::new("/")) > 0);
    }
}
