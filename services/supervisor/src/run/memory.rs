//! Memory usage of the services.

use procfs::process::Process;

/// The proportional set size of a process in bytes: its memory, with shared pages divided among the
/// processes that share them. Zero if it cannot be read.
pub(super) fn pss(pid: u32) -> u64 {
    let rollup = i32::try_from(pid)
        .ok()
        .and_then(|pid| Process::new(pid).ok()?.smaps_rollup().ok());
    let maps = rollup.map(|it| it.memory_map_rollup.0).unwrap_or_default();
    let pss = maps.first().and_then(|map| map.extension.map.get("Pss"));
    pss.copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pss_is_part_of_the_resident_set() {
        let resident = Process::myself().unwrap().statm().unwrap().resident * procfs::page_size();
        let pss = pss(std::process::id());
        assert!(pss > 0 && pss <= 2 * resident, "{pss} of {resident}");
        assert_eq!(super::pss(0), 0);
    }
}
