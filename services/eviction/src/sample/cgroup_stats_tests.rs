use super::*;
use crate::sample::cgroup::tests::directory;

#[test]
fn both_versions_report_the_same() {
    let v1 = directory(&[
        ("cpuacct/pod/cpuacct.usage", "5000\n"),
        (
            "cpu/pod/cpu.stat",
            "nr_periods 7\nnr_throttled 2\nthrottled_time 3000\n",
        ),
        ("cpu/pod/cpu.cfs_quota_us", "20000\n"),
        ("cpu/pod/cpu.cfs_period_us", "100000\n"),
        ("cpu/pod/cpu.shares", "2\n"),
        ("memory/pod/memory.usage_in_bytes", "4096\n"),
        ("memory/pod/memory.max_usage_in_bytes", "8192\n"),
        ("memory/pod/memory.limit_in_bytes", "16384\n"),
        ("memory/pod/memory.memsw.limit_in_bytes", "20480\n"),
        (
            "memory/pod/memory.stat",
            "pgfault 9\ntotal_pgfault 9\ntotal_rss 10\ntotal_cache 11\ntotal_inactive_file 96\ntotal_swap 12\n",
        ),
        ("pids/pod/pids.current", "3\n"),
        ("pids/pod/pids.max", "30\n"),
        (
            "blkio/pod/blkio.throttle.io_service_bytes_recursive",
            "0:1 Read 4096\n0:1 Write 1\nTotal 4097\n",
        ),
        (
            "blkio/pod/blkio.throttle.io_serviced_recursive",
            "0:1 Read 2\n0:1 Write 1\n",
        ),
    ]);
    let v2 = directory(&[
        (
            "pod/cpu.stat",
            "usage_usec 5\nnr_periods 7\nnr_throttled 2\nthrottled_usec 3\n",
        ),
        ("pod/cpu.max", "20000 100000\n"),
        ("pod/cpu.weight", "1\n"),
        ("pod/memory.current", "4096\n"),
        ("pod/memory.peak", "8192\n"),
        ("pod/memory.max", "16384\n"),
        ("pod/memory.swap.max", "4096\n"),
        ("pod/memory.swap.current", "12\n"),
        (
            "pod/memory.stat",
            "anon 10\nfile 11\ninactive_file 96\npgfault 9\n",
        ),
        ("pod/pids.current", "3\n"),
        ("pod/pids.max", "30\n"),
        (
            "pod/io.stat",
            "0:1 rbytes=4096 wbytes=1 rios=2 wios=1 dbytes=0 dios=0\n",
        ),
    ]);
    let mut one = CgroupMounts::V1(v1.path().to_owned()).stats("/pod", Detail::Full);
    let mut two = CgroupMounts::V2(v2.path().to_owned()).stats("/pod", Detail::Full);
    assert!(one.created_at.is_some() && two.created_at.is_some());
    (one.created_at, two.created_at) = (None, None);
    let memory = one.memory.as_mut().unwrap();
    assert_eq!(memory.raw_swap_limit.take(), Some(20480));
    two.memory.as_mut().unwrap().raw_swap_limit = None;
    assert_eq!(one, two);
    let memory = two.memory.unwrap();
    assert_eq!(
        (memory.working_set, memory.peak, memory.limit),
        (4000, 8192, Some(16384))
    );
    assert_eq!((memory.swap, memory.swap_limit), (12, Some(4096)));
    let cpu = two.cpu.unwrap();
    assert_eq!(
        (cpu.total, cpu.throttled, cpu.throttled_periods),
        (5000, 3000, 2)
    );
    assert_eq!((two.io[0].read_bytes, two.io[0].writes), (4096, 1));
    assert_eq!((two.tasks.threads, two.tasks.max_threads), (3, 30));
}

#[test]
fn pressure_is_read_with_cgroup_v2() {
    let v2 = directory(&[
        (
            "pod/cpu.pressure",
            "some avg10=1.50 avg60=0.25 avg300=0.00 total=7\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=3\n",
        ),
        ("pod/io.pressure", "some avg10=nan total=x\nnonsense\n"),
    ]);
    let mounts = CgroupMounts::V2(v2.path().to_owned());
    let pressure = mounts.stats("/pod", Detail::Summary).pressure;
    assert_eq!((pressure.cpu.some.total, pressure.cpu.some.avg10), (7, 1.5));
    assert_eq!(pressure.cpu.full.total, 3);
    assert_eq!(pressure.io, Stalls::default());
    assert_eq!(
        mounts.stats("/pod", Detail::Basic).pressure,
        Pressure::default()
    );
}

#[test]
fn no_limits_are_none() {
    let v1 = directory(&[
        ("cpu/pod/cpu.cfs_quota_us", "-1\n"),
        ("memory/pod/memory.usage_in_bytes", "1\n"),
        ("memory/pod/memory.limit_in_bytes", "9223372036854771712\n"),
    ]);
    let v2 = directory(&[
        ("pod/cpu.max", "max 100000\n"),
        ("pod/memory.current", "1\n"),
        ("pod/memory.max", "max\n"),
    ]);
    for mounts in [
        CgroupMounts::V1(v1.path().to_owned()),
        CgroupMounts::V2(v2.path().to_owned()),
    ] {
        let stats = mounts.stats("/pod", Detail::Full);
        assert_eq!(stats.cpu_limits.quota, None);
        assert_eq!(stats.memory.unwrap().limit, None);
    }
}

#[test]
fn pods_are_ranked_alike_with_both_versions() {
    let v1 = directory(&[
        ("memory/pod/memory.usage_in_bytes", "4096\n"),
        ("memory/pod/memory.limit_in_bytes", "9223372036854771712\n"),
        (
            "memory/pod/memory.stat",
            "rss 1\ntotal_rss 10\ntotal_inactive_file 96\n",
        ),
        ("pids/pod/pids.current", "3\n"),
    ]);
    let v2 = directory(&[
        ("pod/memory.current", "4096\n"),
        ("pod/memory.max", "max\n"),
        ("pod/memory.stat", "anon 10\ninactive_file 96\n"),
        ("pod/pids.current", "3\n"),
    ]);
    for mounts in [
        CgroupMounts::V1(v1.path().to_owned()),
        CgroupMounts::V2(v2.path().to_owned()),
    ] {
        let usage = mounts.usage("/pod");
        let memory = usage.memory.unwrap();
        assert_eq!(
            (memory.usage, memory.working_set, memory.limit),
            (4096, 4000, None)
        );
        assert_eq!(usage.processes, Some(3));
        assert_eq!(mounts.usage("/gone"), CgroupUsage::default());
    }
}
