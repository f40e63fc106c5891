//! Checks whether a node may start on this machine with its configuration: those of a kubelet before
//! it starts, with the kubelet's messages.

use std::{fs, io};

use polylet_kit::config::KubeletConfiguration;

use crate::Machine;

/// Why a node must not start here.
#[derive(Debug, thiserror::Error)]
pub enum PreflightError {
    /// `failCgroupV1` on cgroup v1.
    #[error(
        "kubelet is configured to not run on a host using cgroup v1. cgroup v1 support is unsupported \
         and will be removed in a future release"
    )]
    CgroupV1,
    /// `singleProcessOOMKill: false` on cgroup v1, which always kills single processes.
    #[error(
        "invalid configuration: singleProcessOOMKill must not be explicitly set to false when using \
         cgroup v1"
    )]
    SingleProcessOomKill,
    /// `memorySwap.swapBehavior: LimitedSwap` on cgroup v1.
    #[error("swap feature is enabled and LimitedSwap but it is only supported with cgroupv2")]
    LimitedSwap,
    /// `failSwapOn` with swap on.
    #[error(
        "running with swap on is not supported, please disable swap or set --fail-swap-on flag to false"
    )]
    Swap,
    /// `/proc/swaps` cannot be read.
    #[error("failed to determine if swap is on")]
    Unknown(#[source] io::Error),
}

/// Checks this machine.
///
/// # Errors
/// When a kubelet with this configuration would not start here.
pub fn check(config: &KubeletConfiguration) -> Result<(), PreflightError> {
    evaluate(config, Machine::read().unified_cgroups, swaps())
}

/// Whether swap is on and volumes in memory may be swapped to disk: tmpfs has the option `noswap` only
/// since Linux 6.4.
pub fn tmpfs_may_swap() -> bool {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    !has_noswap(&release) && swaps().is_ok_and(|swaps| is_on(&swaps))
}

fn evaluate(
    config: &KubeletConfiguration,
    unified_cgroups: bool,
    swaps: io::Result<String>,
) -> Result<(), PreflightError> {
    if !unified_cgroups {
        if config.fail_cgroup_v1 {
            return Err(PreflightError::CgroupV1);
        }
        if config.single_process_oom_kill == Some(false) {
            return Err(PreflightError::SingleProcessOomKill);
        }
        if config.memory_swap.swap_behavior == "LimitedSwap" {
            return Err(PreflightError::LimitedSwap);
        }
    }
    let on = is_on(&swaps.map_err(PreflightError::Unknown)?);
    if on && config.fail_swap_on {
        return Err(PreflightError::Swap);
    }
    Ok(())
}

/// The swap table; empty on a kernel without swap.
fn swaps() -> io::Result<String> {
    match fs::read_to_string("/proc/swaps") {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        read => read,
    }
}

/// Whether the table has a line after its heading.
fn is_on(swaps: &str) -> bool {
    swaps.trim().lines().count() > 1
}

/// Whether tmpfs of this Linux release has the option `noswap`.
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
        let error = |config: KubeletConfiguration, unified, table: &str| {
            let result = evaluate(&config, unified, Ok(format!("{HEADING}{table}")));
            result
                .err()
                .map(|error| error.to_string())
                .unwrap_or_default()
        };
        let standard = KubeletConfiguration::default;
        assert_eq!(error(standard(), true, ""), "");
        assert!(error(standard(), true, FILE).starts_with("running with swap on is not supported"));
        assert!(error(standard(), false, "").contains("not run on a host using cgroup v1"));
        assert_eq!(error(lenient(), false, FILE), "");
        let mut limited = lenient();
        limited.memory_swap.swap_behavior = "LimitedSwap".to_owned();
        assert!(error(limited.clone(), false, "").contains("only supported with cgroupv2"));
        assert_eq!(error(limited, true, FILE), "");
        let grouped = || KubeletConfiguration {
            single_process_oom_kill: Some(false),
            ..lenient()
        };
        assert!(error(grouped(), false, "").contains("singleProcessOOMKill"));
        assert_eq!(error(grouped(), true, ""), "");
        let unread = evaluate(
            &lenient(),
            true,
            Err(io::ErrorKind::PermissionDenied.into()),
        );
        assert!(matches!(unread, Err(PreflightError::Unknown(_))));
    }

    #[test]
    fn noswap_is_known_by_release() {
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
