//! Memory and swap of the machine, from `/proc/meminfo` through `procfs`.

use procfs::{Current, ProcError};

/// The machine's memory in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemInfo {
    /// `MemTotal`.
    pub total: u64,
    /// `MemFree`.
    pub free: u64,
    /// `Inactive(file)`: file pages that have not been used for long.
    pub inactive_file: u64,
    /// `AnonPages`.
    pub anonymous: u64,
    /// `SwapTotal`.
    pub swap_total: u64,
    /// `SwapFree`.
    pub swap_free: u64,
}

/// `/proc/meminfo` cannot be read or parsed.
#[derive(Debug, thiserror::Error)]
#[error("reading /proc/meminfo")]
pub struct MemInfoError(#[from] ProcError);

impl MemInfo {
    /// Memory in use: all that is not free.
    pub fn usage(&self) -> u64 {
        self.total.saturating_sub(self.free)
    }

    /// The working set as cAdvisor counts it for the root cgroup: usage less the inactive file
    /// pages.
    pub fn working_set(&self) -> u64 {
        self.usage().saturating_sub(self.inactive_file)
    }
}

/// Reads the present values.
pub fn read() -> Result<MemInfo, MemInfoError> {
    let info = procfs::Meminfo::current()?;
    Ok(MemInfo {
        total: info.mem_total,
        free: info.mem_free,
        inactive_file: info.inactive_file.unwrap_or(0),
        anonymous: info.anon_pages.unwrap_or(0),
        swap_total: info.swap_total,
        swap_free: info.swap_free,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_has_memory() {
        let info = read().unwrap();
        assert!(info.total > info.free && info.free > 0, "{info:?}");
        assert!(info.working_set() <= info.usage() && info.usage() < info.total);
        assert!(info.swap_free <= info.swap_total);
    }

    #[test]
    fn the_working_set_leaves_out_inactive_file_pages() {
        let info = MemInfo {
            total: 100,
            free: 20,
            inactive_file: 30,
            ..MemInfo::default()
        };
        assert_eq!((info.usage(), info.working_set()), (80, 50));
        let odd = MemInfo {
            inactive_file: 90,
            ..info
        };
        assert_eq!(odd.working_set(), 0);
    }
}
