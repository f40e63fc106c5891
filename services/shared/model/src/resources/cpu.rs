//! CPU shares, quotas and weights.

/// The kernel's minimum of `cpu.shares`.
pub const MIN_CPU_SHARES: u64 = 2;
/// The kernel's maximum of `cpu.shares`.
pub const MAX_CPU_SHARES: u64 = 262_144;
/// The default CFS period.
pub const CPU_PERIOD_US: i64 = 100_000;
/// The kernel's minimum of a quota.
pub const MIN_CPU_QUOTA_US: i64 = 1_000;

const SHARES_PER_CPU: u64 = 1024;
const MILLIS_PER_CPU: u64 = 1000;

/// `cpu.shares` (cgroup v1) for thousandths of a CPU.
pub fn cpu_shares(milli_cpu: i64) -> u64 {
    let milli_cpu = u64::try_from(milli_cpu).unwrap_or(0);
    (milli_cpu.saturating_mul(SHARES_PER_CPU) / MILLIS_PER_CPU)
        .clamp(MIN_CPU_SHARES, MAX_CPU_SHARES)
}

/// `cpu.cfs_quota_us` for thousandths of a CPU; 0 for no limit.
pub fn cpu_quota(milli_cpu: i64, period_us: i64) -> i64 {
    if milli_cpu <= 0 {
        return 0;
    }
    (milli_cpu.saturating_mul(period_us) / MILLIS_PER_CPU as i64).max(MIN_CPU_QUOTA_US)
}

/// `cpu.weight` (cgroup v2) for shares: linear from 2 → 1 to 262144 → 10000, as upstream converts
/// them for the cgroups of pods and QoS classes. Runtimes convert those of containers differently.
pub fn cpu_weight(shares: u64) -> u64 {
    let above = shares.clamp(MIN_CPU_SHARES, MAX_CPU_SHARES) - MIN_CPU_SHARES;
    1 + above * 9_999 / 262_142
}
