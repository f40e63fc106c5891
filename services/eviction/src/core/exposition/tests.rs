use super::cadvisor;
use super::measured::{CadvisorSample, CgroupIdentity, CgroupSeries};
use super::resource;
use crate::core::stats::{
    CgroupStats, CpuLimits, CpuTime, DeviceIo, InterfaceStats, MemoryUsage, MountedFilesystem,
    Traffic,
};
use crate::core::summary::{
    ContainerStats, CpuStats, MemoryStats, PodStats, SampleTimes, StatsSummary,
};

fn container() -> CgroupSeries {
    let identity = CgroupIdentity {
        id: "/kubepods/pod1/c",
        name: "c",
        image: "i:1",
        container: "main",
        namespace: "default",
        pod: "web",
    };
    CgroupSeries {
        labels: identity.labels(),
        stats: CgroupStats {
            cpu: Some(CpuTime {
                total: 1_500_000_000,
                throttled: 250_000_000,
                ..CpuTime::default()
            }),
            cpu_limits: CpuLimits {
                quota: Some(20_000),
                ..CpuLimits::default()
            },
            memory: Some(MemoryUsage {
                working_set: 4096,
                own_page_faults: 1,
                page_faults: 2,
                ..MemoryUsage::default()
            }),
            io: vec![DeviceIo {
                major: 8,
                device: "/dev/sda".to_owned(),
                read_bytes: 5,
                reads: 6,
                ..DeviceIo::default()
            }],
            ..CgroupStats::default()
        },
        ..CgroupSeries::default()
    }
}

const LABELS: &str = "container=\"main\",id=\"/kubepods/pod1/c\",image=\"i:1\",name=\"c\",\
                      namespace=\"default\",pod=\"web\"";

#[test]
fn cgroups_have_the_series_of_cadvisor() {
    let root = CgroupSeries {
        labels: CgroupIdentity {
            id: "/",
            ..CgroupIdentity::default()
        }
        .labels(),
        network: vec![InterfaceStats {
            name: "eth0".to_owned(),
            received: Traffic {
                bytes: 7,
                ..Traffic::default()
            },
            ..InterfaceStats::default()
        }],
        filesystems: vec![MountedFilesystem {
            device: "/dev/sda1".to_owned(),
            used: 9,
            ..MountedFilesystem::default()
        }],
        ..CgroupSeries::default()
    };
    let mut sample = CadvisorSample {
        at: jiff::Timestamp::from_millisecond(1_700_000_000_500).unwrap(),
        cgroups: vec![root, container()],
        ..CadvisorSample::default()
    };
    let text = cadvisor::render(&sample);
    let root = "container=\"\",id=\"/\",image=\"\",name=\"\",namespace=\"\",pod=\"\"";
    let at = 1_700_000_000_500_i64;
    for line in [
        "# TYPE container_cpu_usage_seconds_total counter".to_owned(),
        format!("container_cpu_usage_seconds_total{{{LABELS},cpu=\"total\"}} 1.5 {at}"),
        format!("container_cpu_cfs_throttled_seconds_total{{{LABELS}}} 0.25 {at}"),
        format!("container_spec_cpu_quota{{{LABELS}}} 20000"),
        format!("container_memory_working_set_bytes{{{LABELS}}} 4096 {at}"),
        format!(
            "container_memory_failures_total{{{LABELS},failure_type=\"pgfault\",scope=\"hierarchy\"}} 2 {at}"
        ),
        format!("container_fs_reads_bytes_total{{{LABELS},device=\"/dev/sda\"}} 5 {at}"),
        format!("container_fs_reads_total{{{LABELS},device=\"/dev/sda\"}} 6 {at}"),
        format!("container_fs_usage_bytes{{{root},device=\"/dev/sda1\"}} 9 {at}"),
        format!("container_network_receive_bytes_total{{{root},interface=\"eth0\"}} 7 {at}"),
        format!("container_last_seen{{{root}}} 1700000000 {at}"),
        "container_scrape_error 0".to_owned(),
    ] {
        assert!(
            text.lines().any(|found| found == line),
            "no {line} in {text}"
        );
    }
    assert!(!text.contains("container_pressure"));
    assert!(!text.contains(&format!("container_spec_cpu_quota{{{root}")));
    sample.has_pressure = true;
    assert!(cadvisor::render(&sample).contains("container_pressure_io_waiting_seconds_total{"));
}

#[test]
fn resources_have_upstream_series() {
    let stats = |name: &str| ContainerStats {
        name: name.to_owned(),
        started_at: Some("2026-01-01T00:00:00.5Z".parse().unwrap()),
        cpu: Some(CpuStats {
            nanoseconds: 1_500_000_000,
            nanocores: None,
        }),
        memory: Some(MemoryStats {
            working_set: 4096,
            swap: 1,
            swap_available: Some(2),
            ..MemoryStats::default()
        }),
        ..ContainerStats::default()
    };
    let summary = StatsSummary {
        times: SampleTimes {
            counters: jiff::Timestamp::from_second(1_700_000_000).unwrap(),
            ..SampleTimes::default()
        },
        node: stats("node"),
        pods: vec![PodStats {
            namespace: "default".to_owned(),
            total: stats("web"),
            containers: vec![stats("main")],
            ..PodStats::default()
        }],
        ..StatsSummary::default()
    };
    let text = resource::render(&summary);
    let (pod, at) = ("namespace=\"default\",pod=\"web\"", 1_700_000_000_000_i64);
    let container = format!("container=\"main\",{pod}");
    for line in [
        "# TYPE container_cpu_usage_seconds_total counter".to_owned(),
        format!("container_cpu_usage_seconds_total{{{container}}} 1.5 {at}"),
        format!("container_memory_working_set_bytes{{{container}}} 4096 {at}"),
        format!("container_start_time_seconds{{{container}}} 1767225600.5"),
        format!("container_swap_limit_bytes{{{container}}} 3 {at}"),
        format!("pod_swap_usage_bytes{{{pod}}} 1 {at}"),
        format!("node_cpu_usage_seconds_total 1.5 {at}"),
        "# HELP node_swap_usage_bytes [ALPHA] Current swap usage of the node in bytes. Reported \
         only on non-windows systems"
            .to_owned(),
        "resource_scrape_error 0".to_owned(),
    ] {
        assert!(
            text.lines().any(|found| found == line),
            "no {line} in {text}"
        );
    }
    assert!(!text.contains("pod_swap_limit") && !text.contains("node_start_time"));
}
