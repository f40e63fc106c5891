//! The families of cAdvisor about block devices, file systems and network interfaces.

use polylet_metrics::Exposition;
use polylet_metrics::FamilyKind::{self, Counter, Gauge};

use super::measured::CadvisorSample;
use crate::core::stats::{DeviceIo, InterfaceStats, MountedFilesystem, Traffic};

/// Bytes that cgroups read from and wrote to block devices.
pub(super) fn write_devices(exposition: &mut Exposition, sample: &CadvisorSample) {
    type ByteCount = (&'static str, &'static str, fn(&DeviceIo) -> u64);
    const FAMILIES: [ByteCount; 2] = [
        (
            "container_fs_reads_bytes_total",
            "Cumulative count of bytes read",
            |io| io.read_bytes,
        ),
        (
            "container_fs_writes_bytes_total",
            "Cumulative count of bytes written",
            |io| io.written_bytes,
        ),
    ];
    let at = Some(sample.at.as_millisecond());
    for (name, help, value) in FAMILIES {
        let mut series = exposition.family(name, help, Counter);
        for cgroup in &sample.cgroups {
            for io in &cgroup.stats.io {
                let label = ("device", io.device.as_str());
                series.labelled(&cgroup.labels, label, value(io) as f64, at);
            }
        }
    }
    let help = "Blkio Device bytes usage";
    let mut series = exposition.family("container_blkio_device_usage_total", help, Counter);
    for cgroup in &sample.cgroups {
        for io in &cgroup.stats.io {
            let labels = cgroup
                .labels
                .clone()
                .with("device", &io.device)
                .with("major", &io.major.to_string())
                .with("minor", &io.minor.to_string());
            for (operation, bytes) in [("Read", io.read_bytes), ("Write", io.written_bytes)] {
                series.labelled(&labels, ("operation", operation), bytes as f64, at);
            }
        }
    }
}

/// A family about file systems; reads and writes are those of cgroups' devices, too.
struct FilesystemFamily {
    name: &'static str,
    help: &'static str,
    kind: FamilyKind,
    value: fn(&MountedFilesystem) -> f64,
    of_device: Option<fn(&DeviceIo) -> u64>,
}

const fn fs(
    name: &'static str,
    help: &'static str,
    kind: FamilyKind,
    value: fn(&MountedFilesystem) -> f64,
) -> FilesystemFamily {
    FilesystemFamily {
        name,
        help,
        kind,
        value,
        of_device: None,
    }
}

const FILESYSTEMS: [FilesystemFamily; 15] = [
    fs(
        "container_fs_inodes_free",
        "Number of available Inodes",
        Gauge,
        |fs| fs.inodes_free as f64,
    ),
    fs(
        "container_fs_inodes_total",
        "Number of Inodes",
        Gauge,
        |fs| fs.inodes as f64,
    ),
    fs(
        "container_fs_io_current",
        "Number of I/Os currently in progress",
        Gauge,
        |fs| fs.disk.in_progress as f64,
    ),
    fs(
        "container_fs_io_time_seconds_total",
        "Cumulative count of seconds spent doing I/Os",
        Counter,
        |fs| fs.disk.io_time as f64 / 1e3,
    ),
    fs(
        "container_fs_io_time_weighted_seconds_total",
        "Cumulative weighted I/O time in seconds",
        Counter,
        |fs| fs.disk.weighted_io_time as f64 / 1e3,
    ),
    fs(
        "container_fs_limit_bytes",
        "Number of bytes that can be consumed by the container on this filesystem.",
        Gauge,
        |fs| fs.capacity as f64,
    ),
    fs(
        "container_fs_read_seconds_total",
        "Cumulative count of seconds spent reading",
        Counter,
        |fs| fs.disk.read_time as f64 / 1e3,
    ),
    fs(
        "container_fs_reads_merged_total",
        "Cumulative count of reads merged",
        Counter,
        |fs| fs.disk.reads_merged as f64,
    ),
    FilesystemFamily {
        of_device: Some(|io| io.reads),
        ..fs(
            "container_fs_reads_total",
            "Cumulative count of reads completed",
            Counter,
            |fs| fs.disk.reads as f64,
        )
    },
    fs(
        "container_fs_sector_reads_total",
        "Cumulative count of sector reads completed",
        Counter,
        |fs| fs.disk.sectors_read as f64,
    ),
    fs(
        "container_fs_sector_writes_total",
        "Cumulative count of sector writes completed",
        Counter,
        |fs| fs.disk.sectors_written as f64,
    ),
    fs(
        "container_fs_usage_bytes",
        "Number of bytes that are consumed by the container on this filesystem.",
        Gauge,
        |fs| fs.used as f64,
    ),
    fs(
        "container_fs_write_seconds_total",
        "Cumulative count of seconds spent writing",
        Counter,
        |fs| fs.disk.write_time as f64 / 1e3,
    ),
    fs(
        "container_fs_writes_merged_total",
        "Cumulative count of writes merged",
        Counter,
        |fs| fs.disk.writes_merged as f64,
    ),
    FilesystemFamily {
        of_device: Some(|io| io.writes),
        ..fs(
            "container_fs_writes_total",
            "Cumulative count of writes completed",
            Counter,
            |fs| fs.disk.writes as f64,
        )
    },
];

pub(super) fn write_filesystems(exposition: &mut Exposition, sample: &CadvisorSample) {
    let at = Some(sample.at.as_millisecond());
    for family in &FILESYSTEMS {
        let mut series = exposition.family(family.name, family.help, family.kind);
        for cgroup in &sample.cgroups {
            for fs in &cgroup.filesystems {
                let label = ("device", fs.device.as_str());
                series.labelled(&cgroup.labels, label, (family.value)(fs), at);
            }
            // The root cgroup has its file systems' counters.
            let devices = cgroup
                .stats
                .io
                .iter()
                .filter(|_| cgroup.filesystems.is_empty());
            for (io, value) in devices.filter_map(|io| Some((io, family.of_device?))) {
                let label = ("device", io.device.as_str());
                series.labelled(&cgroup.labels, label, value(io) as f64, at);
            }
        }
    }
}

pub(super) fn write_networks(exposition: &mut Exposition, sample: &CadvisorSample) {
    type Count = (
        &'static str,
        &'static str,
        &'static str,
        fn(&Traffic) -> u64,
    );
    const COUNTS: [Count; 4] = [
        ("bytes", "bytes received", "bytes transmitted", |traffic| {
            traffic.bytes
        }),
        (
            "errors",
            "errors encountered while receiving",
            "errors encountered while transmitting",
            |traffic| traffic.errors,
        ),
        (
            "packets_dropped",
            "packets dropped while receiving",
            "packets dropped while transmitting",
            |traffic| traffic.dropped,
        ),
        (
            "packets",
            "packets received",
            "packets transmitted",
            |traffic| traffic.packets,
        ),
    ];
    let at = Some(sample.at.as_millisecond());
    let mut write = |name: String, help: &str, value: &dyn Fn(&InterfaceStats) -> u64| {
        let help = format!("Cumulative count of {help}");
        let mut series = exposition.family(&name, &help, Counter);
        for cgroup in &sample.cgroups {
            for interface in &cgroup.network {
                let label = ("interface", interface.name.as_str());
                series.labelled(&cgroup.labels, label, value(interface) as f64, at);
            }
        }
    };
    for (unit, received, sent, value) in COUNTS {
        write(
            format!("container_network_receive_{unit}_total"),
            received,
            &|interface| value(&interface.received),
        );
        write(
            format!("container_network_transmit_{unit}_total"),
            sent,
            &|interface| value(&interface.sent),
        );
    }
}
