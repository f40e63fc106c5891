//! Whether a node may run on this machine as its configuration stands: what a kubelet looks at before
//! it starts, in the kubelet's words.

use std::{fs, io};

use polylet_kit::config::KubeletConfiguration;

use crate::Machine;

/// Why a node does not start here.
#[derive(Debug, thiserror::Error)]
pub enum Unfit {
    /// `failCgroupV1`.
    #[error(
        "kubelet is configured to not run on a host using cgroup v1. cgroup v1 support is unsupported \
         and will be removed in a future release"
    )]
    CgroupV1,
    /// Version 1 of cgroups always ends one process alone.
    #[error(
        "invalid configuration: singleProcessOOMKill must not be explicitly set to false when using \
         cgroup v1"
    )]
    GroupKill,
    /// `memorySwap.swapBehavior: LimitedSwap`.
    #[error("swap feature is enabled and LimitedSwap but it is only supported with cgroupv2")]
    LimitedSwap,
    /// `failSwapOn`.
    #[error(
        "running with swap on is not supported, please disable swap or set --fail-swap-on flag to false"
    )]
    Swap,
    /// The kernel does not say.
    #[error("failed to determine if swap is on")]
    Unknown(#[source] io::Error),
}

/// Looks at the machine.
///
/// # Errors
/// When a kubelet with this configuration would not start here.
pub fn fit(config: &KubeletConfiguration) -> Result<(), Unfit> {
    judge(config, Machine::read().unified_cgroups, swaps())
}

/// Whether swap is on and memory that must not reach a disk may do so: volumes in memory cannot be
/// kept from it before Linux 6.4.
pub fn memory_may_reach_disk() -> bool {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    !has_noswap(&release) && swaps().is_ok_and(|swaps| is_on(&swaps))
}

fn judge(
    config: &KubeletConfiguration,
    unified_cgroups: bool,
    swaps: io::Result<String>,
) -> Result<(), Unfit> {
    if !unified_cgroups {
        if config.fail_cgroup_v1 {
            return Err(Unfit::CgroupV1);
        }
        if config.single_process_oom_kill == Some(false) {
            return Err(Unfit::GroupKill);
        }
        if config.memory_swap.swap_behavior == "LimitedSwap" {
            return Err(Unfit::LimitedSwap);
        }
    }
    let on = is_on(&swaps.map_err(Unfit::Unknown)?);
    if on && config.fail_swap_on {
        return Err(Unfit::Swap);
    }
    Ok(())
}

/// The kernel's table of swap; empty where it has none.
fn swaps() -> io::Result<String> {
    match fs::read_to_string("/proc/swaps") {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        read => read,
    }
}

/// Whether the table has a line below its heading.
fn is_on(swaps: &str) -> bool {
    swaps.trim().lines().count() > 1
}

/// Whether this release of Linux has the option `noswap` of tmpfs for certain.
fn has_noswap(release: &str) -> bool {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    let mut next = || numbers.next().and_then(|number| number.parse::<u32>().ok());
    (next(), next()) >= (Some(6), Some(4))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADING: &str = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n";
    const FILE: &str = "/swap file\\040x                  file\t\t1048572\t\t0\t\t-2\n";

    #[test]
    fn swap_is_on_where_the_table_has_a_line() {
        for (table, on) in [
            (String::new(), false),
            (HEADING.to_owned(), false),
            (format!("{HEADING}\n"), false),
            (format!("{HEADING}{FILE}"), true),
            (format!("{HEADING}{FILE}{FILE}"), true),
        ] {
            assert_eq!(is_on(&table), on, "{table:?}");
        }
    }

    #[test]
    fn a_node_starts_where_a_kubelet_would() {
        let lenient = || KubeletConfiguration {
            fail_swap_on: false,
            fail_cgroup_v1: false,
            ..Default::default()
        };
        let of = |config: KubeletConfiguration, unified, table: &str| {
            let judged = judge(&config, unified, Ok(format!("{HEADING}{table}")));
            judged.err().map(|why| why.to_string()).unwrap_or_default()
        };
        let standard = KubeletConfiguration::default;
        assert_eq!(of(standard(), true, ""), "");
        assert!(of(standard(), true, FILE).starts_with("running with swap on is not supported"));
        assert!(of(standard(), false, "").contains("not run on a host using cgroup v1"));
        assert_eq!(of(lenient(), false, FILE), "");
        let mut limited = lenient();
        limited.memory_swap.swap_behavior = "LimitedSwap".to_owned();
        assert!(of(limited.clone(), false, "").contains("only supported with cgroupv2"));
        assert_eq!(of(limited, true, FILE), "");
        let grouped = || KubeletConfiguration {
            single_process_oom_kill: Some(false),
            ..lenient()
        };
        assert!(of(grouped(), false, "").contains("singleProcessOOMKill"));
        assert_eq!(of(grouped(), true, ""), "");
        let unread = judge(
            &lenient(),
            true,
            Err(io::ErrorKind::PermissionDenied.into()),
        );
        assert!(matches!(unread, Err(Unfit::Unknown(_))));
    }

    #[test]
    fn releases_of_linux() {
        for (release, has) in [
            ("6.4.0-1-amd64\n", true),
            ("6.3.9", false),
            ("6.18.44-fc-v595", true),
            ("7.0", true),
            ("5.10.0", false),
            ("", false),
        ] {
            assert_eq!(has_noswap(release), has, "{release}");
        }
    }
}
